"""Whether anything can still change: what the scheduler knows of its threads, held against what they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.emulator.machine.deadlocks import Key
from tilewright.emulator.machine.standstill import QUIET_STEPS, Places, Rounds, Standstill
from tilewright.emulator.machine.warps import Stuck

if TYPE_CHECKING:
    from tilewright.emulator.machine.schedule import Scheduler

LOOK_EVERY = 64


class Lookout:
    """Attributes:

    next_look: the step at which to ask. found: what all threads do for ever, once they do.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.rounds = Rounds(scheduler.chunk.threads)
        self.next_look = QUIET_STEPS
        self.found: Standstill | None = None

    def stands_still(self) -> bool:
        """Whether all that is left to do is to look again at what nobody will change; then ``found`` tells of it."""
        scheduler, rounds = self.scheduler, self.rounds
        machine, step = scheduler.machine, scheduler.steps
        is_quiet = rounds.note(step, (machine.atomics.version, machine.mbarriers.version))
        self.next_look = step + LOOK_EVERY if is_quiet else rounds.last_effect + QUIET_STEPS
        if not is_quiet:
            return False
        places, lacking = self._places()
        if not rounds.are_over(step, places, scheduler.teams, scheduler.counts):
            return False
        if machine.land_some() or self._expire():
            scheduler.resume()
            return False
        looks = [site for site in (scheduler.blocks[b].look for b in rounds.blocks(scheduler.counts)) if site >= 0]
        if not looks or any(self._goes_on(key) for key in lacking):
            return False  # mbarriers have a word of their own
        stays = np.flatnonzero(places.goes)
        self.found = Standstill(looks[0], int(stays[0]), len(stays))
        return True

    def _places(self) -> tuple[Places, list[Key]]:
        """Where everybody is, and the places where collectives lack lanes."""
        scheduler = self.scheduler
        at = np.full(scheduler.chunk.threads, -1)
        goes = np.zeros(scheduler.chunk.threads, bool)
        lacking: list[Key] = []
        for key, threads in scheduler.ready.items():
            who = scheduler.teams[key[0]].whole.threads if threads is None else threads
            whole = scheduler.whole_warps(key)
            at[who] = key[1]
            goes[who] = True if whole is None else whole
            if whole is not None:
                lacking.append(key)
        for held in scheduler.held:
            at[held.threads] = held.key[1]
            goes[held.threads] = True
        for arrival in scheduler.machine.barriers.waiting:
            if arrival.waits:
                at[arrival.threads] = -2 - arrival.target
        for _, target, threads, _ in scheduler.machine.clusters.waiting:
            at[threads] = -2 - target
        return Places(at, goes), lacking

    def _expire(self) -> bool:
        """Let waits with a time limit end once before it is said that nothing happens; whether there are any left."""
        scheduler = self.scheduler
        waits = [held.threads for held in scheduler.held if held.expires]
        if not waits or not self.rounds.expire():
            return False
        for threads in waits:
            scheduler.machine.mbarriers.expire(threads)
        return True

    def _goes_on(self, key: Key) -> bool:
        """Whether lanes get through a collective without those of their warp that are elsewhere, or might."""
        scheduler = self.scheduler
        threads, whole = scheduler.ready[key], scheduler.whole_warps(key)
        assert threads is not None
        assert whole is not None
        if not scheduler.blocks[key[1]].can_retry:
            return True
        scheduler.ready[key] = threads[whole]
        if not whole.any():
            del scheduler.ready[key], scheduler.since[key]
        scheduler.machine.warps.is_stuck = True
        try:
            scheduler.run_from(key, threads[~whole])
        except Stuck:
            scheduler.add(*key, threads[~whole])
            return False
        return True
