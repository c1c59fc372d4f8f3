"""From threads and byte addresses of a call to blocks, warps and rows of granules; one block for all while it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tilewright.emulator.checks.clocks import IntArray
from tilewright.emulator.checks.granules import Access


class Resolver:
    """Resolves calls.

    Attributes:
        uniform: one block stands for all: no call so far differed between blocks.
    """

    def __init__(
        self, blocks: int, warps: int, smem_bytes: int, granule_bytes: int, expand: Callable[[int], None]
    ) -> None:
        self._blocks = blocks
        self._warps = warps
        self._smem_bytes = smem_bytes
        self._granule_bytes = granule_bytes
        self._expand = expand
        self.threads_per_block = warps * 32
        self.thread_count = blocks * self.threads_per_block
        self.uniform = True
        block = np.arange(blocks, dtype=np.int64)
        self._first_threads = (block * self.threads_per_block)[:, None]
        self._first_bytes = (block * smem_bytes)[:, None]
        each = np.arange(self.thread_count, dtype=np.int64)
        self._slot_of = each // self.threads_per_block
        self._actor_of = each % self.threads_per_block
        self._seen: tuple[IntArray, bool] | None = None

    @property
    def copies(self) -> int:
        """Blocks that each block with a state of its own stands for."""
        return self._blocks if self.uniform else 1

    def accesses(self, threads: IntArray, linear: IntArray, size: int) -> Iterator[Access]:
        """The call as one access, or as several that each cover a part of ``size`` bytes."""
        if not len(threads):
            return
        if self.uniform and self._blocks > 1 and not (self._same(threads) and self._same_bytes(linear)):
            self._give_up()
        if self.uniform:
            n = len(threads) // self._blocks
            actor, slot, copies, linear = threads[:n], 0, self._blocks, linear[:n]
            yield from self._rows(actor, slot, linear, size, copies)
            return
        slots = self._slot_of[threads]
        actor = self._actor_of[threads]
        homes = linear // self._smem_bytes
        near = homes == slots
        if near.all():
            yield from self._rows(actor, slots, linear, size, 1)
            return
        if near.any():
            yield from self._rows(actor[near], slots[near], linear[near], size, 1)
        for access in self._rows(actor[~near], homes[~near], linear[~near], size, 1):
            yield replace(access, remote=True)

    def _rows(
        self, actor: IntArray, slot: IntArray | int, linear: IntArray, size: int, copies: int
    ) -> Iterator[Access]:
        granule = self._granule_bytes
        piece = max(granule, min(size, 16))
        if size % piece or piece & (piece - 1) or (size >= granule and int(np.bitwise_or.reduce(linear)) & (piece - 1)):
            piece = granule  # odd sizes and addresses: granule by granule, the first and last one whole
        pieces = -(-size // piece)
        width = piece // granule
        for number in range(pieces):
            index = (linear + number * piece) // piece
            yield Access(actor, actor >> 5, slot, index, width, copies)

    def folded(self, mask: Callable[[], npt.NDArray[np.bool_]] | None) -> Callable[[], npt.NDArray[np.bool_]] | None:
        """A mask over a call's accesses as one over those that stand for them: true where it is in every block."""
        if mask is None or not self.uniform or self._blocks == 1:
            return mask
        return lambda: np.asarray(mask().reshape(self._blocks, -1).all(axis=0))

    def warps(self, threads: IntArray) -> IntArray:
        """Warps as slot * warps + warp, one entry per thread."""
        if self.uniform and self._blocks > 1:
            if self._same(threads):
                return threads[: len(threads) // self._blocks] >> 5
            self._give_up()
        return threads >> 5

    def slots(self, slots: IntArray) -> IntArray:
        """Blocks of a call that names blocks; each once."""
        if self.uniform and self._blocks > 1:
            if len(np.unique(slots)) == self._blocks:
                return np.zeros(1, np.int64)
            self._give_up()
        return slots

    def _give_up(self) -> None:
        self.uniform = False
        self._expand(self._blocks)

    def _same(self, threads: IntArray) -> bool:
        """The same threads in every block, block after block."""
        if self._seen is not None and self._seen[0] is threads:
            return self._seen[1]
        same = self._repeats(threads, self._first_threads, self.threads_per_block)
        self._seen = (threads, same)
        return same

    def _same_bytes(self, linear: IntArray) -> bool:
        return self._repeats(linear, self._first_bytes, self._smem_bytes)

    def _repeats(self, values: IntArray, first: IntArray, limit: int) -> bool:
        if len(values) % self._blocks:
            return False
        rows = values.reshape(self._blocks, -1)
        return bool(rows[0].max(initial=0) < limit and (rows - rows[0] == first).all())
