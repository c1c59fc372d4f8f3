"""What the lanes of a warp do together: shuffles, votes, reductions, matches, elections."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.chunk import WARP, Active, Array
from tilewright.emulator.machine.watch import Watch

LANES = np.arange(WARP, dtype=np.int32)
REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


class Rows:
    """Values of the active threads as rows of 32 lanes, and the way back."""

    def __init__(self, active: Active) -> None:
        self.active = active
        if active.has_whole_warps():
            self.count, self.position = active.count // WARP, None
            return
        warps, inverse = np.unique(active.threads >> 5, return_inverse=True)
        self.count = len(warps)
        self.position = inverse * WARP + (active.threads & 31)

    def spread(self, value: Any) -> Array:
        """[warps, 32]; lanes that are not there hold 0."""
        value = self.active.spread(value)
        if self.position is None:
            return value.reshape(-1, WARP)  # type: ignore[no-any-return]
        out = np.zeros(self.count * WARP, value.dtype)
        out[self.position] = value
        return out.reshape(-1, WARP)

    def present(self) -> Array:
        return self.spread(np.ones(self.active.count, bool))

    def back(self, rows: Array) -> Array:
        flat = np.ascontiguousarray(rows).reshape(-1)
        return flat if self.position is None else flat[self.position]

    def warps(self) -> Array:
        """Number of each row's warp in the chunk."""
        return np.unique(self.active.threads >> 5)

    def members(self, mask: Any) -> Array:
        """uint32[warps, 32]: which lanes each lane works with: those of its mask that are here; 0 for absent lanes."""
        if self.position is None and _is_full(mask):
            return np.full((self.count, WARP), 0xFFFFFFFF, np.uint32)
        here = self.present()
        return np.where(here, self.spread(mask).view(np.uint32) & _ballot(here)[:, None], np.uint32(0))


class Stuck(Exception):  # noqa: N818
    """Lanes that a collective lacks wait for what never comes."""


