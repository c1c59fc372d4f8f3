"""State of every granule of shared memory: who wrote it last, who has read it since, what is in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Shadow = npt.NDArray[np.int32] | npt.NDArray[np.int16]

# A write event is a tick with one of these flags, all above any tick, so that "everything is settled" is one maximum.
UNWRITTEN = 1 << 27
ASYNCHRONOUS = 1 << 28  # landed by another agent than a warp: a barrier alone does not order it
PENDING = 1 << 29  # a copy that was issued at this tick and has not landed
TICK = UNWRITTEN - 1

# A read event is ``tick << 5 | lane``; reads that hardware has not finished are above any of them.
OUTSTANDING = 1 << 30
LANE_BITS = 5
ANY_LANE = 31


@dataclass(frozen=True, slots=True)
class Access:
    """One call, resolved to rows of ``width`` granules.

    Attributes:
        actor: linear thread index in its block, int64[n]. agent: its warp.
        slot: block of the shared memory, int64[n], or 0 where one block stands for all of them.
        index: row of each access, int64[n]. width: granules per row.
        copies: blocks that each access stands for.
        remote: of another block of the cluster; ``slot`` is that block.
    """

    actor: IntArray
    agent: IntArray
    slot: IntArray | int
    index: IntArray
    width: int
    copies: int
    remote: bool = False

    def pick(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Access:
        slot = self.slot if isinstance(self.slot, int) else self.slot[chosen]
        return Access(
            self.actor[chosen], self.agent[chosen], slot, self.index[chosen], self.width, self.copies, self.remote
        )

    def expand(self, slots: int, granules_per_slot: int) -> Access:
        """From one block that stands for all to ``slots`` blocks."""
        each = np.arange(slots, dtype=np.int64)
        n = len(self.index)
        index = (self.index + each[:, None] * (granules_per_slot // self.width)).reshape(-1)
        return Access(
            np.tile(self.actor, slots), np.tile(self.agent, slots), np.repeat(each, n), index, self.width, copies=1
        )


class Granules:
    """Shadow of ``slots`` blocks.

    Attributes:
        write_event: int32[granules]. write_actor: int16[granules], thread in the block, or 32 * agent.
        read_last: int32[granules], the latest read by anybody. read_event: int32[warps, granules].
        atomic_event: as ``read_event``, for atomics; None until there is one.
    """

    def __init__(self, slots: int, warps: int, granules_per_slot: int) -> None:
        count = slots * granules_per_slot
        self.granules_per_slot = granules_per_slot
        self.warps = warps
        self.write_event = np.full(count, UNWRITTEN, np.int32)
        self.write_actor = np.zeros(count, np.int16)
        self.read_last = np.zeros(count, np.int32)
        self.read_event = np.zeros((warps, count), np.int32)
        self.atomic_event: Int32Array | None = None

    def expand(self, slots: int) -> None:
        """From one block that stands for all to ``slots`` blocks."""
        self.write_event = np.tile(self.write_event, slots)
        self.write_actor = np.tile(self.write_actor, slots)
        self.read_last = np.tile(self.read_last, slots)
        self.read_event = np.tile(self.read_event, (1, slots))
        if self.atomic_event is not None:
            self.atomic_event = np.tile(self.atomic_event, (1, slots))

    def mark_written(self, access: Access, event: int, actor: IntArray | int) -> None:
        width = access.width
        _put(self.write_event, access.index, width, event)
        _put(self.write_actor, access.index, width, actor)

    def mark_filled(self, access: Access) -> None:
        """Written, by an access that is recorded elsewhere: a blank granule is one that everybody may read."""
        before = take(self.write_event, access.index, access.width)
        _put(self.write_event, access.index, access.width, np.where(before == UNWRITTEN, 0, before))

    def mark_read(self, access: Access, event: IntArray, outstanding: bool = False) -> None:
        """``event``: packed tick and lane, int64[n]; ``outstanding``: keep marks of unfinished reads."""
        _put(self.read_last, access.index, access.width, event)
        if outstanding:
            before = self.own_plane(self.read_event, access)
            self.put_plane(self.read_event, access, np.where(before >= OUTSTANDING, before, event[:, None]))
        else:
            self.put_plane(self.read_event, access, event)

    def finish_read(self, access: Access, event: IntArray, mark: int) -> None:
        """Where ``mark`` still stands, the read is finished at ``event``; a later mark stays."""
        _put(self.read_last, access.index, access.width, event)
        before = self.own_plane(self.read_event, access)
        self.put_plane(self.read_event, access, np.where(before == mark, event[:, None], before))

    def mark_atomic(self, access: Access, event: IntArray) -> None:
        if self.atomic_event is None:
            self.atomic_event = np.zeros_like(self.read_event)
        self.put_plane(self.atomic_event, access, event)

    def put_plane(self, planes: Int32Array, access: Access, event: npt.NDArray[np.integer[Any]] | int) -> None:
        """Set the entries of each access in the plane of its own warp."""
        rows = planes.shape[1] // access.width
        _put(planes.reshape(-1), access.agent * rows + access.index, access.width, event)

    def own_plane(self, planes: Int32Array, access: Access) -> Int32Array:
        """Entries of each access in the plane of its own warp, int32[n, width]."""
        rows = planes.shape[1] // access.width
        return take(planes.reshape(-1), access.agent * rows + access.index, access.width)


def take(flat: npt.NDArray[np.int32], index: IntArray, width: int) -> npt.NDArray[np.int32]:
    """Rows of ``width`` entries: int32[n, width]."""
    return flat.reshape(-1, width).take(index, axis=0)


def _put(flat: Shadow, index: IntArray, width: int, value: npt.NDArray[np.integer[Any]] | int) -> None:
    """Set rows of ``width`` entries: to one value, one per row or one per entry; the last of equal rows wins."""
    each = np.asarray(value)
    if width == 1:
        flat[index] = each[:, 0] if each.ndim == 2 else each
        return
    rows = np.empty((len(index) if each.ndim else 1, width), flat.dtype)
    rows[...] = each[:, None] if each.ndim == 1 else each
    # Whole rows as one item: NumPy copies items much faster than it iterates over rows.
    row_bytes = width * flat.itemsize
    item = _ITEMS.get(row_bytes) or f"V{row_bytes}"
    flat.view(item)[index] = rows.view(item)[:, 0]


_ITEMS = {4: "u4", 8: "u8", 16: "c16"}
