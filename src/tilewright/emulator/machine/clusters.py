"""barrier.cluster: arrival and wait apart, over all threads of a cluster."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.machine.barriers import Release
from tilewright.emulator.machine.chunk import Array, Chunk
from tilewright.emulator.machine.watch import Watch


class ClusterBarriers:
    """Attributes:

    waiting: (tag, target, threads, phase that each waits for, site).
    """

    def __init__(self, chunk: Chunk, watch: Watch) -> None:
        self.chunk = chunk
        self.watch = watch
        self.size = chunk.geometry.cluster_size
        self.clusters = -(-chunk.slots // self.size)
        self.cluster_of = chunk.slot_of // self.size
        self.arrived = np.zeros(chunk.threads, np.int64)  # phases that a thread has arrived at
        self.phase = np.zeros(self.clusters, np.int64)  # phases that are complete
        self.waiting: list[tuple[int, int, Array, int]] = []

    def arrive(self, threads: Array, site: int) -> None:
        self.arrived[threads] += 1

    def wait(self, tag: int, target: int, threads: Array, site: int) -> None:
        self.waiting.append((tag, target, threads, site))

    def release(self, alive: Array) -> list[Release]:
        if not self.waiting:
            return []
        far = np.iinfo(np.int64).max
        least = np.full(self.clusters, far)
        np.minimum.at(least, self.cluster_of[alive], self.arrived[alive])
        for cluster in np.flatnonzero((least > self.phase) & (least < far)):
            self.phase[cluster] = least[cluster]
            self._order(int(cluster))
        out, kept = [], []
        for tag, target, threads, site in self.waiting:
            done = self.arrived[threads] <= self.phase[self.cluster_of[threads]]
            if done.any():
                out.append(Release(tag, target, threads[done]))
            if not done.all():
                kept.append((tag, target, threads[~done], site))
        self.waiting = kept
        return out

    def _order(self, cluster: int) -> None:
        """What was done before the arrival is seen behind the wait."""
        if self.watch.shadow is not None:
            mine = np.flatnonzero(self.cluster_of == cluster)
            for slot in np.unique(self.chunk.slot_of[mine]):
                block = mine[self.chunk.slot_of[mine] == slot]
                self.watch.shadow.barrier(block, block)

    def report_deadlock(self) -> None:
        if self.waiting:
            _, _, threads, site = self.waiting[0]
            self.watch.deadlock(site, int(threads[0]), sum(len(t) for _, _, t, _ in self.waiting), "cluster barrier")
