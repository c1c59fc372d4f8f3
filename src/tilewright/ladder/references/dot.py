"""The dot product of two vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def dot(a: np.ndarray, b: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = sum(a * b)``. ``a``, ``b``: [N]; ``y``: [], and 0 for no elements."""
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is NaN, and no mistake
        return {"y": np.asarray((a.astype(np.float64) * b.astype(np.float64)).sum())}
