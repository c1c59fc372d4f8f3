"""Blocks of a cluster that may end, and their shared memory with them, while others still arrive at their mbarriers.

PTX ISA, "mapa", and the CUDA programming guide, "Distributed Shared Memory": a block's shared memory may be used by
others only while the block exists. A block outlives an arrival that it waits for: at the mbarrier itself, or at a
barrier of the cluster behind it. An emulated block's memory stays, so the rule is checked at the end.
"""

from __future__ import annotations

import numpy as np

from tilewright.emulator.layout import SharedLayout
from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.clusters import Clusters
from tilewright.emulator.machine.watch import Watch

_NOTE = "its block may have ended before this arrival of another: end with a barrier of the cluster"


class _Arrivals:
    """At the mbarriers of one offset, by slot, from other blocks.

    Attributes:
        phase: of the last arrival; -1 without one. needs: the cluster barrier's phase that comes behind it.
        thread, site: of the last arrival. seen: phases that the block itself has seen complete.
    """

    def __init__(self, slots: int) -> None:
        self.phase = np.full(slots, -1)
        self.needs = np.zeros(slots, np.int64)
        self.thread = np.zeros(slots, np.int64)
        self.site = np.zeros(slots, np.int64)
        self.seen = np.zeros(slots, np.int64)


class Departures:
    def __init__(self, chunk: Chunk, clusters: Clusters, layout: SharedLayout, watch: Watch) -> None:
        self.chunk = chunk
        self.clusters = clusters
        self.layout = layout
        self.watch = watch
        self.is_on = clusters.size > 1
        self._at: dict[int, _Arrivals] = {}

    def arrived(self, offset: int, threads: Array, slots: Array, phases: Array, site: int) -> None:
        """Threads arrive at the mbarriers of these slots, which are in these phases."""
        if not self.is_on:
            return
        far = self.chunk.slot_of[threads] != slots
        if not far.any():
            return
        threads, slots = threads[far], slots[far]
        at = self._arrivals(offset)
        np.maximum.at(at.phase, slots, phases[far])
        np.maximum.at(at.needs, slots, self.clusters.arrived[threads] + 1)
        at.thread[slots] = threads
        at.site[slots] = site

    def seen(self, offset: int, slots: Array, phases: Array) -> None:
        """A thread of each of these blocks has seen so many phases of its mbarrier complete."""
        if self.is_on:
            np.maximum.at(self._arrivals(offset).seen, slots, phases)

    def begun(self, offset: int, slots: Array) -> None:
        """The mbarrier is initialised, perhaps again."""
        at = self._at.get(offset)
        if at is not None:
            at.phase[slots] = -1
            at.seen[slots] = 0

    def finish(self) -> None:
        """Report what nothing has kept a block for."""
        for offset, at in self._at.items():
            left = np.flatnonzero((at.phase >= at.seen) & (at.needs > self.clusters.seen))
            for site in np.unique(at.site[left]).tolist():
                slot = left[at.site[left] == site][0]
                symbol = self.layout.nearest(offset)
                who = Active(self.chunk, at.thread[slot : slot + 1])
                self.watch.report("mbarrier_misuse", site, who, 0, symbol.name, offset - symbol.offset, 8, _NOTE)

    def _arrivals(self, offset: int) -> _Arrivals:
        if offset not in self._at:
            self._at[offset] = _Arrivals(self.chunk.slots)
        return self._at[offset]
