"""Blocks of a cluster that may not have begun when others use their shared memory.

CUDA programming guide, "Distributed Shared Memory": all blocks have to have begun before one uses another's memory, and
what says so is a barrier of the cluster. A thread knows of it once it has waited there, or has met one that knows: at a
barrier of the block, at an mbarrier, in a collective of its warp. In doubt it knows: through words of memory that
blocks agree on, one may tell another anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.emulator.machine.chunk import Active, Array, Chunk

if TYPE_CHECKING:
    from tilewright.emulator.machine.watch import Watch


class _Told:
    """By the arrivals at the mbarriers of one offset, per slot: of the phase that runs, and of those complete."""

    def __init__(self, slots: int) -> None:
        self.running = np.zeros(slots, bool)
        self.complete = np.zeros(slots, bool)


class Presence:
    """Attributes:

    knows: bool per thread: all blocks of its cluster have begun.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.knows = np.zeros(chunk.threads, bool)
        self._told: dict[int, _Told] = {}

    def learn(self, threads: Array) -> None:
        """They have waited for a barrier of the cluster, or may have heard of the others in global memory."""
        self.knows[threads] = True

    def overhear(self, threads: Array) -> None:
        """They read what any thread of their block may have left for them."""
        self._share(self.chunk.all_threads, threads, self.chunk.slot_of, self.chunk.slots)

    def meet(self, arriving: Array, waiting: Array) -> None:
        """At a barrier of the block."""
        self._share(arriving, waiting, self.chunk.slot_of, self.chunk.slots)

    def converge(self, threads: Array) -> None:
        """Lanes of each warp."""
        warps = self.chunk.all_threads >> 5
        self._share(threads, threads, warps, len(warps) >> 5)

    def arrive(self, offset: int, threads: Array, slots: Array) -> None:
        """At the mbarriers of these slots; or bytes that these threads sent have come there."""
        told = self._told.setdefault(offset, _Told(self.chunk.slots))
        told.running[slots[self.knows[threads]]] = True

    def complete(self, offset: int, slots: Array) -> None:
        told = self._told.get(offset)
        if told is not None:
            told.complete[slots] |= told.running[slots]
            told.running[slots] = False

    def wait(self, offset: int, threads: Array, slots: Array) -> None:
        """They find a phase of the mbarriers of these slots complete."""
        told = self._told.get(offset)
        if told is not None:
            self.knows[threads] |= told.complete[slots]

    def check(self, watch: Watch, active: Active, far: Array, offset: int, site: int) -> None:
        """``far``: who uses the memory of another block. What nobody told them of is reported."""
        early = far & ~self.knows[active.threads]
        if early.any():
            watch.remote("remote_too_early", active, int(np.argmax(early)), offset, site)

    def _share(self, tell: Array, hear: Array, group_of: Array, groups: int) -> None:
        if not self.knows.any():
            return
        told = np.zeros(groups, bool)
        told[group_of[tell[self.knows[tell]]]] = True
        self.knows[hear] |= told[group_of[hear]]