class Warps:
    """Attributes:

    alive: bool per thread of the chunk, the scheduler's; None: everybody is.
    is_stuck: nobody else can run any more, and somebody waits.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.alive: Array | None = None
        self.is_stuck = False

    def check_mask(self, active: Active, mask: Any, site: int) -> None:
        """A lane that runs a collective must be in its member mask, and every lane in it be here or have ended."""
        self.watch.converge(active)
        if _is_full(mask) and active.has_whole_warps():
            return
        rows = Rows(active)
        here = rows.present()
        named = rows.spread(mask).view(np.uint32)
        own = here & (named >> LANES.astype(np.uint32) & 1 == 0)
        absent = ~here
        if self.alive is not None:
            absent = absent & self.alive.reshape(-1, WARP)[rows.warps()]
        missing = here & (named & _ballot(absent)[:, None] != 0)
        bad = own | missing
        if bad.any():
            if self.is_stuck:
                raise Stuck
            at = int(np.flatnonzero(rows.back(bad))[0])
            self.watch.report("warp_mask", site, active, at, "member mask", int(rows.back(named)[at]), 4)

    def shuffle(self, active: Active, mode: str, value: Any, b: Any, c: Any, mask: Any, site: int) -> tuple[Any, Any]:
        """``shfl.sync``: (values, in range). PTX ISA, "shfl.sync"."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        values, b_rows, c_rows = rows.spread(value), rows.spread(b), rows.spread(c)
        b_lane, clamp, segment = b_rows & 31, c_rows & 31, (c_rows >> 8) & 31
        low = LANES & segment
        high = low | (clamp & ~segment)
        if mode == "up":
            source = LANES - b_lane
            inside = source >= high
        elif mode == "down":
            source = LANES + b_lane
            inside = source <= high
        elif mode == "bfly":
            source = LANES ^ b_lane
            inside = source <= high
        else:
            source = low | (b_lane & ~segment)
            inside = source <= high
        source = np.where(inside, source, LANES)
        if rows.position is not None or not _is_full(mask):
            self._check_sources(active, rows, source, mask, site)
        return rows.back(np.take_along_axis(values, source, 1)), rows.back(np.broadcast_to(inside, values.shape))

    def _check_sources(self, active: Active, rows: Rows, source: Array, mask: Any, site: int) -> None:
        """Reading a lane that does not take part gives an undefined value."""
        bad = (rows.members(mask) >> source.astype(np.uint32) & 1 == 0) & rows.present()
        if bad.any():
            at = int(np.flatnonzero(rows.back(bad))[0])
            lane = int(rows.back(source)[at])
            self.watch.report("inactive_lane_read", site, active, at, f"lane {lane}", 0, 4)

    def vote(self, active: Active, mode: str, predicate: Any, mask: Any, site: int) -> Any:
        self.check_mask(active, mask, site)
        rows = Rows(active)
        members = rows.members(mask)
        ones = _ballot(rows.spread(predicate))[:, None] & members
        if mode == "ballot":
            return rows.back(ones).view(np.int32)
        if mode == "any":
            return rows.back(ones != 0)
        if mode == "all":
            return rows.back(ones == members)
        return rows.back((ones == members) | (ones == 0))

    def active_mask(self, active: Active) -> Any:
        rows = Rows(active)
        return rows.back(np.repeat(_ballot(rows.present()), WARP)).view(np.int32)

    def reduce(self, active: Active, operation: str, value: Any, mask: Any, site: int) -> Any:
        """``redux.sync`` over the lanes of the mask that are here."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        values, members = rows.spread(value), rows.members(mask)
        function, neutral = REDUCTIONS[operation], _neutral(operation, values.dtype)
        groups = np.where(members == 0, members.max(axis=1, keepdims=True), members)
        if (groups == groups[:, :1]).all():
            some = np.where(groups[:, :1] >> LANES.astype(np.uint32) & 1 != 0, values, neutral)
            return rows.back(np.repeat(function.reduce(some, axis=1).astype(values.dtype), WARP))
        is_member = members[:, :, None] >> LANES.astype(np.uint32) & 1 != 0
        some = np.where(is_member, values[:, None, :], neutral)
        return rows.back(function.reduce(some, axis=2).astype(values.dtype))

    def match(self, active: Active, mode: str, value: Any, mask: Any, site: int) -> tuple[Any, Any]:
        """``match.sync``: (mask of lanes with the same value, whether all have it)."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        values, members = rows.spread(value), rows.members(mask)
        same = values[:, :, None] == values[:, None, :]
        bits = (same.astype(np.uint32) << LANES.astype(np.uint32)).sum(axis=2, dtype=np.uint32) & members
        if mode == "any":
            return rows.back(bits).view(np.int32), None
        everyone = bits == members
        return rows.back(np.where(everyone, bits, np.uint32(0))).view(np.int32), rows.back(everyone)

    def elect(self, active: Active, mask: Any, site: int) -> tuple[Any, Any]:
        """``elect.sync``: (the elected lane, whether it is this one): the lowest lane of the mask that is here."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        members = rows.members(mask)
        lowest = members & (~members + np.uint32(1))
        leader = np.log2(np.maximum(lowest, np.uint32(1)).astype(np.float64)).astype(np.int32)
        return rows.back(leader), rows.back(leader == LANES)

    def whole(self, active: Active, site: int, what: str) -> None:
        """Matrix instructions need all 32 lanes of each warp."""
        if not active.has_whole_warps():
            lanes = np.bincount(active.threads >> 5)
            missing = WARP - int(lanes[lanes > 0].min())
            if self.is_stuck:
                raise Stuck
            raise Fault("warp_divergence", f"{what} runs in a warp of which {missing} lanes are elsewhere", site)
        self.watch.converge(active)


def _ballot(rows: Array) -> Array:
    """uint32 per row of bools."""
    return np.ascontiguousarray(np.packbits(rows, axis=1, bitorder="little")).view(np.uint32)[:, 0]


def _is_full(mask: Any) -> bool:
    return not getattr(mask, "ndim", 0) and int(mask) & 0xFFFFFFFF == 0xFFFFFFFF


def _neutral(operation: str, dtype: np.dtype[Any]) -> Any:
    if operation in ("min", "max"):
        info = np.iinfo(dtype)
        return dtype.type(info.max if operation == "min" else info.min)
    return dtype.type(-1 if dtype.kind == "i" else np.iinfo(dtype).max) if operation == "and" else dtype.type(0)
