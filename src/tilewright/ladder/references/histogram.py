"""How often values occur."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def histogram(x: np.ndarray, bins: int, **_: object) -> dict[str, np.ndarray]:
    """``counts[b]``: elements of ``x`` that equal b, for b in [0, ``bins``); others are not counted. ``x``: [N]."""
    import numpy as np

    return {"counts": np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)}
