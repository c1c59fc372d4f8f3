"""What the blocks of a cluster know of one another's accesses, by the asynchronous stores that have landed.

Deliberately coarse, towards silence: a block knows as a whole what any of its warps was told, and passes on with a
store what it knows when the store lands.
"""

from __future__ import annotations

import numpy as np

from tilewright.emulator.checks.clocks import Clocks32, IntArray, MbarrierClock, WarpClocks


class Neighbours:
    def __init__(self, clocks: WarpClocks, cluster_size: int) -> None:
        self._clocks = clocks
        self._size = cluster_size
        # int32[slots, cluster_size, 2 * agents]: what a block knows of the block of each rank.
        self._known = np.zeros((len(clocks.known), cluster_size, 2 * clocks.agents), np.int32)

    def told(self, clock: MbarrierClock, homes: IntArray, warps: IntArray, issued: Clocks32) -> None:
        """Stores by ``warps`` (slot * warps + warp), issued at these ticks, land in the blocks ``homes``.

        What the writer's block knows of the block that it writes to is released to the mbarrier ``clock`` there.
        """
        pairs, place = np.unique(homes * self._clocks.known[:, :, 0].size + warps, return_inverse=True)
        ticks = np.zeros(len(pairs), np.int32)
        np.maximum.at(ticks, place, issued)
        homes, warps = np.divmod(pairs, self._clocks.known[:, :, 0].size)
        writers, lane_warps = np.divmod(warps, self._clocks.warps)
        vector = self._clocks.known.reshape(-1, 2 * self._clocks.agents)[warps]
        vector[np.arange(len(warps)), lane_warps] = ticks
        np.maximum.at(clock.gathering, homes, self._known[writers, homes % self._size])
        np.maximum.at(self._known, homes, self._known[writers])
        np.maximum.at(self._known, (homes, writers % self._size), vector)
