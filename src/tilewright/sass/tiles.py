"""From single copies to tiles: how many are outstanding while one is computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.sass.inflight import Copy, Run

SHARE_OF_OVERLAP = 0.5


@dataclass(frozen=True)
class Overlap:
    """What one trip of the K-loop shows, in its steady state."""

    tiles_in_flight: float
    share: float
    math_per_trip: int
    tiles_per_trip: int
    barriers_between: int
    retired_by: int | None
    turn: int
    notes: tuple[str, ...] = ()


def overlap_of(run: Run, rounds: int) -> Overlap | str:
    """Judge a trip in the middle of a run; a text says why it cannot be judged."""
    copies = [c for c in run.copies if c.is_async or c.stored_in is not None]
    turn = rounds - 4
    mine = [c for c in copies if c.round == turn]
    if not mine:
        return "no copies in steady state"
    if any(c.retired is None for c in mine):
        return "Nothing on the path retires the copies"
    u = _tiles_per_trip(run, copies, turn)
    total = sum(c.size for c in mine)
    math = [(now, w) for now, r, w in run.math if r == turn]
    weight = sum(w for _, w in math)
    mean = share = 0.0
    for now, w in math:
        flying = sum(c.size for c in copies if c.issued < now and (c.retired is None or c.retired > now)) * u / total
        mean += flying * w
        share += min(1.0, flying) * w
    b = Counter(c.barriers_at_retire - c.barriers_at_issue for c in mine)
    by = Counter(c.retired_by for c in mine)
    return Overlap(mean / weight, share / weight, weight, u, b.most_common(1)[0][0], by.most_common(1)[0][0], turn)


def _tiles_per_trip(run: Run, copies: list[Copy], turn: int) -> int:
    waited = {c.retired for c in copies if c.is_async and c.round == turn}
    if waited:
        return len(waited)
    intervals = sorted({c.stored_in for c in copies if c.round == turn})
    return max(1, len(intervals))
