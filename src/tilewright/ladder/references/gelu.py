"""GELU with the error function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def gelu(x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = x * (1 + erf(x / sqrt(2))) / 2``, NaN where ``x`` is -inf (-inf * 0), as in PyTorch. Both are [N]."""
    import numpy as np

    values = x.astype(np.float64)
    scaled = values.reshape(-1) * math.sqrt(0.5)
    doubled = np.fromiter(map(math.erfc, -scaled), np.float64, scaled.size)  # 1 + erf, without its cancellation
    return {"y": values * doubled.reshape(values.shape) / 2}
