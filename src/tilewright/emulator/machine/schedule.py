"""Which threads run next. A worklist of (tag, basic block) → threads; barriers and failed waits take threads out of it.

``lockstep`` runs all threads of all blocks together, lowest block first; ``warp_serial`` lets warp 0 run until it is
held up, then warp 1, …; ``random`` picks a warp at each step.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Literal

import numpy as np

from tilewright.emulator.compiled import (
    Barrier,
    BarrierCall,
    Branch,
    CompiledBlock,
    Fall,
    Leave,
    Retry,
    Switch,
)
from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.barriers import Arrival
from tilewright.emulator.machine.chunk import Active, Array
from tilewright.emulator.machine.machine import Machine

Schedule = Literal["lockstep", "warp_serial", "random"]
Key = tuple[int, int]
# After so many steps without a turn, threads go before those at a lower block: a loop that spins on memory must not
# starve the threads that it waits for.
PATIENCE = 4096
CLOCK_EVERY = 64


class Scheduler:
    def __init__(self, machine: Machine, schedule: Schedule, seed: int, deadline: float | None) -> None:
        self.machine = machine
        self.chunk = machine.chunk
        self.registers = machine.registers
        self.blocks = machine.kernel.blocks
        self.schedule = schedule
        self.random = np.random.default_rng(seed)
        self.deadline = deadline
        self.ready: dict[Key, Array | None] = {}
        self.since: dict[Key, int] = {}
        self.held: list[tuple[Key, Array]] = []  # came back from a wait that was not over
        self.alive = np.ones(self.chunk.threads, bool)
        self.counts: Counter[int] = Counter()
        self.steps = 0
        self.has_moved = True

    # -- the worklist ------------------------------------------------------------------------------------

    def add(self, tag: int, target: int, threads: Array | None) -> None:
        key = (tag, target)
        if key not in self.ready:
            self.ready[key] = threads
            self.since[key] = self.steps
            return
        before = self.ready[key]
        if before is None or threads is None:
            raise AssertionError("the same threads are in two places")
        merged = np.concatenate([before, threads])
        merged.sort(kind="stable")
        self.ready[key] = None if len(merged) == self.chunk.threads else merged

    def _begin(self) -> None:
        start = self.chunk.start()
        if start is not None:
            self.alive[:] = False
            self.alive[start] = True
        if self.schedule == "lockstep":
            self.add(0, 0, start)
            return
        for warp in range(self.chunk.warps):
            self.add(warp, 0, np.flatnonzero((self.chunk.warp_of == warp) & self.alive))

    def _next(self) -> Key:
        ready = self.ready
        if len(ready) == 1:
            return next(iter(ready))
        if self.steps % 64 == 0:
            oldest = min(ready, key=lambda key: self.since[key])
            if self.steps - self.since[oldest] > PATIENCE:
                return oldest
        if self.schedule == "random":
            tags = sorted({tag for tag, _ in ready})
            tag = tags[int(self.random.integers(len(tags)))]
            return min(key for key in ready if key[0] == tag)
        return min(ready)

    def _pick(self) -> tuple[Key, Array | None]:
        """The next threads; those that would enter a collective without the rest of their warp let the others go first."""
        passed: list[Key] = []
        while True:
            candidates = [key for key in self.ready if key not in passed]
            if not candidates:
                key = min(passed)
                break
            key = self._next() if not passed else min(candidates)
            if len(self.ready) == 1 or key in passed or not self._waits_for_lanes(key):
                break
            passed.append(key)
        del self.since[key]
        return key, self.ready.pop(key)

    def _waits_for_lanes(self, key: Key) -> bool:
        if not self.blocks[key[1]].has_collective:
            return False
        threads = self.ready[key]
        if threads is None:
            return False
        warps = np.bincount(threads >> 5, minlength=self.chunk.threads >> 5)
        present = np.bincount(np.flatnonzero(self.alive) >> 5, minlength=len(warps))
        return bool(((warps > 0) & (warps < present)).any())

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end of every thread. Raises Fault for what cannot go on; a deadlock is reported and ends the run."""
        self._begin()
        while self.ready or self.held or self.machine.barriers.waiting or self.machine.clusters.waiting:
            if not self.ready and not self._wake():
                self._report_deadlock()
                return
            key, threads = self._pick()
            self._run_from(key, threads)

    def _run_from(self, key: Key, threads: Array | None) -> None:
        """Straight on through blocks while nobody else has an earlier claim."""
        tag, number = key
        active = self.chunk.full if threads is None else Active(self.chunk, threads)
        while True:
            self._tick(number, active)
            block = self.blocks[number]
            results, extra = block.function(self.machine, active, *self.registers.read(active, block.live_in))
            self.registers.write(active, block.live_out, results)
            following = self._after(block, tag, number, active, extra)
            if following is None:
                return
            if self.ready and ((tag, following) in self.ready or self._has_earlier(tag, following)):
                self.add(tag, following, active.index)
                return
            number = following

    def _has_earlier(self, tag: int, number: int) -> bool:
        if self.schedule == "random":
            return True
        return min(self.ready) < (tag, number) or self.steps % PATIENCE == 0

    def _tick(self, number: int, active: Active) -> None:
        self.steps += 1
        self.counts[number] += active.count
        if self.steps % CLOCK_EVERY == 0 and self.deadline is not None and time.monotonic() > self.deadline:
            raise Fault("too_long", "the kernel had not ended when its time was over", self.blocks[number].first_site)

    def _after(self, block: CompiledBlock, tag: int, number: int, active: Active, extra: Any) -> int | None:
        """Where these threads go on together; None where they part, wait or end."""
        end = block.end
        if not isinstance(end, Retry):
            self.has_moved = True
        if isinstance(end, Fall):
            if end.yields and (self.ready or self.held):
                self.held.append(((tag, end.target), active.threads))
                return None
            return end.target
        if isinstance(end, Branch):
            return self._part(tag, active, extra, end.taken, end.other)
        if isinstance(end, Leave):
            return self._leave(end, tag, active, extra)
        if isinstance(end, Barrier):
            return self._at_barrier(end, tag, active, extra)
        if isinstance(end, Retry):
            return self._retry(end, tag, number, active, extra)
        return self._switch(end, tag, active, extra)

    def _part(self, tag: int, active: Active, predicate: Any, taken: int, other: int) -> int | None:
        if not predicate.ndim:
            return taken if predicate else other
        if predicate.all():
            return taken
        if not predicate.any():
            return other
        threads = active.threads
        self.add(tag, taken, threads[predicate])
        self.add(tag, other, threads[~predicate])
        return None

    def _switch(self, end: Switch, tag: int, active: Active, index: Any) -> int | None:
        index = active.spread(index)
        for value in np.unique(index):
            if not 0 <= value < len(end.targets):
                raise Fault("bad_branch", f"brx.idx with index {int(value)} of {len(end.targets)} targets")
            self.add(tag, end.targets[int(value)], active.threads[index == value])
        return None

    def _leave(self, end: Leave, tag: int, active: Active, predicate: Any) -> int | None:
        threads = active.threads
        if end.other is not None:
            predicate = active.spread(predicate)
            if not predicate.any():
                return end.other
            if not predicate.all():
                self.add(tag, end.other, threads[~predicate])
            threads = threads[predicate]
        self.alive[threads] = False
        if self.machine.barriers.waiting or self.machine.clusters.waiting:
            self._release()
        return None

    def _retry(self, end: Retry, tag: int, number: int, active: Active, ready: Any) -> int | None:
        ready = active.spread(ready)
        if ready.all():
            self.has_moved = True
            return end.target
        threads = active.threads
        self.held.append(((tag, number), threads[~ready]))
        if ready.any():
            self.has_moved = True
            self.add(tag, end.target, threads[ready])
        return None

    # -- waiting -----------------------------------------------------------------------------------------

    def _at_barrier(self, end: Barrier, tag: int, active: Active, call: BarrierCall) -> int | None:
        if call.kind == "cluster":
            return self._at_cluster_barrier(end, tag, active, call)
        is_whole = call.guard is None and call.waits and call.reduce is None and active.is_full
        if is_whole and call.count is None and not self.machine.barriers.waiting and self.alive.all():
            if self.machine.watch.shadow is not None:
                self.machine.watch.shadow.barrier_all()
            return end.target
        threads = active.threads
        reduce = call.reduce
        number, count = call.number, call.count
        if call.guard is not None:
            guard = active.spread(call.guard)
            if not guard.all():
                self.add(tag, end.target, threads[~guard])
            threads = threads[guard]
            number, count = _cut(number, guard), _cut(count, guard)
            reduce = None if reduce is None else (reduce[0], active.spread(reduce[1])[guard])
        for value in np.unique(number):
            mine = threads if not getattr(number, "ndim", 0) else threads[number == value]
            votes = None if reduce is None else (reduce[0], active.spread(reduce[1])[np.isin(threads, mine)])
            arrival = Arrival(
                tag, end.target, mine, int(value), _one(count), call.waits, end.site, call.is_aligned, votes
            )
            self.machine.barriers.arrive(arrival)
            if not call.waits:
                self.add(tag, end.target, mine)
        self._release(call.result_register)
        return None

    def _at_cluster_barrier(self, end: Barrier, tag: int, active: Active, call: BarrierCall) -> int | None:
        clusters = self.machine.clusters
        if call.arrives:
            clusters.arrive(active.threads, end.site)
        if not call.waits:
            self._release()
            return end.target
        clusters.wait(tag, end.target, active.threads, end.site)
        self._release()
        return None

    def _release(self, result_register: int = -1) -> None:
        for release in self.machine.barriers.release(self.alive):
            self._go_on(release.tag, release.target, release.threads)
            if release.result is not None and result_register >= 0:
                part = Active(self.chunk, release.threads)
                self.registers.write(part, (result_register,), (release.result,))
        for release in self.machine.clusters.release(self.alive):
            self._go_on(release.tag, release.target, release.threads)

    def _go_on(self, tag: int, target: int, threads: Array) -> None:
        threads.sort()
        self.add(tag, target, None if len(threads) == self.chunk.threads else threads)

    def _wake(self) -> bool:
        """Let held threads look again, if anything has happened since: a step of others, or bytes that landed."""
        if not self.held or not (self.has_moved or self.machine.land_some()):
            return False
        self.has_moved = False
        held, self.held = self.held, []
        for (tag, number), threads in held:
            self.add(tag, number, None if len(threads) == self.chunk.threads else threads)
        return True

    def _report_deadlock(self) -> None:
        watch = self.machine.watch
        if self.held:
            (_, number), threads = self.held[0]
            end = self.blocks[number].end
            site = end.site if isinstance(end, Retry) else self.blocks[number].first_site
            total = sum(len(threads) for _, threads in self.held)
            watch.deadlock(site, int(threads[0]), total, "mbarrier")
        for arrival in self.machine.barriers.waiting[:1]:
            total = sum(len(a.threads) for a in self.machine.barriers.waiting)
            watch.deadlock(arrival.site, int(arrival.threads[0]), total, f"barrier {arrival.number}")
        self.machine.clusters.report_deadlock()
        self.machine.is_deadlocked = True


def _cut(value: Any, mask: Array) -> Any:
    return value[mask] if getattr(value, "ndim", 0) else value


def _one(value: Any) -> int | None:
    return None if value is None else int(np.asarray(value).flat[0])
