"""Rows of a table, by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def embedding(indices: np.ndarray, weight: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y[i, :] = weight[indices[i], :]``. ``indices``: [N], of [0, V); ``weight``: [V, C]."""
    return {"y": weight[indices].astype("float64")}
