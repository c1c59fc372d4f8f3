"""IGEMM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def igemm(a: np.ndarray, b: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``c = a @ b.T`` in int64, taken modulo 2**32 to the range of int32. ``a``: [M, K] int8; ``b``: [N, K] int8."""
    import numpy as np

    sums = a.astype(np.int64) @ b.astype(np.int64).T
    return {"c": (sums & 0xFFFFFFFF).astype(np.uint32).view(np.int32)}
