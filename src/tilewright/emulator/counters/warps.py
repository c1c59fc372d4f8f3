"""From the active threads of an instruction to rows of 32 lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def by_warp(threads: IntArray, addresses: IntArray) -> tuple[IntArray, Mask]:
    """Addresses by warp and lane.

    Args:
        threads: int64[n], ascending, 32 * warp + lane. addresses: int64[n], bytes.

    Returns:
        int64[W, 32] and bool[W, 32], a row for each warp with an active lane; the address of an inactive lane is that
        of some active lane of its warp.
    """
    n = len(threads)
    warps = threads >> 5
    if n % 32 == 0 and n and bool((warps[::32] == warps[31::32]).all()):
        return addresses.reshape(-1, 32), np.ones((n // 32, 32), np.bool_)
    begins = np.flatnonzero(np.diff(warps, prepend=-1))
    row = np.cumsum(np.diff(warps, prepend=-1) != 0) - 1
    placed = np.repeat(addresses[begins][:, None], 32, axis=1)
    active = np.zeros(placed.shape, np.bool_)
    lane = threads & 31
    placed[row, lane] = addresses
    active[row, lane] = True
    return placed, active
