"""How many 32-byte sectors a warp's access to global memory touches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SECTOR_BYTES = 32


def sectors(addresses: IntArray, active: Mask, size: int) -> tuple[IntArray, IntArray, IntArray]:
    """Sectors of each warp request.

    Args:
        addresses: int64[W, 32], bytes, multiples of the access size. active: bool[W, 32].
        size: bytes of each lane's access, 1 to 32.

    Returns:
        int64[W] each: requests (1, or 0 where no lane is active); distinct sectors; and the fewest sectors that could
        hold the distinct bytes.
    """
    requests: IntArray = np.asarray(active.any(axis=1), np.int64)
    # Inactive lanes repeat an active one, so that they count nothing.
    some = np.take_along_axis(addresses, active.argmax(axis=1)[:, None], axis=1)
    ordered = np.where(active, addresses, some)
    if (ordered[:, 1:] < ordered[:, :-1]).any():
        ordered = np.sort(ordered, axis=1)
    distinct = 1 + _count(ordered[:, 1:] != ordered[:, :-1])
    lines = ordered // SECTOR_BYTES
    touched = 1 + _count(lines[:, 1:] != lines[:, :-1])
    ideal = -(-distinct * size // SECTOR_BYTES)
    return requests, touched * requests, ideal * requests


def _count(rows: Mask) -> IntArray:
    counts: IntArray = rows.sum(axis=1, dtype=np.int64)
    return counts
