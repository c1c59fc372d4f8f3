"""Which threads run next. A worklist of (tag, basic block) → threads; barriers and failed waits take threads out of it.

``lockstep`` runs all threads of all blocks together, lowest block first; ``warp_serial`` lets warp 0 run until it is
held up, then warp 1, …; ``random`` picks a warp at each step.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import Any, Literal

import numpy as np

from tilewright.emulator.compiled import (
    Barrier,
    BarrierCall,
    Branch,
    CompiledBlock,
    Fall,
    Leave,
    Poll,
    Retry,
    Switch,
)
from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.barriers import Arrival
from tilewright.emulator.machine.chunk import WARP, Active, Array
from tilewright.emulator.machine.deadlocks import Held, Key, report_deadlock
from tilewright.emulator.machine.lookout import Lookout
from tilewright.emulator.machine.machine import Machine
from tilewright.emulator.machine.registers import Team
from tilewright.emulator.machine.warpgroups import WARPS
from tilewright.emulator.machine.warps import Stuck

Schedule = Literal["lockstep", "warp_serial", "random"]
# After so many steps without a turn, threads go before those at a lower block: a loop that spins on memory must not
# starve the threads that it waits for.
PATIENCE = 512
CLOCK_EVERY = 64
# So many rounds in which all threads only looked again, and found nothing changed, are a deadlock; more of them where
# some threads sleep, as those may watch memory.
IDLE_ROUNDS = 64
SLEEPY_ROUNDS = 20_000


class Scheduler:
    def __init__(self, machine: Machine, schedule: Schedule, seed: int, deadline: float | None) -> None:
        self.machine = machine
        self.chunk = machine.chunk
        self.teams: dict[int, Team] = {}
        self.blocks = machine.kernel.blocks
        self.schedule = schedule
        self.random = np.random.default_rng(seed)
        self.deadline = deadline
        self.ready: dict[Key, Array | None] = {}
        self.since: dict[Key, int] = {}
        self.held: list[Held] = []
        self.alive = np.ones(self.chunk.threads, bool)
        machine.warps.alive = self.alive
        self.counts: Counter[int] = Counter()
        self.steps = 0
        self.has_moved = True  # since held threads last looked: a barrier opened, or a thread ended
        self.seen_version = -1
        self.idle_rounds = 0
        self.last_look = 0
        self.lookout = Lookout(self)

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
        self.ready[key] = merged

    def _begin(self) -> None:
        start = self.chunk.start()
        if start is not None:
            self.alive[:] = False
            self.alive[start] = True
        initial = self.machine.kernel.initial
        if self.schedule == "lockstep":
            self.teams[0] = Team(self.chunk, start, initial)
            self.add(0, 0, start)
            return
        # Warps of a warpgroup keep together where they multiply together.
        unit = WARPS if any(block.has_warpgroup for block in self.blocks) else 1
        for tag in range(-(-self.chunk.warps // unit)):
            members = np.flatnonzero((self.chunk.warp_of // unit == tag) & self.alive)
            self.teams[tag] = Team(self.chunk, members, initial)
            self.add(tag, 0, members)

    def _next(self, among: Collection[Key]) -> Key:
        if len(among) == 1:
            return next(iter(among))
        if self.steps % CLOCK_EVERY == 0:
            oldest = min(among, key=lambda key: self.since[key])
            if self.steps - self.since[oldest] > PATIENCE:
                return oldest
        if self.schedule == "random":
            tags = sorted({tag for tag, _ in among})
            tag = tags[int(self.random.integers(len(tags)))]
            return min(key for key in among if key[0] == tag)
        return min(among)

    def _pick(self) -> tuple[Key, Array | None]:
        """The next threads. Warps that would enter a collective without all of their lanes let the others go first."""
        passed: list[Key] = []
        while True:
            candidates = [key for key in self.ready if key not in passed]
            if not candidates and self._wake():
                passed = []
                continue
            # Lanes that a collective lacks may wait for ever: then that is what is wrong.
            self.machine.warps.is_stuck = not candidates and bool(self.held)
            key = self._next(candidates) if candidates else min(passed)
            threads = self.ready[key]
            whole = None if key in passed else self.whole_warps(key)
            if whole is None:
                break
            if whole.any():
                assert threads is not None
                self.ready[key] = threads[~whole]
                return key, threads[whole]
            passed.append(key)
        del self.since[key]
        return key, self.ready.pop(key)

    def whole_warps(self, key: Key) -> Array | None:
        """Before a collective: which threads have all living lanes of their warp with them; None where all have."""
        threads, block = self.ready[key], self.blocks[key[1]]
        if threads is None or not block.has_collective:
            return None
        if block.has_warpgroup:
            groups = self.chunk.slot_of * -(-self.chunk.warps // WARPS) + self.chunk.warp_of // WARPS
            here, alive = np.bincount(groups[threads]), np.bincount(groups[self.alive])
            whole = (here == alive[: len(here)])[groups[threads]]
            return None if whole.all() else whole
        warps = np.bincount(threads >> 5, minlength=self.chunk.threads >> 5)
        present = np.count_nonzero(self.alive.reshape(-1, WARP), axis=1)
        whole = (warps == present)[threads >> 5]
        return None if whole.all() else whole

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end of every thread. Raises Fault for what cannot go on; a deadlock is reported and ends the run.

        So does a standstill, and is left to the caller, who knows whether other blocks are yet to come.
        """
        self._begin()
        while self.ready or self.held or self.machine.barriers.waiting or self.machine.clusters.waiting:
            if not self.ready and not self._wake():
                report_deadlock(self.machine, self.blocks, self.held)
                return
            if self.held and self.steps - self.last_look > PATIENCE:
                # Somebody spins on memory, perhaps on what a held thread is to write.
                self.machine.land_some()
                self.resume()
            if self.steps >= self.lookout.next_look and self.lookout.stands_still():
                return
            key, threads = self._pick()
            try:
                self.run_from(key, threads)
            except Stuck:
                report_deadlock(self.machine, self.blocks, self.held)
                return

    def run_from(self, key: Key, threads: Array | None) -> None:
        """Straight on through blocks while nobody else has an earlier claim."""
        tag, number = key
        team = self.teams[tag]
        active, registers = team.active(threads), team.registers
        while True:
            self._tick(number, active)
            block = self.blocks[number]
            if not block.is_quiet:
                self.lookout.rounds.last_effect = self.steps
            results, extra = block.function(self.machine, active, *registers.read(active, block.live_in))
            registers.write(active, block.live_out, results)
            following = self._after(block, tag, number, active, extra)
            if following is None:
                return
            wants_others = self.blocks[following].has_collective and (self.ready or self.held)
            if wants_others or self.steps >= self.lookout.next_look:
                self.add(tag, following, active.index)
                return
            if (tag, following) in self.ready or (self.ready and self._has_earlier(tag, following)):
                self.add(tag, following, active.index)
                return
            number = following

    def _has_earlier(self, tag: int, number: int) -> bool:
        if self.schedule == "random":
            return True
        return min(self.ready) < (tag, number) or self.steps % CLOCK_EVERY == 0

    def _tick(self, number: int, active: Active) -> None:
        self.steps += 1
        self.counts[number] += active.count
        if self.lookout.rounds.is_open:
            self.lookout.rounds.ran(active)
        if self.steps % CLOCK_EVERY == 0 and self.deadline is not None and time.monotonic() > self.deadline:
            raise Fault("too_long", "the kernel had not ended when its time was over", self.blocks[number].first_site)

    def _after(self, block: CompiledBlock, tag: int, number: int, active: Active, extra: Any) -> int | None:
        """Where these threads go on together; None where they part, wait or end."""
        end = block.end
        if isinstance(end, Fall):
            if end.yields and (self.ready or self.held):
                self.held.append(Held((tag, end.target), active.threads, -1, False))
                return None
            return end.target
        if isinstance(end, Branch):
            return self._part(tag, active, extra, end.taken, end.other)
        if isinstance(end, Leave):
            return self._leave(end, tag, active, extra)
        if isinstance(end, Barrier):
            return self._at_barrier(end, tag, active, extra)
        if isinstance(end, Retry):
            return self._hold(tag, number, end.target, active, extra, end.site, expires=True)
        if isinstance(end, Poll):
            return self._hold(tag, end.target, end.target, active, extra, end.site, expires=False)
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
                raise Fault("bad_branch", f"brx.idx with index {int(value)} of {len(end.targets)} targets", end.site)
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
        self.has_moved = True
        if self.machine.barriers.waiting or self.machine.clusters.waiting:
            self._release()
        return None

    def _hold(
        self, tag: int, back: int, target: int, active: Active, ready: Any, site: int, expires: bool
    ) -> int | None:
        """Those who are not ready go on at ``back``, later."""
        ready = active.spread(ready)
        if ready.all():
            return target
        threads = active.threads
        self.held.append(Held((tag, back), threads[~ready], site, expires))
        if ready.any():
            self.add(tag, target, threads[ready])
        return None

    # -- waiting -----------------------------------------------------------------------------------------

    def _at_barrier(self, end: Barrier, tag: int, active: Active, call: BarrierCall) -> int | None:
        if call.kind == "cluster":
            return self._at_cluster_barrier(end, tag, active, call)
        is_plain = call.guard is None and call.waits and call.reduce is None and call.count is None
        if is_plain and not self.machine.barriers.waiting and active.count == np.count_nonzero(self.alive):
            self.machine.watch.barrier_all()
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
                tag,
                end.target,
                mine,
                int(value),
                _one(count),
                call.waits,
                end.site,
                call.is_aligned,
                votes,
                call.result_register,
            )
            self.machine.barriers.arrive(arrival)
            if not call.waits:
                self.add(tag, end.target, mine)
        self._release()
        return None

    def _at_cluster_barrier(self, end: Barrier, tag: int, active: Active, call: BarrierCall) -> int | None:
        clusters, threads = self.machine.clusters, active.threads
        if call.guard is not None:
            guard = active.spread(call.guard)
            if call.waits and not guard.all():
                self.add(tag, end.target, threads[~guard])
            threads = threads[guard]
        if call.arrives:
            clusters.arrive(threads, end.site)
        if not call.waits:
            self._release()
            return end.target
        if len(threads):
            clusters.wait(tag, end.target, threads, end.site)
        self._release()
        return None

    def _release(self) -> None:
        for release in self.machine.barriers.release(self.alive):
            self._go_on(release.tag, release.target, release.threads)
            if release.result is not None and release.register >= 0:
                team = self.teams[release.tag]
                team.registers.write(team.active(release.threads), (release.register,), (release.result,))
        for release in self.machine.clusters.release(self.alive):
            self._go_on(release.tag, release.target, release.threads)

    def _go_on(self, tag: int, target: int, threads: Array) -> None:
        self.has_moved = True
        threads.sort()
        self.add(tag, target, threads)

    def _wake(self) -> bool:
        """Let held threads look again, where there may be something new to see; False: there never will be."""
        if not self.held:
            return False
        is_new = self.has_moved or self.machine.mbarriers.version != self.seen_version or self.machine.land_some()
        if is_new:
            self.idle_rounds = 0
        else:
            self.idle_rounds += 1
            sleepy = any(held.site < 0 for held in self.held)
            if self.idle_rounds > (SLEEPY_ROUNDS if sleepy else IDLE_ROUNDS):
                return False
            for held in self.held:
                if held.expires:
                    self.machine.mbarriers.expire(held.threads)
        self.resume()
        return True

    def resume(self) -> None:
        self.has_moved = False
        self.seen_version = self.machine.mbarriers.version
        self.last_look = self.steps
        again, self.held = self.held, []
        for (tag, number), threads, _, _ in again:
            self.add(tag, number, threads)


def _cut(value: Any, mask: Array) -> Any:
    return value[mask] if getattr(value, "ndim", 0) else value


def _one(value: Any) -> int | None:
    return None if value is None else int(np.asarray(value).flat[0])
