"""Blocks of a cluster that may end, and their shared memory with them, while others still use it.

PTX ISA, "mapa", and the CUDA programming guide, "Distributed Shared Memory": a block's shared memory may be used by
others only while the block exists. A block outlives an arrival that it waits for: at the mbarrier itself, or at a
barrier of the cluster behind it. Loads and stores have to be followed by one or the other: those that an arrival from
the same block at an mbarrier there follows end with it. An emulated block's memory stays, so the rule is checked at
the end.
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
        # Loads and stores in the shared memory of each slot by the blocks of its cluster: the phase of the cluster's
        # barrier that comes behind the last one, its thread, offset and instruction.
        self._accesses = np.zeros((4, chunk.slots, clusters.size), np.int64)

    def used(self, active: Active, slots: Array, offsets: Array, site: int) -> None:
        """Loads or stores in the shared memory of these slots, at least some of other blocks."""
        far = np.flatnonzero(slots != active.slots)
        threads, slots = active.threads[far], slots[far]
        ranks = self.chunk.slot_of[threads] % self.clusters.size
        needs = np.maximum(self._accesses[0, slots, ranks], self.clusters.arrived[threads] + 1)
        self._accesses[:, slots, ranks] = needs, threads, offsets[far], np.full(len(far), site)

    def signalled(self, threads: Array, slots: Array) -> None:
        """Something from these threads has come to an mbarrier of these slots: their blocks' accesses are before it."""
        if self.is_on:
            self._accesses[0, slots, self.chunk.slot_of[threads] % self.clusters.size] = 0

    def arrived(self, offset: int, threads: Array, slots: Array, phases: Array, site: int) -> None:
        """Threads arrive at the mbarriers of these slots, which are in these phases."""
        if not self.is_on:
            return
        far = self.chunk.slot_of[threads] != slots
        if not far.any():
            return
        threads, slots = threads[far], slots[far]
        self.signalled(threads, slots)
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
        needs, threads, offsets, sites = self._accesses
        unkept = needs > self.clusters.seen[:, None]
        for site in np.unique(sites[unkept]).tolist():
            slot, rank = np.argwhere(unkept & (sites == site))[0]
            who = Active(self.chunk, threads[slot, rank : rank + 1])
            self.watch.remote("remote_too_late", who, 0, int(offsets[slot, rank]), site)
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
