"""The sum of all elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def reduce(x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = sum(x)``. ``x``: [N]; ``y``: [], and 0 for no elements."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and no mistake
        return {"y": np.asarray(x.astype(np.float64).sum())}
