"""Rotary embedding of neighbours: element 2i is turned with element 2i + 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def rope_interleaved(x: np.ndarray, cosines: np.ndarray, sines: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """Each pair turned by its token's angle. ``x``: [tokens, H, D]; ``cosines``, ``sines``: [tokens, D // 2]."""
    import numpy as np

    values = x.astype(np.float64)
    cosine, sine = (table.astype(np.float64)[:, None, :] for table in (cosines, sines))
    result = np.empty_like(values)
    result[..., 0::2] = values[..., 0::2] * cosine - values[..., 1::2] * sine
    result[..., 1::2] = values[..., 1::2] * cosine + values[..., 0::2] * sine
    return {"y": result}
