"""SiLU of one array times another: the gate of a GLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def silu_mul(a: np.ndarray, b: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = a / (1 + exp(-a)) * b``, NaN where ``a`` is -inf, as in PyTorch. All are [N]."""
    import numpy as np

    gate = a.astype(np.float64)
    return {"y": gate / (1 + np.exp(-gate)) * b.astype(np.float64)}
