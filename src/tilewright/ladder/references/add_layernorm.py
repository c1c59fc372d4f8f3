"""A residual added, and LayerNorm of the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ladder.references.layernorm import normalised

if TYPE_CHECKING:
    import numpy as np


def add_layernorm(
    x: np.ndarray, residual: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float, **_: object
) -> dict[str, np.ndarray]:
    """``total = x + residual``, rounded to its type, which is what is normalised. ``x``, ``residual``: [R, C]."""
    total = (x.astype("float32") + residual.astype("float32")).astype(x.dtype).astype("float64")
    return {"total": total, "y": normalised(total, weight, bias, epsilon)}
