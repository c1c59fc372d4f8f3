"""SGEMV."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def sgemv(a: np.ndarray, x: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """``y = a @ x``. ``a``: [M, N]; ``x``: [N]."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and no mistake
        return {"y": a.astype("float64") @ x.astype("float64")}
