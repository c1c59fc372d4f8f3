"""Who knows of whose accesses: vector clocks of warps, and of what the asynchronous proxy may see.

Time is the number of accesses so far in the whole chunk (one tick per call, not per thread), so a clock entry reads
"warp w knows of everything that agent a did up to tick t". The entry of a warp for itself is the tick of its last
convergence: what other lanes did before it is ordered, what they did after it is not. One rule serves both: an access
at tick e by agent a is ordered before thread t of warp w if ``e <= known[w, a]``, or if t made it itself.

Agents: the warps 0 … warps-1; ``warps`` is the asynchronous proxy (bulk copies, TMA); ``warps + 1`` stands for
non-bulk ``cp.async`` that signal an mbarrier, and ``st.async``: asynchronous, but in the generic proxy (PTX ISA, "Async
proxy").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError

IntArray = npt.NDArray[np.int64]
Clocks32 = npt.NDArray[np.int32]

LAST_TICK = (1 << 25) - 1  # ticks are packed with a lane (5 bits) and flags into 32 bits


class MbarrierClock:
    """What the arrivals at one mbarrier release, in every block of the chunk: one object per shared-memory offset.

    Attributes:
        gathering: of the phase that is running, int32[slots, 2 * agents]. completed: of the phases before.
        came: the tick of each agent's last arrival, int32[slots, agents]. counted: of its last in a complete phase.
    """

    def __init__(self, slots: int, agents: int) -> None:
        self.gathering = np.zeros((slots, 2 * agents), np.int32)
        self.completed = np.zeros((slots, 2 * agents), np.int32)
        self.came = np.zeros((slots, agents), np.int32)
        self.counted = np.zeros((slots, agents), np.int32)

    def expand(self, slots: int) -> None:
        self.gathering = np.repeat(self.gathering, slots, axis=0)
        self.completed = np.repeat(self.completed, slots, axis=0)
        self.came = np.repeat(self.came, slots, axis=0)
        self.counted = np.repeat(self.counted, slots, axis=0)


class WarpClocks:
    """Clocks of all warps of a chunk.

    Attributes:
        known: int32[slots, warps, 2 * agents]: first what a warp knows, then the part of it that fences have shown to
            the asynchronous proxy.
        now: the present tick. base: every warp knows of every warp's accesses up to this tick.
    """

    def __init__(self, slots: int, warps: int) -> None:
        self.warps = warps
        self.agents = warps + 2
        self.bulk_agent = warps
        self.copy_agent = warps + 1
        self.now = 0
        self.base = 0
        self._joins_rest = False  # until a fence or an asynchronous landing, only warps' own columns matter
        self._sites = np.zeros(1024, np.int32)
        self._set(np.zeros((slots, warps, 2 * self.agents), np.int32))

    def _set(self, known: Clocks32) -> None:
        self.known = known
        self.flat = known.reshape(-1)
        self._own = known.reshape(len(known), -1)[:, :: 2 * self.agents + 1]

    def expand(self, slots: int) -> None:
        """From one block that stands for all to ``slots`` blocks."""
        self._set(np.repeat(self.known, slots, axis=0))

    def tick(self, site: int) -> int:
        """Begin an access of instruction ``site``; its tick."""
        self.now = now = self.now + 1
        if now >= len(self._sites):
            if now >= LAST_TICK:
                raise TilewrightError(
                    "emulator/too_many_accesses",
                    f"the hazard checks count up to {LAST_TICK} accesses to shared memory, this kernel makes more",
                    hint="verify with a smaller size set",
                )
            self._sites = np.concatenate([self._sites, np.zeros_like(self._sites)])
        self._sites[now] = site
        return now

    def sites(self, ticks: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Instruction of each tick."""
        return self._sites[ticks]

    def barrier_all(self) -> None:
        """A barrier that every thread of every block takes part in."""
        warps = self.warps
        self.known[:, :, :warps] = self.now
        if self._joins_rest:
            self.known[:, :, warps:] = self.known[:, :, warps:].max(axis=1, keepdims=True)
        self.base = self.now

    def barrier(self, arriving: IntArray, waiting: IntArray) -> None:
        """Warps of ``waiting`` (index slot * warps + warp, any order, repeats allowed) learn what ``arriving`` know."""
        slots, warps, width = self.known.shape
        comes = np.zeros((slots, warps), np.bool_)
        comes.reshape(-1)[arriving] = True
        learns = np.zeros((slots, warps), np.bool_)
        learns.reshape(-1)[waiting] = True
        joint = np.where(comes[:, :, None], self.known, 0).max(axis=1)
        joint[:, :warps][comes] = self.now
        rows = self.known.reshape(-1, width)
        chosen = np.flatnonzero(learns)
        rows[chosen] = np.maximum(rows[chosen], joint[chosen // warps])
        self.base = int(self.known[:, :, :warps].min())

    def converge(self, warps: IntArray | None) -> None:
        """The lanes of these warps (index slot * warps + warp; None: all) meet."""
        if warps is None:
            self._own[...] = self.now
        else:
            chosen = np.zeros(self._own.size, np.bool_)
            chosen[warps] = True
            self._own[chosen.reshape(self._own.shape)] = self.now

    def proxy_fence(self, warps: IntArray) -> None:
        """``fence.proxy.async``: what these warps know, their own accesses included, is shown to the other proxy."""
        self._joins_rest = True
        agents, count = self.agents, self.known.shape[1]
        rows = self.known.reshape(-1, 2 * agents)
        chosen = np.unique(warps)
        shown = np.maximum(rows[chosen, agents:], rows[chosen, :agents])
        shown[np.arange(len(chosen)), chosen % count] = self.now
        rows[chosen, agents:] = shown

    def arrive(self, clock: MbarrierClock, warps: IntArray) -> IntArray:
        """These warps release what they know to the mbarrier of their block.

        Returns:
            The warps that do not know of all arrivals of the phases before: on another day theirs comes first, and
            counts in the place of one of those.
        """
        count, width = self.known.shape[1:]
        chosen = np.unique(warps)
        slots, own = chosen // count, chosen % count
        vector = self.known.reshape(-1, width)[chosen]
        vector[np.arange(len(chosen)), own] = self.now
        early = (vector[:, : self.agents] < clock.counted[slots]).any(axis=1)
        np.maximum.at(clock.gathering, slots, vector)
        clock.came[slots, own] = self.now
        unaware: IntArray = chosen[early]
        return unaware

    def land(self, clock: MbarrierClock, slots: IntArray, agent: int, warps: IntArray, issued: Clocks32) -> None:
        """What ``agent`` has written by now in these blocks is released to their mbarrier.

        With it goes what the issuing ``warps`` know (own accesses: up to the tick ``issued``), as the copy came after.
        """
        self._joins_rest = True
        clock.gathering[slots, agent] = clock.came[slots, agent] = self.now
        count, width = self.known.shape[1:]
        vector = self.known.reshape(-1, width)[warps]
        vector[np.arange(len(warps)), warps % count] = issued
        np.maximum.at(clock.gathering, warps // count, vector)

    def complete(self, clock: MbarrierClock, slots: IntArray) -> None:
        """The running phase completes: waiters of it learn what was gathered."""
        clock.completed[slots] = np.maximum(clock.completed[slots], clock.gathering[slots])
        clock.counted[slots] = clock.came[slots]

    def acquire(self, clock: MbarrierClock, warps: IntArray) -> None:
        """These warps have seen a phase complete."""
        count, width = self.known.shape[1:]
        chosen = np.unique(warps)
        rows = self.known.reshape(-1, width)
        rows[chosen] = np.maximum(rows[chosen], clock.completed[chosen // count])
