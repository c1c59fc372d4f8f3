"""Threads that wait, and what is said of those that wait for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.emulator.compiled import CompiledBlock
from tilewright.emulator.machine.chunk import Array
from tilewright.emulator.machine.machine import Machine

Key = tuple[int, int]


class Held(NamedTuple):
    """Threads that let all others run first.

    Attributes:
        site: of the wait or poll that was in vain; -1: they sleep.
        expires: the wait has a time limit (``try_wait``): if nothing else can happen, it ends.
    """

    key: Key
    threads: Array
    site: int
    expires: bool


def report_deadlock(machine: Machine, blocks: Sequence[CompiledBlock], waiting: Sequence[Held]) -> None:
    """At mbarriers, barriers of the block and of the cluster: the first thread of each, and how many."""
    watch = machine.watch
    for site in sorted({held.site for held in waiting}):
        total = sum(len(held.threads) for held in waiting if held.site == site)
        key, threads = next((held.key, held.threads) for held in waiting if held.site == site)
        thread, why = machine.mbarriers.why(site) or (int(threads[0]), "")
        watch.deadlock(site if site >= 0 else blocks[key[1]].first_site, thread, total, "mbarrier", why)
    for arrival in machine.barriers.waiting[:1]:
        total = sum(len(a.threads) for a in machine.barriers.waiting)
        watch.deadlock(arrival.site, int(arrival.threads[0]), total, f"barrier {arrival.number}")
    machine.clusters.report_deadlock()
    machine.is_deadlocked = True
