"""Transpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def transpose(x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = x.T``. ``x``: [M, N]."""
    return {"y": x.astype("float64").T}
