"""Rotary embedding of a head's halves: element i is turned with element i + D / 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def rope_half(x: np.ndarray, cosines: np.ndarray, sines: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """Each pair turned by its token's angle. ``x``: [tokens, H, D]; ``cosines``, ``sines``: [tokens, D // 2]."""
    import numpy as np

    values = x.astype(np.float64)
    cosine, sine = (table.astype(np.float64)[:, None, :] for table in (cosines, sines))
    a, b = np.split(values, 2, axis=-1)
    return {"y": np.concatenate((a * cosine - b * sine, b * cosine + a * sine), axis=-1)}
