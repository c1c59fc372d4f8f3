"""bar.sync and its kin: sixteen barriers per block, for all of its threads or for a counted part of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.emulator.machine.chunk import Array, Chunk
from tilewright.emulator.machine.watch import Watch


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
        self.waiting.append(arrival)

    def release(self, alive: Array) -> list[Release]:
        """Let go whatever is complete. ``alive``: bool per thread of the chunk."""
        out: list[Release] = []
        for number in {a.number for a in self.waiting}:
            out += self._release_one(number, alive)
        return out

    def _release_one(self, number: int, alive: Array) -> list[Release]:
        chunk = self.chunk
        arrivals = [a for a in self.waiting if a.number == number]
        here = np.zeros(chunk.slots, np.int64)
        for a in arrivals:
            here += np.bincount(chunk.slot_of[a.threads], minlength=chunk.slots)
        counts = [a.count for a in arrivals if a.count is not None]
        need: Any = counts[0] if counts else np.bincount(chunk.slot_of[alive], minlength=chunk.slots)
        done = (here >= need) & (here > 0)
        if not done.any():
            return []
        self._check(arrivals, done)
        self._order(arrivals, done)
        return self._leave(arrivals, done)

    def _leave(self, arrivals: list[Arrival], done: Array) -> list[Release]:
        out: list[Release] = []
        results = self._reduced(arrivals, done)
        for a in arrivals:
            self.waiting.remove(a)
            gone = done[self.chunk.slot_of[a.threads]]
            if a.waits:
                threads = a.threads[gone]
                if len(threads):
                    values = None if results is None else results[self.chunk.slot_of[threads]]
                    out.append(Release(a.tag, a.target, threads, values, a.register))
            if not gone.all():
                reduce = None if a.reduce is None else (a.reduce[0], a.reduce[1][~gone])
                self.waiting.append(replace(a, threads=a.threads[~gone], reduce=reduce))
        return out

    def _reduced(self, arrivals: list[Arrival], done: Array) -> Array | None:
        """bar.red: one result per slot."""
        votes = [(a.threads, a.reduce) for a in arrivals if a.reduce is not None]
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

    def _order(self, arrivals: list[Arrival], done: Array) -> None:
        shadow = self.watch.shadow
        if shadow is None:
            return
        slot_of = self.chunk.slot_of
        everyone = np.concatenate([a.threads for a in arrivals])
        waiters = np.concatenate([a.threads for a in arrivals if a.waits] or [np.zeros(0, np.int64)])
        shadow.barrier(everyone[done[slot_of[everyone]]], waiters[done[slot_of[waiters]]])

    def _check(self, arrivals: list[Arrival], done: Array) -> None:
        """A warp whose lanes wait at different ``.aligned`` barriers at once does what the ISA forbids."""
        sites = {a.site for a in arrivals if a.is_aligned}
        if len(sites) < 2:
            return
        seen: dict[int, int] = {}
        for a in arrivals:
            if not a.is_aligned:
                continue
            for warp in np.unique(a.threads[done[self.chunk.slot_of[a.threads]]] >> 5):
                other = seen.setdefault(int(warp), a.site)
                if other != a.site:
                    at = int(np.flatnonzero(a.threads >> 5 == warp)[0])
                    thread = int(a.threads[at])
                    self.watch.barrier_divergence(a.site, other, thread)
                    return
