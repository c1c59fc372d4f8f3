"""The rules of happens-before, applied where the cheap tests of ``SharedShadow`` do not settle an access."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.emulator.checks.clocks import WarpClocks
from tilewright.emulator.checks.granules import (
    ANY_LANE,
    LANE_BITS,
    OUTSTANDING,
    PENDING,
    TICK,
    UNWRITTEN,
    Access,
    Granules,
    take,
)
from tilewright.emulator.checks.reports import Detail, Kind, Reporter

Int32Array = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


class RaceRules:
    """Judges accesses and reports what is wrong with them."""

    def __init__(
        self,
        clocks: WarpClocks,
        granules: Granules,
        granule_bytes: int,
        symbols: Sequence[tuple[str, int, int]],
        reporter: Reporter,
        block_numbers: Sequence[int],
    ) -> None:
        self._clocks = clocks
        self._granules = granules
        self._granule_bytes = granule_bytes
        self._symbols = sorted(symbols, key=lambda symbol: symbol[1])
        self._reporter = reporter
        self._block_numbers = block_numbers
        self.outstanding_sites: dict[int, int] = {}

    def read(self, access: Access, events: Int32Array, site: int, through_proxy: bool) -> None:
        """A load of bytes whose last writes are ``events`` (int32[n, width])."""
        flying = events >= PENDING
        blank = events == UNWRITTEN
        actors = take_actors(self._granules, access)
        if flying.any():
            self._report("read_in_flight", access, flying, site, events, actors)
        if blank.any():
            self._report("uninitialised_read", access, blank, site, None, None)
        ticks = events & TICK
        settled = flying | blank
        strange = (ticks > self._known(access, actors)) & (actors != access.actor[:, None]) & ~settled
        if strange.any():
            self._report("race_read_after_write", access, strange, site, events, actors)
        if through_proxy:
            shown = self._known(access, actors, shown=True)
            hidden = (ticks > shown) & (actors >> LANE_BITS != self._clocks.bulk_agent) & ~settled & ~strange
            if hidden.any():
                self._report("missing_proxy_fence", access, hidden, site, events, actors)

    def overwrite(
        self, access: Access, events: Int32Array, site: int, unchanged: Callable[[], Mask] | None = None
    ) -> None:
        """A store or the issue of a copy over writes ``events``; ``unchanged``: which leave the bytes as they are."""
        flying = events >= PENDING
        actors = take_actors(self._granules, access)
        if flying.any():
            self._report("write_in_flight", access, flying, site, events, actors)
        strange = ((events & TICK) > self._known(access, actors)) & (actors != access.actor[:, None])
        strange &= ~(flying | (events == UNWRITTEN))
        if unchanged is not None and strange.any():
            same = unchanged()
            if len(same) == len(strange):
                strange &= ~same[:, None]
        if strange.any():
            self._report("race_write_after_write", access, strange, site, events, actors)

    def already_in_flight(self, access: Access, site: int) -> None:
        """A copy is issued into another block, over bytes that one before it is still to write."""
        events = take(self._granules.write_event, access.index, access.width)
        if (events >= PENDING).any():
            actors = take_actors(self._granules, access)
            self._report("write_in_flight", access, events >= PENDING, site, events, actors)

    def write_after_reads(self, access: Access, last: Int32Array, site: int, everywhere: bool) -> None:
        """A store, copy or atomic over bytes whose latest reads are ``last``; ``everywhere``: do not trust those."""
        if not everywhere:
            known = self._clocks.known[:, :, : self._clocks.warps].min(axis=2).reshape(-1)
            least = known[access.slot * self._clocks.warps + access.agent]
            access = access.pick((last > (least << LANE_BITS | ANY_LANE)[:, None]).any(axis=1))
        self._against_planes("race_write_after_read", access, self._granules.read_event, site)

    def write_after_atomics(self, access: Access, site: int) -> None:
        assert self._granules.atomic_event is not None
        self._against_planes("race_write_after_write", access, self._granules.atomic_event, site)

    def read_after_atomics(self, access: Access, site: int) -> None:
        assert self._granules.atomic_event is not None
        self._against_planes("race_read_after_write", access, self._granules.atomic_event, site)

    def _against_planes(self, kind: Kind, access: Access, planes: Int32Array, site: int) -> None:
        """Accesses that are recorded per warp in ``planes`` (reads, atomics) against this one."""
        if not len(access.index):
            return
        first = self._first_entry(access)
        for warp in range(self._clocks.warps):
            events = take(planes[warp], access.index, access.width)
            known = self._clocks.flat[first + warp]
            strange = events > (known << LANE_BITS | ANY_LANE)[:, None]
            if not strange.any():
                continue
            own_lane = (access.agent == warp)[:, None] & ((events & ANY_LANE) == (access.actor & ANY_LANE)[:, None])
            waits = events >= OUTSTANDING
            strange &= waits | ~own_lane
            actors = (events & ANY_LANE | warp << LANE_BITS).astype(np.int16)
            if (strange & ~waits).any():
                self._report(kind, access, strange & ~waits, site, events >> LANE_BITS, actors)
            if waits.any():
                actors[waits] = warp << LANE_BITS
                self._report("async_read_in_flight", access, waits, site, events, actors)

    def never_waited(self, copies: int) -> None:
        """Every copy that is in flight at the end; each stands for ``copies`` blocks."""
        events = self._granules.write_event
        left = np.flatnonzero(events >= PENDING)
        if not len(left):
            return
        sites = self._clocks.sites(events[left] & TICK)
        for site in np.unique(sites).tolist():
            of_site = left[sites == site]
            slot, granule = divmod(int(of_site[0]), self._granules.granules_per_slot)
            actor = int(self._granules.write_actor[of_site[0]])
            ticks = len(np.unique(events[of_site]))

            def detail(slot: int = slot, granule: int = granule, actor: int = actor) -> Detail:
                return self._detail(slot, granule, 1, actor, -1)

            self._reporter.report("copy_never_waited", site, -1, detail, ticks * copies)

    def _first_entry(self, access: Access) -> npt.NDArray[np.int64]:
        clocks = self._clocks
        return (access.slot * clocks.warps + access.agent) * (2 * clocks.agents)

    def _known(self, access: Access, actors: npt.NDArray[np.int16], shown: bool = False) -> Int32Array:
        """What the warp of each access knows of each writer, int32[n, width]."""
        first = self._first_entry(access) + (self._clocks.agents if shown else 0)
        return self._clocks.flat[first[:, None] + (actors >> LANE_BITS)]

    def _report(
        self,
        kind: Kind,
        access: Access,
        bad: Mask,
        site: int,
        events: Int32Array | None,
        actors: npt.NDArray[np.int16] | None,
    ) -> None:
        """One report per earlier instruction among the granules ``bad`` (bool[n, width])."""
        rows, columns = np.nonzero(bad)
        if events is None:
            others = np.full(len(rows), -1)
        elif kind == "async_read_in_flight":
            others = np.array([self.outstanding_sites[mark] for mark in events[rows, columns].tolist()])
        else:
            others = self._clocks.sites(events[rows, columns] & TICK).astype(np.int64)
        for other in np.unique(others).tolist():
            chosen = np.flatnonzero(others == other)
            # Of races inside and across warps the latter are shown: their remedy serves both.
            across = np.zeros(len(chosen), np.bool_)
            if actors is not None:
                across = access.agent[rows[chosen]] != actors[rows[chosen], columns[chosen]] >> LANE_BITS
            row = int(rows[chosen[int(np.argmax(across))]])
            mine = columns[chosen][rows[chosen] == row]
            count = (1 + int(np.count_nonzero(np.diff(rows[chosen])))) * access.copies
            if across.any():
                mine = columns[chosen][(rows[chosen] == row) & across]
            partner = -1 if actors is None else int(actors[row, mine[0]])

            def detail(row: int = row, mine: npt.NDArray[np.int64] = mine, partner: int = partner) -> Detail:
                slot = access.slot if isinstance(access.slot, int) else int(access.slot[row])
                start = int(access.index[row]) * access.width + int(mine[0]) - slot * self._granules.granules_per_slot
                return self._detail(slot, start, _run(mine), int(access.actor[row]), partner)

            self._reporter.report(kind, site, int(other), detail, count, int(across.any()))

    def _detail(self, slot: int, granule: int, granules: int, actor: int, partner: int) -> Detail:
        offset = granule * self._granule_bytes
        found = bisect_right(self._symbols, offset, key=lambda symbol: symbol[1]) - 1
        name, start, _ = self._symbols[found] if found >= 0 else ("shared memory", 0, 0)
        if partner >> LANE_BITS >= self._clocks.warps:
            partner = -1
        return Detail(name, offset - start, granules * self._granule_bytes, self._block_numbers[slot], actor, partner)


def _run(columns: npt.NDArray[np.int64]) -> int:
    """How many of them follow one another from the first on."""
    gaps = np.flatnonzero(np.diff(columns) != 1)
    return int(gaps[0]) + 1 if len(gaps) else len(columns)


def take_actors(granules: Granules, access: Access) -> npt.NDArray[np.int16]:
    """Who wrote the granules of each access last, int16[n, width]."""
    return granules.write_actor.reshape(-1, access.width).take(access.index, axis=0)
