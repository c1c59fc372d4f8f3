"""mbarrier: barriers in shared memory that count arrivals and asynchronous bytes. PTX ISA, "mbarrier"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.departures import Departures
from tilewright.emulator.machine.shared_memory import SharedMemory
from tilewright.emulator.machine.watch import Watch

if TYPE_CHECKING:
    from tilewright.emulator.checks.clocks import MbarrierClock

BYTES = 8
MOST = (1 << 20) - 1  # of every count. PTX ISA, "Contents of the mbarrier object"
PHASE_SHIFT = 32  # a state is phase << 32 | pending arrivals
_EARLY = (
    "nothing orders this arrival behind those of the phase before: it may count in the place of one of them, and the "
    "phase end before that one came"
)


class Place:
    """The mbarriers at one offset of shared memory, one per slot.

    Attributes:
        expected, pending: arrivals that a phase needs, and that the running one still lacks.
        tx: bytes announced and not arrived; negative while bytes came before their announcement.
        phase: phases that are complete.
        wanted: somebody has waited in vain since the last phase completed.
        is_told_otherwise: who knows of a complete phase need not have acquired it: a wait was relaxed.
    """

    def __init__(self, slots: int) -> None:
        self.is_valid = np.zeros(slots, bool)
        self.expected = np.zeros(slots, np.int64)
        self.pending = np.zeros(slots, np.int64)
        self.tx = np.zeros(slots, np.int64)
        self.phase = np.zeros(slots, np.int64)
        self.wanted = np.zeros(slots, bool)
        self.clock: MbarrierClock | None = None
        self.is_told_otherwise = False


@dataclass(frozen=True)
class _Part:
    """The threads of a call that name one offset: their positions in the call (None: all), and the barriers' slots."""

    place: Place
    offset: int
    active: Active
    which: Array | None
    slots: Array

    def cut(self, values: Any) -> Any:
        return values if self.which is None or not getattr(values, "ndim", 0) else values[self.which]


