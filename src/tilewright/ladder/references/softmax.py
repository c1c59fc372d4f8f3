"""Softmax of rows, as PyTorch has it: a row with a NaN or +inf, or of -inf alone, is NaN throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def softmax(x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = exp(x - max) / sum(exp(x - max))`` by rows. ``x``: [R, C]."""
    import numpy as np

    rows = x.astype(np.float64)
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return {"y": powers / powers.sum(axis=1, keepdims=True)}
