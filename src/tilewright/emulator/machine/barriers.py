"""bar.sync and its kin: sixteen barriers per block, for all of its threads or for a counted part of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.chunk import Array, Chunk
from tilewright.emulator.machine.watch import Watch

BARRIERS = 16  # of a block. PTX ISA, "barrier"


@dataclass(eq=False)
class Arrival:
    """Threads at a barrier.

    Attributes:
        tag: of the scheduler. target: the basic block after the barrier. waits: False for bar.arrive.
        count: of threads that the barrier needs; None for all that are alive.
        reduce: for bar.red: (operation, predicate per thread), else None. register: number of its result.
    """

    tag: int
    target: int
    threads: Array
    number: int
    count: int | None
    waits: bool
    site: int
    is_aligned: bool
    reduce: tuple[str, Array] | None = None
    register: int = -1


@dataclass(frozen=True)
class Release:
    """Threads that go on, and the result of a reduction for them, with the number of its register."""

    tag: int
    target: int
    threads: Array
    result: Array | None = None
    register: int = -1


class BlockBarriers:
    def __init__(self, chunk: Chunk, watch: Watch) -> None:
        self.chunk = chunk
        self.watch = watch
        self.waiting: list[Arrival] = []

    def arrive(self, arrival: Arrival) -> None:
        if not 0 <= arrival.number < BARRIERS:
            raise Fault("bad_barrier", f"barrier {arrival.number}; a block has {BARRIERS}", arrival.site)
        self.waiting.append(arrival)

    def release(self, alive: Array) -> list[Release]:
        """Let go whatever is complete. ``alive``: bool per thread of the chunk."""
        out: list[Release] = []
        for number in {a.number for a in self.waiting}:
            while found := self._release_one(number, alive):
                out += found
        return out

    def _release_one(self, number: int, alive: Array) -> list[Release]:
        """One phase of a barrier: threads pass in the order in which they came, and no more than it counts."""
        chunk = self.chunk
        arrivals = [a for a in self.waiting if a.number == number]
        if not arrivals:
            return []
        everyone = np.concatenate([a.threads for a in arrivals])
        slots = chunk.slot_of[everyone]
        here = np.bincount(slots, minlength=chunk.slots)
        need = self._needed(arrivals, alive)
        done = (here >= need) & (here > 0)
        if not done.any():
            return []
        passes = done[slots]
        if (here[done] > need[done]).any():
            passes &= _rank(slots) < need[slots]
        through, left = _parted(arrivals, passes)
        self.waiting = [a for a in self.waiting if a.number != number] + left
        self._check(through)
        self._order(through)
        return self._leave(through)

    def _needed(self, arrivals: list[Arrival], alive: Array) -> Array:
        """Threads that complete the phase, per slot."""
        counts = {a.count for a in arrivals}
        if len(counts) > 1 and None not in counts:
            told = " and ".join(str(count) for count in sorted(counts, key=str))
            raise Fault("bad_barrier", f"barrier {arrivals[0].number} is to count {told} threads", arrivals[-1].site)
        count = next((c for c in counts if c is not None), None)
        if count is not None:
            return np.full(self.chunk.slots, count)
        return np.bincount(self.chunk.slot_of[alive], minlength=self.chunk.slots)

    def _leave(self, through: list[Arrival]) -> list[Release]:
        results = self._reduced(through)
        slot_of = self.chunk.slot_of
        return [
            Release(a.tag, a.target, a.threads, None if results is None else results[slot_of[a.threads]], a.register)
            for a in through
            if a.waits
        ]

    def _reduced(self, through: list[Arrival]) -> Array | None:
        """bar.red: one result per slot."""
        votes = [(a.threads, a.reduce) for a in through if a.reduce is not None]
        if not votes:
            return None
        chunk = self.chunk
        ones, all_ = np.zeros(chunk.slots, np.int64), np.zeros(chunk.slots, np.int64)
        operation = "popc"
        for threads, (operation, predicate) in votes:  # noqa: B007
            slots = chunk.slot_of[threads]
            ones += np.bincount(slots, weights=predicate, minlength=chunk.slots).astype(np.int64)
            all_ += np.bincount(slots, minlength=chunk.slots)
        if operation == "popc":
            return ones.astype(np.int32)
        return ones > 0 if operation == "or" else ones == all_

    def _order(self, through: list[Arrival]) -> None:
        waiters = [a.threads for a in through if a.waits] or [np.zeros(0, np.int64)]
        self.watch.barrier(np.concatenate([a.threads for a in through]), np.concatenate(waiters))

    def _check(self, through: list[Arrival]) -> None:
        """A warp whose lanes wait at different ``.aligned`` barriers at once does what the ISA forbids."""
        aligned = [a for a in through if a.is_aligned]
        if len({a.site for a in aligned}) < 2:
            return
        seen: dict[int, int] = {}
        for a in aligned:
            for warp in np.unique(a.threads >> 5):
                other = seen.setdefault(int(warp), a.site)
                if other != a.site:
                    at = int(np.flatnonzero(a.threads >> 5 == warp)[0])
                    self.watch.barrier_divergence(a.site, other, int(a.threads[at]))
                    return


def _rank(slots: Array) -> Array:
    """For each thread, how many of its block came before it."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    rank = np.empty(len(slots), np.int64)
    rank[order] = np.arange(len(slots)) - np.repeat(first, np.diff(np.r_[first, len(slots)]))
    return rank


def _parted(arrivals: list[Arrival], passes: Array) -> tuple[list[Arrival], list[Arrival]]:
    """Those who pass, and those who stay. ``passes``: per thread, in the order of the arrivals."""
    through: list[Arrival] = []
    left: list[Arrival] = []
    at = 0
    for a in arrivals:
        mask = passes[at : at + len(a.threads)]
        at += len(a.threads)
        for chosen, into in ((mask, through), (~mask, left)):
            if chosen.any():
                reduce = None if a.reduce is None else (a.reduce[0], a.reduce[1][chosen])
                into.append(replace(a, threads=a.threads[chosen], reduce=reduce))
    return through, left
