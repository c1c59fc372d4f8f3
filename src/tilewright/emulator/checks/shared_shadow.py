"""Checks of shared-memory accesses: races by happens-before, copies in flight, uninitialised bytes, proxy fences.

Called once per executed instruction with the accesses of many threads of many blocks. While every block does the same
(the usual case), one block stands for all of them; the first call that differs between blocks makes it give every
block a state of its own, for good.

What is deliberately coarse, always towards silence:

- an arrival at an mbarrier, or a wait for it, by one lane counts for its whole warp, as do partial masks of
  ``__syncwarp``;
- strong (volatile, relaxed) reads are not remembered: a plain store after one is not judged against it;
- of several lanes of one warp that read a granule, the last one is remembered for races inside the warp;
- accesses to the memory of another block of the cluster are not checked for races, and arrivals at its mbarriers
  release nothing; of asynchronous stores there, it is noticed if they meet others that are still in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.emulator.checks.clocks import IntArray, MbarrierClock, WarpClocks
from tilewright.emulator.checks.granules import (
    ANY_LANE,
    ASYNCHRONOUS,
    LANE_BITS,
    OUTSTANDING,
    PENDING,
    TICK,
    Access,
    Granules,
    take,
)
from tilewright.emulator.checks.locations import Locations
from tilewright.emulator.checks.neighbours import Neighbours
from tilewright.emulator.checks.races import RaceRules
from tilewright.emulator.checks.reports import Reporter
from tilewright.emulator.checks.resolve import Resolver


def bytes_needed(blocks: int, warps: int, smem_bytes: int, granule_bytes: int, *, atomics: bool = False) -> int:
    """Memory that a ``SharedShadow`` may come to need, so that the caller can bound ``blocks``."""
    granules = blocks * smem_bytes // granule_bytes
    return granules * (14 + 4 * warps * (2 if atomics else 1)) + blocks * warps * (warps + 2) * 8


class SharedShadow:
    """The checks of one chunk.

    Args:
        blocks: thread blocks of the chunk. warps: per block, the last one padded to 32 lanes.
        smem_bytes: of one block's shared memory, a multiple of 16.
        granule_bytes: the smallest access of the kernel: 1, 2, 4, 8 or 16.
        symbols: (name, offset, bytes) of shared variables.
        block_numbers: how reports number the blocks; their slots by default.

    In all methods ``threads`` is int64[n], a thread being ``slot * warps * 32 + linear thread index in its block``,
    and ``linear`` int64[n], ``slot * smem_bytes + offset``, in bounds. Arrays are kept for a while: do not change them.
    """

    def __init__(
        self,
        blocks: int,
        warps: int,
        smem_bytes: int,
        granule_bytes: int,
        symbols: Sequence[tuple[str, int, int]],
        reporter: Reporter,
        block_numbers: Sequence[int] | None = None,
    ) -> None:
        if smem_bytes % 16 or granule_bytes not in (1, 2, 4, 8, 16):
            raise ValueError(f"shared memory of {smem_bytes} bytes in granules of {granule_bytes}")
        self._clocks = WarpClocks(1, warps)
        self._granules = Granules(1, warps, smem_bytes // granule_bytes)
        self._locations = Locations(self._clocks, smem_bytes // granule_bytes)
        self._resolver = Resolver(blocks, warps, smem_bytes, granule_bytes, self._expand)
        numbers = tuple(block_numbers) if block_numbers is not None else tuple(range(blocks))
        self._rules = RaceRules(self._clocks, self._granules, granule_bytes, symbols, reporter, numbers)
        self._outstanding: dict[int, list[tuple[Access, int, int]]] = {}
        self._reads_begun = 0
        self._mbarriers: list[MbarrierClock] = []
        self._neighbours: Neighbours | None = None

    # Accesses

    def read(self, threads: IntArray, linear: IntArray, size: int, site: int) -> None:
        """A load of ``size`` bytes by each thread."""
        for access in self._resolver.accesses(threads, linear, size):
            if access.remote:
                continue
            now = self._clocks.tick(site)
            self._check_read(access, site)
            self._granules.mark_read(access, access.actor & ANY_LANE | now << LANE_BITS, bool(self._outstanding))

    def write(
        self,
        threads: IntArray,
        linear: IntArray,
        size: int,
        site: int,
        unchanged: Callable[[], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        """A store. Two lanes of one call that write the same bytes are the caller's business.

        ``unchanged`` says, bool[n], which stores leave their bytes as they are: several warps that set one flag do not
        race with each other. It is called only where two writes are unordered.
        """
        for access in self._resolver.accesses(threads, linear, size):
            now = self._clocks.tick(site)
            if not access.remote:
                self._check_overwrite(access, site, unchanged=self._resolver.folded(unchanged))
            self._granules.mark_written(access, 0 if access.remote else now, access.actor)

    def atomic(self, threads: IntArray, linear: IntArray, size: int, site: int) -> None:
        """A read-modify-write: races with plain accesses, not with its like."""
        for access in self._resolver.accesses(threads, linear, size):
            if access.remote:
                continue
            now = self._clocks.tick(site)
            self._check_read(access, site, plain=False)
            self._check_readers(access, site)
            self._granules.mark_atomic(access, access.actor & ANY_LANE | now << LANE_BITS)
            # In this order, as threads of one call may be the first and the last to arrive at a counter.
            self._locations.written(access)
            self._locations.read(access)

    def strong_read(self, threads: IntArray, linear: IntArray, size: int, site: int) -> None:
        """``ld.volatile``, ``ld.relaxed`` (``ld.acquire``: and ``fence`` after it): races with plain stores only."""
        for access in self._resolver.accesses(threads, linear, size):
            if not access.remote:
                self._clocks.tick(site)
                self._check_read(access, site, plain=False)
                self._locations.read(access)

    def strong_write(self, threads: IntArray, linear: IntArray, size: int, site: int) -> None:
        """``st.volatile``, ``st.relaxed`` (``st.release``: and ``fence`` before it): races with plain accesses only."""
        for access in self._resolver.accesses(threads, linear, size):
            if not access.remote:
                now = self._clocks.tick(site)
                self._check_overwrite(access, site, plain=False)
                self._granules.mark_atomic(access, access.actor & ANY_LANE | now << LANE_BITS)
                self._granules.mark_filled(access)
                self._locations.written(access)

    def fence(self, threads: IntArray) -> None:
        """``fence``, ``membar``: with strong accesses on both sides it orders threads (``locations``)."""
        self._locations.fence(self._resolver.warps(threads))

    # Asynchronous copies

    def issue(self, threads: IntArray, linear: IntArray, size: int, site: int, *, finds_flights: bool = False) -> None:
        """A copy by the thread begins to write these bytes: they are in flight until they land.

        ``finds_flights``: report it where bytes of another block are in flight already.
        """
        for access in self._resolver.accesses(threads, linear, size):
            now = self._clocks.tick(site)
            if not access.remote:
                self._check_overwrite(access, site)
            elif finds_flights:
                self._rules.already_in_flight(access, site)
            self._granules.mark_written(access, PENDING | now, access.actor)

    def land(self, threads: IntArray, linear: IntArray, size: int, site: int) -> None:
        """A copy lands because its thread waited for it: from now on it is a write by that thread."""
        for access in self._resolver.accesses(threads, linear, size):
            now = self._clocks.tick(site)
            self._granules.mark_written(access, 0 if access.remote else now, access.actor)

    def land_async(
        self, slots: IntArray, linear: IntArray, size: int, site: int, clock: MbarrierClock, *, bulk: bool = True
    ) -> None:
        """A copy lands and signals the mbarrier ``clock`` of block ``slots`` (int64[n], where the bytes are).

        ``bulk``: of the asynchronous proxy (TMA, ``cp.async.bulk``); False: ``cp.async`` with an mbarrier arrival and
        ``st.async``, which need a proxy fence before wgmma or a bulk copy reads it.
        """
        agent = self._clocks.bulk_agent if bulk else self._clocks.copy_agent
        first_threads = slots * self._resolver.threads_per_block
        for access in self._resolver.accesses(first_threads, linear, size):
            events = take(self._granules.write_event, access.index, access.width)[:, 0]
            issuers = self._granules.write_actor.reshape(-1, access.width)[access.index, 0] >> LANE_BITS
            now = self._clocks.tick(site)
            self._granules.mark_written(access, ASYNCHRONOUS | now, agent << LANE_BITS)
            flying = events >= PENDING
            warps, place = np.unique((access.slot * self._clocks.warps + issuers)[flying], return_inverse=True)
            issued = np.zeros(len(warps), np.int32)
            np.maximum.at(issued, place, events[flying] & TICK)
            self._clocks.land(clock, np.unique(np.asarray(access.slot)), agent, warps, issued)

    def land_from_afar(
        self,
        threads: IntArray,
        homes: IntArray,
        linear: IntArray,
        size: int,
        site: int,
        clock: MbarrierClock,
        cluster_size: int,
    ) -> None:
        """Stores by threads of other blocks of the cluster land in the blocks ``homes``, and signal ``clock`` there."""
        if self._neighbours is None:
            self._neighbours = Neighbours(self._clocks, cluster_size)
        agent, nobody = self._clocks.copy_agent, np.zeros(0, np.int64)
        for access in self._resolver.accesses(homes * self._resolver.threads_per_block, linear, size):
            events = take(self._granules.write_event, access.index, access.width)[:, 0]
            issued = np.where(events >= PENDING, events & TICK, 0).astype(np.int32)
            now = self._clocks.tick(site)
            self._granules.mark_written(access, ASYNCHRONOUS | now, agent << LANE_BITS)
            self._clocks.land(clock, np.unique(homes), agent, nobody, issued[:0])
            self._neighbours.told(clock, homes, self._resolver.warps(threads), issued)

    # Asynchronous reads

    def async_read(self, threads: IntArray, linear: IntArray, size: int, site: int, token: int | None = None) -> None:
        """Operands of wgmma, or the source of a bulk store: a read through the asynchronous proxy.

        With a ``token`` it lasts until ``retire``; a write before that is reported. Each of ``threads`` stands for its
        warp: name a thread of the warp that will retire and release it.
        """
        for access in self._resolver.accesses(threads, linear, size):
            if access.remote:
                continue
            now = self._clocks.tick(site)
            self._check_read(access, site, through_proxy=True)
            self._granules.mark_read(access, access.actor & ANY_LANE | now << LANE_BITS, bool(self._outstanding))
            if token is not None:
                self._reads_begun += 1
                mark = OUTSTANDING + self._reads_begun
                self._granules.put_plane(self._granules.read_event, access, mark)
                self._outstanding.setdefault(token, []).append((access, mark, site))
                self._rules.outstanding_sites[mark] = site

    def retire(self, tokens: Iterable[int], threads: IntArray | None = None) -> None:
        """Reads are finished: all of these tokens, or those of the warps of ``threads`` only."""
        warps = None if threads is None else self._resolver.warps(threads)
        for token in tokens:
            kept: list[tuple[Access, int, int]] = []
            for access, mark, site in self._outstanding.pop(token, ()):
                done = access
                if warps is not None:
                    waits = np.isin(access.agent + access.slot * self._clocks.warps, warps)
                    done = access.pick(waits)
                    if not waits.all():
                        kept.append((access.pick(~waits), mark, site))
                self._finish_read(done, mark, site)
            if kept:
                self._outstanding[token] = kept

    def _finish_read(self, access: Access, mark: int, site: int) -> None:
        event = access.actor & ANY_LANE | self._clocks.tick(site) << LANE_BITS
        self._granules.finish_read(access, event, mark)

    # Synchronisation

    def barrier_all(self) -> None:
        """A barrier that every thread of every block of the chunk takes part in."""
        self._clocks.barrier_all()

    def barrier(self, arriving: IntArray, waiting: IntArray | None = None) -> None:
        """One barrier per block completes: ``waiting`` threads (default: the same) learn what ``arriving`` did."""
        comes = self._resolver.warps(arriving)
        uniform = self._resolver.uniform
        learns = comes if waiting is None or waiting is arriving else self._resolver.warps(waiting)
        if uniform != self._resolver.uniform:
            comes = self._resolver.warps(arriving)
        self._clocks.barrier(comes, learns)

    def converge(self, threads: IntArray) -> None:
        """A collective of the warp (``.sync``) orders its lanes."""
        everybody = len(threads) == self._resolver.thread_count
        self._clocks.converge(None if everybody else self._resolver.warps(threads))

    def proxy_fence(self, threads: IntArray) -> None:
        """``fence.proxy.async``."""
        self._clocks.proxy_fence(self._resolver.warps(threads))

    def new_mbarrier(self) -> MbarrierClock:
        """Clock of the mbarriers at one shared-memory offset, one per block; a new one after ``mbarrier.init``."""
        clock = MbarrierClock(len(self._clocks.known), self._clocks.agents)
        self._mbarriers.append(clock)
        return clock

    def arrive(self, clock: MbarrierClock, threads: IntArray) -> IntArray:
        """Threads arrive at the mbarrier of their own block (those of other blocks: do not call).

        Returns:
            The warps (of all the chunk's) whose arrivals another order of events would count in a phase before.
        """
        return self._clocks.arrive(clock, self._resolver.warps(threads))

    def complete(self, clock: MbarrierClock, slots: IntArray) -> None:
        """The running phase of the mbarriers of these blocks completes."""
        self._clocks.complete(clock, self._resolver.slots(slots))

    def acquire(self, clock: MbarrierClock, threads: IntArray) -> None:
        """Threads have seen (``test_wait``, ``try_wait``) that a phase of their block's mbarrier is complete."""
        self._clocks.acquire(clock, self._resolver.warps(threads))

    def finish(self) -> None:
        """The chunk has run to its end: report copies that nobody waited for."""
        self._rules.never_waited(self._resolver.copies)

    # The checks: a cheap test that everything is settled, then the rules

    def _check_read(self, access: Access, site: int, *, plain: bool = True, through_proxy: bool = False) -> None:
        events = take(self._granules.write_event, access.index, access.width)
        if through_proxy or int(events.max(initial=0)) > self._clocks.base:
            self._rules.read(access, events, site, through_proxy)
        if plain and self._granules.atomic_event is not None:
            self._rules.read_after_atomics(access, site)

    def _check_overwrite(
        self,
        access: Access,
        site: int,
        *,
        plain: bool = True,
        unchanged: Callable[[], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        events = take(self._granules.write_event, access.index, access.width)
        if int(events.max(initial=0)) > self._clocks.base:
            self._rules.overwrite(access, events, site, unchanged)
        self._check_readers(access, site)
        if plain and self._granules.atomic_event is not None:
            self._rules.write_after_atomics(access, site)

    def _check_readers(self, access: Access, site: int) -> None:
        last = take(self._granules.read_last, access.index, access.width)
        if self._outstanding or int(last.max(initial=0)) > self._clocks.base << LANE_BITS | ANY_LANE:
            self._rules.write_after_reads(access, last, site, everywhere=bool(self._outstanding))

    def _expand(self, slots: int) -> None:
        """One block no longer stands for all."""
        self._clocks.expand(slots)
        self._granules.expand(slots)
        self._locations.expand(slots)
        for clock in self._mbarriers:
            clock.expand(slots)
        each = self._granules.granules_per_slot
        for token, reads in self._outstanding.items():
            self._outstanding[token] = [(access.expand(slots, each), mark, site) for access, mark, site in reads]
