"""RMSNorm of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def rmsnorm(x: np.ndarray, weight: np.ndarray, epsilon: float, **_: object) -> dict[str, np.ndarray]:
    """``y = x / sqrt(mean(x**2) + epsilon) * weight`` by rows. ``x``: [R, C]; ``weight``: [C]."""
    return {"y": normalised(x.astype("float64"), weight, epsilon)}


def normalised(rows: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """Rows in float64, each divided by its root mean square, times ``weight``."""
    import numpy as np

    result: np.ndarray = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + epsilon) * weight.astype(np.float64)
    return result
