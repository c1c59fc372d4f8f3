"""A residual added, and RMSNorm of the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ladder.references.rmsnorm import normalised

if TYPE_CHECKING:
    import numpy as np


def add_rmsnorm(
    x: np.ndarray, residual: np.ndarray, weight: np.ndarray, epsilon: float, **_: object
) -> dict[str, np.ndarray]:
    """``total = x + residual``, rounded to its type, which is what is normalised. ``x``, ``residual``: [R, C]."""
    total = (x.astype("float32") + residual.astype("float32")).astype(x.dtype).astype("float64")
    return {"total": total, "y": normalised(total, weight, epsilon)}
