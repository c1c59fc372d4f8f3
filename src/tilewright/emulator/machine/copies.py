"""cp.async: copies that read their source at once and land only at the wait that retires their group, or when somebody
waits for the mbarrier that they arrive at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.global_memory import GlobalMemory
from tilewright.emulator.machine.mbarriers import Mbarriers
from tilewright.emulator.machine.shared_memory import SharedMemory

ALL = 1 << 40


@dataclass
class _InFlight:
    """Copies of one instruction that have not landed: ``group`` per thread, or one number for all."""

    threads: Array
    group: Any
    linear: Array
    size: int
    data: Array
    site: int

    def cut(self, mask: Array) -> _InFlight:
        group = self.group[mask] if isinstance(self.group, np.ndarray) else self.group
        return _InFlight(self.threads[mask], group, self.linear[mask], self.size, self.data[mask], self.site)


@dataclass
class _Pledge:
    """Arrivals that come once the copies before them have landed: ``cp.async.mbarrier.arrive`` of one instruction."""

    threads: Array
    slots: Array
    offset: int
    copies: list[_InFlight]
    site: int


class AsyncCopies:
    """Attributes:

    lands: ``deferred`` (poisoned until the wait), or ``eager`` (at once, as hardware may).
    """

    def __init__(
        self, chunk: Chunk, shared: SharedMemory, globe: GlobalMemory, mbarriers: Mbarriers, lands: str
    ) -> None:
        self.chunk = chunk
        self.mbarriers = mbarriers
        self.pledges: list[_Pledge] = []
        self.shared = shared
        self.globe = globe
        self.lands = lands
        self.queue: list[_InFlight] = []
        self._group: Any = 0  # number of groups committed: one for all threads, or per thread

    def issue(
        self, active: Active, target: Any, source: Any, size: int, source_bytes: Any, skip: Any, site: int
    ) -> None:
        """One copy per thread.

        Args:
            target: shared address. source: global address. size: 4, 8 or 16 bytes.
            source_bytes: how many are read, the rest is zero; None for all. skip: ``ignore-src``: zeros only; or None.
        """
        linear = self.shared.linear(active, target, size, site, "write")
        linear = np.broadcast_to(linear, (active.count,))
        data = self._read(active, active.spread(source), size, source_bytes, skip, site)
        watch = self.shared.watch
        if watch.tally is not None:
            watch.tally.shared(active, linear, size, site, "copy")
        if watch.shadow is not None:
            watch.shadow.issue(active.threads, linear, size, site)
        if self.lands == "eager":
            self.shared.write_rows(linear, data)
        else:
            self.shared.poison(linear, size)
        group = self._group if not isinstance(self._group, np.ndarray) else self._group[active.threads]
        self.queue.append(_InFlight(active.threads, group, linear, size, data, site))

    def _read(self, active: Active, source: Array, size: int, source_bytes: Any, skip: Any, site: int) -> Array:
        count = np.full(active.count, size) if source_bytes is None else active.spread(source_bytes)
        if skip is not None:
            count = np.where(active.spread(skip), 0, count)
        if (count == size).all():
            return self.globe.load_rows(active, source, size, site)
        if ((count < 0) | (count > size)).any():
            raise Fault("bad_copy", f"cp.async is to read {int(count.max())} bytes of a copy of {size}", site)
        data = np.zeros((active.count, size), np.uint8)
        whole = count == size
        if whole.any():
            data[whole] = self.globe.load_rows(active.subset(whole), source[whole], size, site)
        for at in range(size):
            some = ~whole & (count > at)
            if some.any():
                data[some, at] = self.globe.load(active.subset(some), source[some] + at, 1, "u1", site)
        return data

    def commit(self, active: Active) -> None:
        if active.is_full and not isinstance(self._group, np.ndarray):
            self._group += 1
            return
        self._per_thread()[active.threads] += 1

    def _per_thread(self) -> Array:
        if not isinstance(self._group, np.ndarray):
            self._group = np.full(self.chunk.threads, self._group, np.int64)
        return self._group

    def wait(self, active: Active, newest: int) -> None:
        """Leave at most ``newest`` committed groups of these threads in flight."""
        self._land(active, self._group - newest)

    def drain(self, active: Active) -> None:
        """``cp.async.wait_all``: uncommitted ones too."""
        self._land(active, ALL)

    def _land(self, active: Active, limit: Any) -> None:
        if self.queue:
            self.queue = self._landed(self.queue, active, limit)
        for pledge in self.pledges:
            pledge.copies = self._landed(pledge.copies, active, limit)

    def _landed(self, copies: list[_InFlight], active: Active, limit: Any) -> list[_InFlight]:
        """Land what is of these threads and below the limit; the rest."""
        kept: list[_InFlight] = []
        here = None if active.is_full else self._here(active.threads)
        for copy in copies:
            bound = limit[copy.threads] if isinstance(limit, np.ndarray) else limit
            done = copy.group < bound
            if here is not None:
                done = done & here[copy.threads]
            if not isinstance(done, np.ndarray):
                done = np.bool_(done)
            if done.all():
                self._arrive(copy)
            elif not done.any():
                kept.append(copy)
            else:
                done = np.broadcast_to(done, copy.threads.shape)
                self._arrive(copy.cut(done))
                kept.append(copy.cut(~done))
        return kept

    def _arrive(self, copy: _InFlight) -> None:
        self.shared.write_rows(copy.linear, copy.data)
        if self.shared.shadow is not None:
            self.shared.shadow.land(copy.threads, copy.linear, copy.size, copy.site)

    def _here(self, threads: Array) -> Array:
        here = np.zeros(self.chunk.threads, bool)
        here[threads] = True
        return here

    # -- arrivals at an mbarrier -------------------------------------------------------------------------

    def pledge(self, active: Active, address: Any, increments: bool, site: int) -> None:
        """``cp.async.mbarrier.arrive``; ``increments``: no .noinc, the barrier's count grows with it."""
        for offset, slots, which in self.mbarriers.require(active, address, site):
            threads = active.threads if which is None else active.threads[which]
            if increments:
                self.mbarriers.reserve(offset, slots)
            copies = self._take(threads)
            if copies:
                self.pledges.append(_Pledge(threads, slots, offset, copies, site))
            else:
                self.mbarriers.arrived(threads, offset, slots, site)

    def _take(self, threads: Array) -> list[_InFlight]:
        """Copies of these threads that are in flight, out of the queue."""
        here = self._here(threads)
        taken, kept = [], []
        for copy in self.queue:
            mask = here[copy.threads]
            if mask.any():
                taken.append(copy.cut(mask))
            if not mask.all():
                kept.append(copy.cut(~mask))
        self.queue = kept
        return taken

    def land_wanted(self) -> bool:
        """Land the copies behind arrivals that somebody waits for; whether there were any."""
        has_landed = False
        kept: list[_Pledge] = []
        for pledge in self.pledges:
            wanted = self.mbarriers.places[pledge.offset].wanted[pledge.slots]
            if not wanted.any():
                kept.append(pledge)
                continue
            has_landed = True
            if not wanted.all():
                here = self._here(pledge.threads[~wanted])
                rest = [c.cut(here[c.threads]) for c in pledge.copies if here[c.threads].any()]
                kept.append(_Pledge(pledge.threads[~wanted], pledge.slots[~wanted], pledge.offset, rest, pledge.site))
            self._keep_promise(pledge, wanted)
        self.pledges = kept
        return has_landed

    def _keep_promise(self, pledge: _Pledge, wanted: Array) -> None:
        threads, slots = pledge.threads[wanted], pledge.slots[wanted]
        here = self._here(threads)
        clock = self.mbarriers.places[pledge.offset].clock
        for copy in pledge.copies:
            mine = here[copy.threads]
            part = copy if mine.all() else copy.cut(mine)
            self.shared.write_rows(part.linear, part.data)
            if self.shared.shadow is not None and clock is not None:
                homes = part.linear // self.shared.smem_bytes
                self.shared.shadow.land_async(homes, part.linear, part.size, part.site, clock, bulk=False)
        self.mbarriers.arrived(threads, pledge.offset, slots, pledge.site)
