"""The logistic function."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def sigmoid(x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = 1 / (1 + exp(-x))``. Both are [N]."""
    import numpy as np

    return {"y": 1 / (1 + np.exp(-x.astype(np.float64)))}
