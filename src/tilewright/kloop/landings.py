"""Where the stores of one load phase land, for all threads of a block, and whether two of one thread may meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.kloop import lanes

_MAX_PAIRED = 256
Mask = lanes.Numbers  # 0 or 1 a thread


@dataclass(frozen=True)
class Landing:
    """One execution of one store: the bytes it starts at (None: not known), the threads that run it, and the sides of
    the conditions around it that are not known. ``again``: it stands for more than one."""

    store: int
    offsets: lanes.Numbers | None
    mask: Mask
    sides: tuple[tuple[int, bool], ...]
    again: bool = False


def overlap(landings: list[Landing], widths: Mapping[int, int]) -> int | None:
    """The store of one array that may touch bytes that the same thread has stored before; None where none can."""
    again = next((x for x in landings if x.again), None)
    if again is not None:
        return again.store
    if _apart(landings, widths):
        return None
    if len(landings) > _MAX_PAIRED:
        return landings[0].store
    for i, late in enumerate(landings):
        for early in landings[:i]:
            both = (early.mask & late.mask) != 0
            if _exclusive(early, late) or not bool(both.any()):
                continue
            if early.offsets is None or late.offsets is None:
                return late.store
            distance = (late.offsets - early.offsets)[both]
            if bool(((distance < widths[early.store]) & (distance > -widths[late.store])).any()):
                return late.store
    return None


def complete(landings: list[Landing], widths: Mapping[int, int]) -> bool:
    """Whether every thread stores to the same bytes, however the conditions come out that are not known."""
    if any(x.again or x.offsets is None for x in landings):
        return False
    asked = {key for x in landings for key, _ in x.sides}
    return all(_bytes_of(landings, widths, k, True) == _bytes_of(landings, widths, k, False) for k in asked)


def _bytes_of(landings: list[Landing], widths: Mapping[int, int], key: int, side: bool) -> set[tuple[int, int, int]]:
    """(thread, first byte, bytes) of what stands on one side of a condition."""
    out: set[tuple[int, int, int]] = set()
    for x in landings:
        if (key, side) in x.sides and x.offsets is not None:
            out |= {(int(t), int(x.offsets[t]), widths[x.store]) for t in np.flatnonzero(x.mask)}
    return out


def _apart(landings: list[Landing], widths: Mapping[int, int]) -> bool:
    """Whether no two landings overlap for any thread, conditions left aside: sorted by offset, each ends in time."""
    if any(x.offsets is None for x in landings):
        return len(landings) < 2
    # Threads that do not take part land somewhere of their own.
    rows = [np.where(x.mask != 0, x.offsets, (n + 1) << 40) for n, x in enumerate(landings) if x.offsets is not None]
    ends = [row + widths[x.store] for row, x in zip(rows, landings, strict=True)]
    starts, stops = np.stack(rows), np.stack(ends)
    order = np.argsort(starts, axis=0)
    starts, stops = np.take_along_axis(starts, order, 0), np.take_along_axis(stops, order, 0)
    return bool((starts[1:] >= stops[:-1]).all())


def _exclusive(a: Landing, b: Landing) -> bool:
    """Whether they stand on two sides of one condition, the same time that it was asked."""
    return any((key, not side) in b.sides for key, side in a.sides)
