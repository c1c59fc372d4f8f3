"""HGEMM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def hgemm(a: np.ndarray, b: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``c = a @ b``. ``a``: [M, K]; ``b``: [K, N]."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and no mistake
        return {"c": a.astype("float64") @ b.astype("float64")}
