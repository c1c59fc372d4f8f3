"""Synchronisation through memory: a fence and a strong write here, a strong read and a fence there.

PTX ISA, "Release and Acquire Patterns": what a thread did before its last fence is released by its strong (atomic,
volatile, relaxed) writes, location by location; a strong read of the location observes it, and the next fence of the
reader orders what follows after it. An access that is ``.release`` or ``.acquire`` itself is one with its fence.
"""

from __future__ import annotations

import numpy as np

from tilewright.emulator.checks.clocks import Clocks32, IntArray, WarpClocks
from tilewright.emulator.checks.granules import Access


class Locations:
    """Clocks of the bytes that strong writes have released something to.

    Costs nothing until the first fence: without one, strong accesses order nothing.
    """

    def __init__(self, clocks: WarpClocks, granules: int) -> None:
        self._clocks = clocks
        self._granules = granules
        self._fenced: Clocks32 | None = None  # per warp, what its last fence covers
        self._observed: Clocks32 | None = None  # per warp, what its next fence will make known
        self._number = np.zeros(0, np.int32)  # per granule: row of ``_released``, or 0
        self._released = np.zeros((0, 0), np.int32)

    def expand(self, slots: int) -> None:
        """From one block that stands for all to ``slots`` blocks."""
        each = self._granules
        self._granules *= slots
        if self._fenced is None or self._observed is None:
            return
        self._fenced = np.tile(self._fenced, (slots, 1))
        self._observed = np.tile(self._observed, (slots, 1))
        rows = len(self._released) - 1
        shift = np.repeat(np.arange(slots, dtype=np.int32) * rows, each)
        number = np.tile(self._number, slots)
        self._number = np.where(number > 0, number + shift, 0)
        self._released = np.concatenate([self._released[:1], np.tile(self._released[1:], (slots, 1))])

    def fence(self, warps: IntArray) -> None:
        """``fence``, ``membar`` of these warps (slot * warps + warp)."""
        count, width = self._clocks.known.shape[1:]
        rows = self._clocks.known.reshape(-1, width)
        if self._fenced is None or self._observed is None:
            self._fenced, self._observed = np.zeros_like(rows), np.zeros_like(rows)
            self._number = np.zeros(self._granules, np.int32)
            self._released = np.zeros((1, width), np.int32)
        chosen = np.unique(warps)
        rows[chosen] = np.maximum(rows[chosen], self._observed[chosen])
        covered = rows[chosen]
        covered[np.arange(len(chosen)), chosen % count] = self._clocks.now
        self._fenced[chosen] = covered

    def written(self, access: Access) -> None:
        """Strong writes release what the last fence of their warp covers."""
        if self._fenced is None:
            return
        first = access.index * access.width  # one entry stands for the location
        fresh = np.unique(first[self._number[first] == 0])
        if len(fresh):
            self._number[fresh] = np.arange(len(self._released), len(self._released) + len(fresh), dtype=np.int32)
            more = np.zeros((len(fresh), self._released.shape[1]), np.int32)
            self._released = np.concatenate([self._released, more])
        np.maximum.at(self._released, self._number[first], self._fenced[self._warp(access)])

    def read(self, access: Access) -> None:
        """Strong reads observe what was released to their location."""
        if self._observed is None:
            return
        released = self._released[self._number[access.index * access.width]]
        np.maximum.at(self._observed, self._warp(access), released)

    def _warp(self, access: Access) -> IntArray:
        return np.asarray(access.slot * self._clocks.warps + access.agent)
