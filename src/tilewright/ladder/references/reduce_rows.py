"""The sum of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def reduce_rows(x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = x.sum(-1)``. ``x``: [R, C]; ``y``: [R], and 0 for no columns."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and no mistake
        return {"y": x.astype(np.float64).sum(axis=1)}
