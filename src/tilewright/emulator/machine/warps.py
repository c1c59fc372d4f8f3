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
            return value.reshape(-1, WARP)
        out = np.zeros(self.count * WARP, value.dtype)
        out[self.position] = value
        return out.reshape(-1, WARP)

    def present(self) -> Array:
        return self.spread(np.ones(self.active.count, bool))

    def back(self, rows: Array) -> Array:
        flat = np.ascontiguousarray(rows).reshape(-1)
        return flat if self.position is None else flat[self.position]

    def repeat(self, per_warp: Array) -> Array:
        """One value per warp to all of its lanes."""
        return self.back(np.repeat(per_warp, WARP))


class Warps:
    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def check_mask(self, active: Active, mask: Any, site: int) -> None:
        """Every lane that a member mask names must be here, or have left the kernel; and only those may be here."""
        self.watch.converge(active)
        if not getattr(mask, "ndim", 0) and int(mask) & 0xFFFFFFFF == 0xFFFFFFFF and active.has_whole_warps():
            return
        named = active.spread(mask).view(np.uint32)
        if not (named >> active.lanes.astype(np.uint32) & 1).all():
            at = int(np.flatnonzero(~(named >> active.lanes.astype(np.uint32) & 1).astype(bool))[0])
            self.watch.report("warp_mask", site, active, at, "member mask", int(named[at]), 4)

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
        if rows.position is not None:
            self._check_sources(active, rows, source, site)
        return rows.back(np.take_along_axis(values, source, 1)), rows.back(np.broadcast_to(inside, values.shape))

    def _check_sources(self, active: Active, rows: Rows, source: Array, site: int) -> None:
        """Reading a lane that does not take part gives an undefined value."""
        here = rows.present()
        bad = here & ~np.take_along_axis(here, source.astype(np.int64), 1)
        if bad.any():
            at = int(np.flatnonzero(rows.back(bad))[0])
            lane = int(rows.back(source)[at])
            self.watch.report("inactive_lane_read", site, active, at, f"lane {lane}", 0, 4)

    def vote(self, active: Active, mode: str, predicate: Any, mask: Any, site: int) -> Any:
        self.check_mask(active, mask, site)
        rows = Rows(active)
        values, here = rows.spread(np.asarray(active.spread(predicate))), rows.present()
        if mode == "ballot":
            return rows.repeat(_ballot(values))
        if mode == "any":
            return rows.repeat(values.any(axis=1))
        if mode == "all":
            return rows.repeat((values | ~here).all(axis=1))
        return rows.repeat((values | ~here).all(axis=1) | ~values.any(axis=1))

    def active_mask(self, active: Active) -> Any:
        rows = Rows(active)
        return rows.repeat(_ballot(rows.present()))

    def reduce(self, active: Active, operation: str, value: Any, mask: Any, site: int) -> Any:
        """``redux.sync`` over the lanes that are here."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        values = rows.spread(value)
        if rows.position is not None:
            fill = _neutral(operation, values.dtype)
            values = np.where(rows.present(), values, fill)
        return rows.repeat(REDUCTIONS[operation].reduce(values, axis=1).astype(values.dtype))

    def match(self, active: Active, mode: str, value: Any, mask: Any, site: int) -> tuple[Any, Any]:
        """``match.sync``: (mask of lanes with the same value, whether all have it)."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        values, here = rows.spread(value), rows.present()
        same = (values[:, :, None] == values[:, None, :]) & here[:, None, :]
        bits = (same.astype(np.uint32) << LANES.astype(np.uint32)).sum(axis=2, dtype=np.uint32).view(np.int32)
        if mode == "any":
            return rows.back(bits), None
        everyone = (same | ~here[:, None, :]).all(axis=2)
        return rows.back(np.where(everyone, bits, 0)), rows.back(everyone)

    def elect(self, active: Active, mask: Any, site: int) -> tuple[Any, Any]:
        """``elect.sync``: (the elected lane, whether it is this one): the lowest lane that is here."""
        self.check_mask(active, mask, site)
        rows = Rows(active)
        leader = rows.present().argmax(axis=1)
        return rows.repeat(leader.astype(np.int32)), rows.back(LANES == leader[:, None])

    def whole(self, active: Active, site: int, what: str) -> None:
        """Matrix instructions need all 32 lanes of each warp."""
        if not active.has_whole_warps():
            lanes = np.bincount(active.threads >> 5)
            missing = WARP - int(lanes[lanes > 0].min())
            raise Fault("warp_divergence", f"{what} runs in a warp of which {missing} lanes are elsewhere", site)
        self.watch.converge(active)


def _ballot(rows: Array) -> Array:
    return (rows.astype(np.uint32) << LANES.astype(np.uint32)).sum(axis=1, dtype=np.uint32).view(np.int32)


def _neutral(operation: str, dtype: np.dtype[Any]) -> Any:
    if operation in ("min", "max"):
        info = np.iinfo(dtype)
        return dtype.type(info.max if operation == "min" else info.min)
    return dtype.type(-1 if dtype.kind == "i" else np.iinfo(dtype).max) if operation == "and" else dtype.type(0)
