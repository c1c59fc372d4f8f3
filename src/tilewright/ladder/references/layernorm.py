"""LayerNorm of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def layernorm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float, **_: object
) -> dict[str, np.ndarray]:
    """``y = (x - mean) / sqrt(var + epsilon) * weight + bias`` by rows. ``x``: [R, C]; ``weight``, ``bias``: [C]."""
    return {"y": normalised(x.astype("float64"), weight, bias, epsilon)}


def normalised(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float) -> np.ndarray:
    """Rows in float64, each less its mean, divided by its deviation, times ``weight``, plus ``bias``."""
    import numpy as np

    left = rows - rows.mean(axis=1, keepdims=True)
    scaled = left / np.sqrt((left**2).mean(axis=1, keepdims=True) + epsilon)
    result: np.ndarray = scaled * weight.astype(np.float64) + bias.astype(np.float64)
    return result
