"""The thread blocks that run at once, and sets of their threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WARP = 32
# Special registers that a chunk has values for, and their PTX types.
SPECIALS: Mapping[str, str] = {
    **{
        f"%{name}.{axis}": "u32"
        for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
        for axis in "xyz"
    },
    **{
        f"%{name}": "u32"
        for name in ("laneid", "warpid", "nwarpid", "smid", "nsmid", "dynamic_smem_size", "total_smem_size",
                     "aggr_smem_size", "cluster_ctarank", "cluster_nctarank", "lanemask_eq", "lanemask_lt",
                     "lanemask_le", "lanemask_gt", "lanemask_ge")
    },
    "%gridid": "u64",
    "%is_explicit_cluster": "pred",
}  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """A launch.

    Attributes:
        grid, block, cluster: blocks, threads, blocks per cluster, per dimension.
        smem_bytes: shared bytes per block as the emulator lays them out, red zones included.
        dynamic_bytes: what the launch asked for on top of the static arrays.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int
    dynamic_bytes: int

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def cluster_size(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]


class Chunk:
    """Blocks that run together, one *slot* each.

    A thread's number is ``slot * warps * 32 + linear tid``: blocks are padded to whole warps, and the padding never
    runs. Blocks of a cluster have neighbouring slots.
    """

    def __init__(self, geometry: Geometry, block_ids: Array) -> None:
        self.geometry = geometry
        self.block_ids = block_ids  # linear block index of each slot
        self.slots = len(block_ids)
        self.warps = geometry.warps
        self.per_block = self.warps * WARP
        self.threads = self.slots * self.per_block
        self.all_threads = np.arange(self.threads)
        self.slot_of = self.all_threads // self.per_block
        self.tid = self.all_threads % self.per_block
        self.warp_of = self.tid >> 5
        self.lane_of = self.tid & 31
        self.shared_base = self.slot_of * geometry.smem_bytes
        self.is_padded = self.per_block != geometry.threads
        self.full = Active(self, None)

    def start(self) -> Array | None:
        """Indices of the threads that exist; None for all."""
        return np.flatnonzero(self.tid < self.geometry.threads) if self.is_padded else None

    @cached_property
    def specials(self) -> Mapping[str, Any]:
        """Special registers: a NumPy scalar, or an array over all threads."""
        g = self.geometry
        bx, by, bz = g.block
        block = self.block_ids[self.slot_of] if self.slots > 1 else self.block_ids[0]
        tid, i4 = self.tid, np.int32
        out: dict[str, Any] = {
            "%tid.x": _int32(tid if by == bz == 1 else tid % bx),
            "%tid.y": i4(0) if by == 1 else _int32(tid // bx % by),
            "%tid.z": i4(0) if bz == 1 else _int32(tid // (bx * by)),
            "%laneid": _int32(self.lane_of),
            "%warpid": _int32(self.warp_of),
            "%nwarpid": i4(self.warps),
            "%smid": i4(0),
            "%nsmid": i4(1),
            "%gridid": np.int64(1),
            "%dynamic_smem_size": i4(g.dynamic_bytes),
            "%total_smem_size": i4(g.smem_bytes),
            "%aggr_smem_size": i4(g.smem_bytes),
        }
        lanes = self.lane_of.astype(np.int64)
        for name, mask in (
            ("eq", 1 << lanes),
            ("lt", (1 << lanes) - 1),
            ("le", (2 << lanes) - 1),
            ("gt", ~((2 << lanes) - 1)),
            ("ge", ~((1 << lanes) - 1)),
        ):
            out[f"%lanemask_{name}"] = mask.astype(np.uint32).view(np.int32)
        _add_positions(out, g, block)
        return out


def _add_positions(out: dict[str, Any], g: Geometry, block: Any) -> None:
    """Where a block stands in the grid and in its cluster."""
    i4 = np.int32
    step, clusters = 1, [extent // size for extent, size in zip(g.grid, g.cluster, strict=True)]
    rank, ranks, cluster_step = i4(0), 1, 1
    for axis, extent, size, count, threads in zip("xyz", g.grid, g.cluster, clusters, g.block, strict=True):
        at = i4(0) if extent == 1 else _int32(block // step % extent)
        inside = i4(0) if size == 1 else _int32(at % size)
        out[f"%ctaid.{axis}"] = at
        out[f"%nctaid.{axis}"] = i4(extent)
        out[f"%ntid.{axis}"] = i4(threads)
        out[f"%cluster_ctaid.{axis}"] = inside
        out[f"%cluster_nctaid.{axis}"] = i4(size)
        out[f"%clusterid.{axis}"] = i4(0) if extent == 1 else _int32(at // size)
        out[f"%nclusterid.{axis}"] = i4(count)
        rank = rank + inside * i4(ranks)
        ranks *= size
        step *= extent
        cluster_step *= count
    out["%cluster_ctarank"] = rank
    out["%cluster_nctarank"] = i4(ranks)
    out["%is_explicit_cluster"] = np.bool_(ranks > 1)


def _int32(value: Any) -> Any:
    return value.astype(np.int32)


class Active:
    """Threads that run an instruction together.

    Attributes:
        index: their numbers in the chunk, ascending; None for all of them.
        local: their places in the registers of their team; None for all of the team's threads.
        count: how many.
    """

    __slots__ = ("_cache", "chunk", "count", "index", "local")

    def __init__(self, chunk: Chunk, index: Array | None) -> None:
        self.chunk = chunk
        self.index = index
        self.local = index
        self.count = chunk.threads if index is None else len(index)
        self._cache: dict[str, Any] = {}

    @property
    def is_full(self) -> bool:
        return self.index is None

    @property
    def threads(self) -> Array:
        return self.chunk.all_threads if self.index is None else self.index

    @property
    def slots(self) -> Array:
        return self._of("slots", self.chunk.slot_of)

    @property
    def shared_base(self) -> Array:
        return self._of("base", self.chunk.shared_base)

    @property
    def block_ids(self) -> Array:
        """int64: linear block index of each thread."""
        return self.chunk.block_ids[self.slots]

    @property
    def lanes(self) -> Array:
        return self._of("lanes", self.chunk.lane_of)

    def _of(self, key: str, values: Array) -> Array:
        if self.index is None:
            return values
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = values[self.index]
        return found

    def special(self, name: str) -> Any:
        value = self.chunk.specials[name]
        return value if self.index is None or not value.ndim else value[self.index]

    def subset(self, mask: Array) -> Active:
        return Active(self.chunk, np.flatnonzero(mask) if self.index is None else self.index[mask])

    def spread(self, value: Any) -> Array:
        """One value per thread."""
        if getattr(value, "ndim", 0):
            return value  # type: ignore[no-any-return]
        return np.full(self.count, value)

    def has_whole_warps(self) -> bool:
        """Every warp of it is here with all of its 32 lanes."""
        if self.index is None:
            return not self.chunk.is_padded
        found = self._cache.get("whole")
        if found is None:
            found = self._cache["whole"] = _whole(self.index)
        return found


def _whole(index: Array) -> bool:
    if len(index) % WARP:
        return False
    rows = index.reshape(-1, WARP)
    return bool(((rows[:, 0] & 31) == 0).all() and (rows[:, 31] - rows[:, 0] == 31).all())
