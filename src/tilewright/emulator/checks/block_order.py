"""Thread blocks that write one element of global memory, or of which one writes what another reads.

Only for launches in which nothing can order blocks (``can_order_blocks``): then any two of them may run one after the
other in either order, and what depends on it is a race, whatever the values were this time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Roots of opcodes through which a block may learn what another has done.
_ORDERING = frozenset({"atom", "red", "membar", "fence", "griddepcontrol", "multimem"})
_STRONG = (".volatile", ".relaxed", ".acquire", ".release", ".mmio")
_MANY = 0xFFFF
_PERIOD = _MANY - 1


def can_order_blocks(names: Iterable[str]) -> bool:
    """Whether a kernel of these instructions (``ld.volatile.global.f32``) might wait for other blocks.

    A fence of the asynchronous proxy does not order blocks.
    """
    return any(_orders(name) for name in names)


def _orders(name: str) -> bool:
    if name.startswith("fence.proxy"):
        return False
    is_strong = any(word in name for word in _STRONG) and ".shared" not in name
    return is_strong or name.split(".")[0] in _ORDERING or name.startswith("cp.reduce")


class BlockOrder:
    """Which block wrote each element of one buffer last, and which read it.

    Args:
        size_bytes: of the buffer. item_bytes: of an element; narrower accesses are not looked at.

    ``blocks``, ``offsets``: int64[n], number of the block and the first byte of an access, in bounds and aligned.
    """

    def __init__(self, size_bytes: int, item_bytes: int) -> None:
        self._item = item_bytes
        count = -(-size_bytes // item_bytes)
        self._writer = np.zeros(count, np.uint16)
        self._reader = np.zeros(count, np.uint16)

    def read(self, blocks: IntArray, offsets: IntArray, size: int) -> BoolArray | None:
        """Which accesses read what another block has written; None: none of them."""
        if size < self._item:
            return None
        cells, me = self._cells(offsets, size), _marks(blocks)
        before = self._reader[cells]
        self._reader[cells] = me
        others = ((before != 0) & (before != me)) | (self._reader[cells] != me)
        if others.any():
            self._reader[cells[others]] = _MANY
        writer = self._writer[cells]
        strange = (writer != 0) & (writer != me)
        return strange.any(axis=1) if strange.any() else None

    def write(
        self, blocks: IntArray, offsets: IntArray, old: npt.NDArray[Any], new: npt.NDArray[Any]
    ) -> tuple[BoolArray, BoolArray] | None:
        """Which stores change what another block has written, and what another has read; None: none of them.

        Args:
            old, new: uint8[n, size], the bytes before and after.
        """
        size = new.shape[1]
        if size < self._item:
            return None
        cells, me = self._cells(offsets, size), _marks(blocks)
        before, reader = self._writer[cells], self._reader[cells]
        self._writer[cells] = me
        twice = self._writer[cells] != me  # by two blocks in this very call
        written = (before != 0) & (before != me)
        read = (reader != 0) & (reader != me)
        if not (twice.any() or written.any() or read.any()):
            return None
        changes = (old != new).any(axis=1)
        at_once = _disagree(offsets, new) & twice.any(axis=1) if twice.any() else np.zeros(len(offsets), bool)
        return (written.any(axis=1) & changes) | at_once, read.any(axis=1) & changes

    def _cells(self, offsets: IntArray, size: int) -> IntArray:
        return offsets[:, None] // self._item + np.arange(size // self._item)


def _marks(blocks: IntArray) -> npt.NDArray[np.uint16]:
    return (blocks % _PERIOD + 1).astype(np.uint16)[:, None]


def _disagree(offsets: IntArray, rows: npt.NDArray[Any]) -> BoolArray:
    """Stores to a place to which another of them stores other bytes."""
    order = np.argsort(offsets, kind="stable")
    where, what = offsets[order], rows[order]
    differs = (where[1:] == where[:-1]) & (what[1:] != what[:-1]).any(axis=1)
    out = np.zeros(len(offsets), bool)
    out[order[1:]] |= differs
    out[order[:-1]] |= differs
    return out
