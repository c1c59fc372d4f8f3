"""Thread block clusters: their barrier, with arrival and wait apart, and addresses in each other's shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import RANK_BITS
from tilewright.emulator.machine.barriers import Release
from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.watch import Watch

_RANK = 0x1F << RANK_BITS


class Clusters:
    """Attributes:

    waiting: (tag, target, threads, site).
    arrived, waited: phases that each thread has arrived at and waited for. site: of its last arrival.
    seen: phases of the cluster's barrier that a thread of each block has waited for.
    """

    def __init__(self, chunk: Chunk, watch: Watch) -> None:
        self.chunk = chunk
        self.watch = watch
        self.size = chunk.geometry.cluster_size
        self.clusters = -(-chunk.slots // self.size)
        self.cluster_of = chunk.slot_of // self.size
        self.arrived = np.zeros(chunk.threads, np.int64)
        self.waited = np.zeros(chunk.threads, np.int64)
        self.site = np.full(chunk.threads, -1)
        self.phase = np.zeros(self.clusters, np.int64)  # phases that are complete
        self.seen = np.zeros(chunk.slots, np.int64)
        self.waiting: list[tuple[int, int, Array, int]] = []

    def arrive(self, threads: Array, site: int) -> None:
        """PTX ISA, "barrier.cluster": a thread arrives once before the barrier completes, which its wait tells it."""
        self._check(threads, self.arrived[threads] > self.waited[threads], site, "arrives again")
        self.arrived[threads] += 1
        self.site[threads] = site

    def wait(self, tag: int, target: int, threads: Array, site: int) -> None:
        self._check(threads, self.arrived[threads] == self.waited[threads], site, "waits")
        self.waiting.append((tag, target, threads, site))

    def _check(self, threads: Array, bad: Array, site: int, what: str) -> None:
        if bad.any() and self.watch.shadow is not None:
            at = int(np.argmax(bad))
            earlier = int(self.site[threads[at]]) if what == "arrives again" else -1
            who = Active(self.chunk, threads)
            self.watch.report("cluster_barrier_misuse", site, who, at, what, 0, 0, other_site=earlier)

    def release(self, alive: Array) -> list[Release]:
        if not self.waiting:
            return []
        far = np.iinfo(np.int64).max
        least = np.full(self.clusters, far)
        np.minimum.at(least, self.cluster_of[alive], self.arrived[alive])
        for cluster in np.flatnonzero((least > self.phase) & (least < far)):
            self.phase[cluster] = least[cluster]
        out, kept = [], []
        for tag, target, threads, site in self.waiting:
            done = self.arrived[threads] <= self.phase[self.cluster_of[threads]]
            if done.any():
                self._pass(threads[done])
                out.append(Release(tag, target, threads[done]))
            if not done.all():
                kept.append((tag, target, threads[~done], site))
        self.waiting = kept
        return out

    def _pass(self, threads: Array) -> None:
        """These have waited: they see what their blocks did before the arrival, and know that all blocks have begun."""
        slots = self.chunk.slot_of[threads]
        self.waited[threads] = self.arrived[threads]
        np.maximum.at(self.seen, slots, self.arrived[threads])
        if self.watch.presence is not None:
            self.watch.presence.learn(threads)
        for slot in np.unique(slots):
            block = slice(slot * self.chunk.per_block, (slot + 1) * self.chunk.per_block)
            self.watch.barrier(self.chunk.all_threads[block], threads[slots == slot])

    def report_deadlock(self) -> None:
        if self.waiting:
            _, _, threads, site = self.waiting[0]
            self.watch.deadlock(site, int(threads[0]), sum(len(t) for _, _, t, _ in self.waiting), "cluster barrier")

    # -- addresses ---------------------------------------------------------------------------------------

    def map_address(self, active: Active, address: Any, rank: Any, site: int) -> Any:
        """``mapa``: the same place in the block of that rank. Raises Fault where the cluster has no such block."""
        strange = (rank < 0) | (rank >= self.size)
        if np.any(strange):
            have = int(np.asarray(rank).flat[int(np.argmax(strange))])
            raise Fault("bad_rank", f"block {have} of a cluster of {self.size}", site)
        if self.size == 1:
            return address
        kind = address.dtype.type
        return (address & ~kind(_RANK)) | ((rank + 1).astype(kind) << kind(RANK_BITS))

    def rank_of(self, active: Active, address: Any) -> Any:
        """``getctarank``."""
        found = ((address >> RANK_BITS) & 0x1F).astype(np.int32)
        own = active.special("%cluster_ctarank")
        return np.where(found == 0, own, found - np.int32(1))