class Mbarriers:
    """Attributes:

    version: grows with every change that a waiter could notice.
    """

    def __init__(self, chunk: Chunk, shared: SharedMemory, watch: Watch, departures: Departures) -> None:
        self.chunk = chunk
        self.shared = shared
        self.watch = watch
        self.departures = departures
        self.places: dict[int, Place] = {}
        self.version = 0
        self._expired = np.zeros(chunk.threads, bool)
        self._failed: dict[int, tuple[int, int, int]] = {}

    # -- instructions ------------------------------------------------------------------------------------

    def init(self, active: Active, address: Any, count: Any, site: int) -> None:
        for part in self._parts(active, address, site):
            place = part.place
            again = place.is_valid[part.slots]
            if again.any() or len(np.unique(part.slots)) < len(part.slots):
                self._misuse(part, int(np.argmax(again)), site, "it is initialised again without mbarrier.inval")
            counts = part.active.spread(part.cut(count)).astype(np.int64)
            if ((counts < 1) | (counts > MOST)).any():
                self._misuse(part, 0, site, f"its count is {int(counts.min())}, which must be 1 to {MOST}")
            place.is_valid[part.slots] = False
            if self.watch.shadow is not None and (place.clock is None or not place.is_valid.any()):
                place.clock = self.watch.shadow.new_mbarrier()
            place.is_valid[part.slots] = True
            place.expected[part.slots] = place.pending[part.slots] = counts
            place.tx[part.slots] = place.phase[part.slots] = 0
            self.departures.begun(part.offset, part.slots)
            self._written(part, site)
        self.version += 1

    def inval(self, active: Active, address: Any, site: int) -> None:
        for part in self._parts(active, address, site):
            self._valid(part, site)
            part.place.is_valid[part.slots] = False
            self._written(part, site)

    def arrive(
        self,
        active: Active,
        address: Any,
        count: Any,
        tx: Any,
        site: int,
        drops: bool = False,
        completes: bool = True,
    ) -> Array:
        """Arrivals, of ``count`` each; ``tx``: bytes announced before them, or None. The states before, int64."""
        states = np.zeros(active.count, np.int64)
        for part in self._parts(active, address, site):
            good = self._valid(part, site)
            if good is None:
                continue
            place, slots = good.place, good.slots
            before = place.phase[slots] << PHASE_SHIFT | place.pending[slots]
            if good.which is None:
                states = before
            else:
                states[good.which] = before
            self._noted(good, site)
            self.departures.arrived(good.offset, good.active.threads, slots, place.phase[slots], site)
            if self.watch.presence is not None:
                self.watch.presence.arrive(good.offset, good.active.threads, slots)
            if tx is not None:
                self._announce(good, tx, site)
            arrivals = self._sum(good, count)
            if drops:
                place.expected -= arrivals
            if self.watch.shadow is not None and place.clock is not None:
                near = good.active.slots == slots
                if near.any():
                    early = self.watch.shadow.arrive(place.clock, _chosen(good.active.threads, near))
                    # In a cluster, what orders two arrivals may have gone through another block, without a clock here.
                    if len(early) and not self.shared.has_clusters and not place.is_told_otherwise:
                        at = int(np.argmax(near & np.isin(good.active.threads >> 5, early)))
                        self._misuse(good, at, site, _EARLY)
            self._count(good, arrivals, site)
            if not completes and (place.pending[slots] == 0).any():
                self._misuse(good, 0, site, "an arrival with .noComplete completes the phase")
            self._settle(good, site)
        self.version += 1
        return states

    def expect(self, active: Active, address: Any, tx: Any, site: int) -> None:
        for part in self._parts(active, address, site):
            good = self._valid(part, site)
            if good is not None:
                self._announce(good, tx, site)
                self._settle(good, site)
        self.version += 1

    def complete(self, active: Active, address: Any, tx: Any, site: int) -> None:
        """``mbarrier.complete_tx``."""
        for part in self._parts(active, address, site):
            good = self._valid(part, site)
            if good is not None:
                good.place.tx -= self._sum(good, tx)
                self._settle(good, site)
        self.version += 1

    def test(self, active: Active, address: Any, value: Any, is_parity: bool, acquires: bool, site: int) -> Array:
        """Which threads find complete the phase that ``value`` (a parity or a state) names."""
        ready = np.ones(active.count, bool)
        for part in self._parts(active, address, site):
            good = self._valid(part, site)
            if good is None:
                continue
            place, slots = good.place, good.slots
            wanted = good.active.spread(good.cut(value)).astype(np.int64)
            phase = place.phase[slots]
            done = (phase & 1) != (wanted & 1) if is_parity else phase != wanted >> PHASE_SHIFT
            self._noted(good, site)
            if done.any():
                near = done & (good.active.slots == slots)
                self.departures.seen(good.offset, slots[near], phase[near])
            if self.watch.presence is not None and done.any():
                self.watch.presence.wait(good.offset, good.active.threads[done], slots[done])
            place.is_told_otherwise |= not acquires
            if done.any() and acquires and self.watch.shadow is not None and place.clock is not None:
                near = done & (good.active.slots == slots)
                if near.any():
                    self.watch.shadow.acquire(place.clock, _chosen(good.active.threads, near))
            if not done.all():
                place.wanted[slots[~done]] = True
                first = int(np.argmin(done))
                self._failed[site] = (int(good.active.threads[first]), good.offset, int(slots[first]))
            if good.which is None:
                ready = done
            else:
                ready[good.which] = done
        return ready

    def wait(
        self, active: Active, address: Any, value: Any, is_parity: bool, acquires: bool, site: int
    ) -> tuple[Array, Array]:
        """``try_wait``: (who finds the phase complete, who goes on): the time of some may be over."""
        ready = self.test(active, address, value, is_parity, acquires, site)
        goes = ready | self._expired[active.threads]
        self._expired[active.threads] = False
        return ready, goes

    def expire(self, threads: Array) -> None:
        """The time limit of these waits is over: the next look lets them go on, with false."""
        self._expired[threads] = True

    def why(self, site: int) -> tuple[int, str] | None:
        """(thread, what the barrier lacks) of the last wait in vain at an instruction."""
        found = self._failed.get(site)
        if found is None:
            return None
        thread, offset, slot = found
        place = self.places[offset]
        missing = [f"{place.pending[slot]} of {place.expected[slot]} arrivals"]
        if place.tx[slot]:
            missing.append(f"{place.tx[slot]} bytes")
        return thread, f"its phase {place.phase[slot]} still lacks {' and '.join(missing)}"

    # -- for the copies ----------------------------------------------------------------------------------

    def require(self, active: Active, address: Any, site: int) -> Iterator[tuple[int, Array, Array | None]]:
        """(offset, slots, positions in the call) of the mbarriers that copies will signal; misuse is reported."""
        for part in self._parts(active, address, site):
            self._valid(part, site)
            if self.watch.presence is not None:
                self.watch.presence.arrive(part.offset, part.active.threads, part.slots)
            yield part.offset, part.slots, part.which

    def landed(self, threads: Array, offset: int, slots: Array, size: int, site: int) -> None:
        """``size`` bytes each arrived for the mbarriers of these slots; ``threads`` began the copies."""
        part = _Part(self.places[offset], offset, Active(self.chunk, threads), None, slots)
        part.place.tx -= np.bincount(slots, minlength=self.chunk.slots) * size
        self.departures.signalled(threads, slots)
        self._settle(part, site)
        self.version += 1

    def arrived(self, threads: Array, offset: int, slots: Array, site: int) -> None:
        """``cp.async.mbarrier.arrive``: the copies of these threads have landed."""
        part = self._valid(_Part(self.places[offset], offset, Active(self.chunk, threads), None, slots), site)
        if part is None:
            return
        if self.watch.presence is not None:
            self.watch.presence.arrive(offset, part.active.threads, part.slots)
        self._count(part, self._sum(part, 1), site)
        self._settle(part, site)
        self.version += 1

    def reserve(self, offset: int, slots: Array) -> None:
        """``cp.async.mbarrier.arrive`` without ``.noinc``: the arrival to come is counted in."""
        # At a phase that is all but complete the count may grow; the arrival takes it back.
        self.places[offset].pending += np.bincount(slots, minlength=self.chunk.slots)

    # -- within ------------------------------------------------------------------------------------------

    def _parts(self, active: Active, address: Any, site: int) -> Iterator[_Part]:
        linear = self.shared.linear(active, address, BYTES, site, "write", signals=True)
        size = self.shared.smem_bytes
        if not getattr(address, "ndim", 0) and not self.shared.has_clusters:
            yield self._part(active, int(linear[0] % size), None, active.slots)
            return
        slots, offsets = np.divmod(np.broadcast_to(linear, (active.count,)), size)
        unique = np.unique(offsets)
        if len(unique) == 1:
            yield self._part(active, int(unique[0]), None, slots)
            return
        for offset in unique:
            which = np.flatnonzero(offsets == offset)
            yield self._part(Active(self.chunk, active.threads[which]), int(offset), which, slots[which])

    def _part(self, active: Active, offset: int, which: Array | None, slots: Array) -> _Part:
        place = self.places.get(offset)
        if place is None:
            place = self.places[offset] = Place(self.chunk.slots)
        return _Part(place, offset, active, which, slots)

    def _valid(self, part: _Part, site: int) -> _Part | None:
        """The threads whose mbarrier is initialised; the others are reported."""
        valid = part.place.is_valid[part.slots]
        if valid.all():
            return part
        self._misuse(part, int(np.argmin(valid)), site, "it is not initialised: mbarrier.init comes first")
        if not valid.any():
            return None
        which = np.flatnonzero(valid) if part.which is None else part.which[valid]
        return _Part(part.place, part.offset, part.active.subset(valid), which, part.slots[valid])

    def _sum(self, part: _Part, values: Any) -> Array:
        """Per slot, int64."""
        values = part.cut(values)
        if not getattr(values, "ndim", 0):
            return np.bincount(part.slots, minlength=self.chunk.slots) * int(values)
        return np.bincount(part.slots, values, minlength=self.chunk.slots).astype(np.int64)

    def _announce(self, part: _Part, tx: Any, site: int) -> None:
        place = part.place
        place.tx += self._sum(part, tx)
        if (place.tx[part.slots] > MOST).any():
            self._misuse(part, 0, site, f"{int(place.tx.max())} bytes are expected, more than {MOST}")

    def _count(self, part: _Part, arrivals: Array, site: int) -> None:
        place, slots = part.place, part.slots
        over = (arrivals > place.pending)[slots]
        if over.any():
            at = int(np.argmax(over))
            slot = int(slots[at])
            note = (
                f"{arrivals[slot]} arrivals, {place.pending[slot]} were missing of its count of {place.expected[slot]}"
            )
            self._misuse(part, at, site, note)
            # Without bytes to wait for, the surplus belongs to the phases that follow.
            more = (arrivals - place.pending - 1) // np.maximum(place.expected, 1)
            place.phase += np.where((arrivals > place.pending) & (place.tx == 0), more, 0)
        place.pending = np.maximum(place.pending - arrivals, 0)

    def _settle(self, part: _Part, site: int) -> None:
        """Complete the phases that lack nothing any more."""
        place = part.place
        touched = np.zeros(self.chunk.slots, bool)
        touched[part.slots] = True
        full = touched & place.is_valid & (place.pending == 0)
        if (full & (place.tx < 0)).any():
            at = int(np.argmax((full & (place.tx < 0))[part.slots]))
            self._misuse(part, at, site, f"{-int(place.tx[part.slots[at]])} bytes more than expect_tx announced")
        done = np.flatnonzero(full & (place.tx == 0))
        if not len(done):
            return
        place.phase[done] += 1
        place.pending[done] = place.expected[done]
        place.wanted[done] = False
        if self.watch.presence is not None:
            self.watch.presence.complete(part.offset, done)
        if self.watch.shadow is not None and place.clock is not None:
            self.watch.shadow.complete(place.clock, done)

    def _linear(self, part: _Part) -> Array:
        return part.slots * self.shared.smem_bytes + part.offset

    def _written(self, part: _Part, site: int) -> None:
        if self.watch.shadow is not None:
            self.watch.shadow.write(part.active.threads, self._linear(part), BYTES, site)

    def _noted(self, part: _Part, site: int) -> None:
        """Whoever uses an mbarrier must come after its initialisation."""
        if self.watch.shadow is not None:
            self.watch.shadow.read(part.active.threads, self._linear(part), BYTES, site)

    def _misuse(self, part: _Part, which: int, site: int, note: str) -> None:
        symbol = self.shared.layout.nearest(part.offset)
        at = part.offset - symbol.offset
        self.watch.report("mbarrier_misuse", site, part.active, which, symbol.name, at, BYTES, note)


def _chosen(threads: Array, mask: Array) -> Array:
    return threads if mask.all() else threads[mask]
