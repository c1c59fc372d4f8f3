"""From single copies to tiles: how many are outstanding while one is computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.sass.inflight import Copy, Run


@dataclass(frozen=True)
class Tile:
    """The copies of one tile; times at which half of its bytes have been issued, and retired."""

    copies: tuple[Copy, ...]
    issued: int
    retired: int | None
    turn: int


@dataclass(frozen=True)
class Overlap:
    tiles_in_flight: int
    math_in_flight: int
    math_per_tile: int
    share: float
    barriers_between: int
    tiles_per_trip: int
    retired_by: int | None
    in_flight_by_math: tuple[int, ...]
    notes: tuple[str, ...]


def overlap_of(run: Run, rounds: int) -> Overlap | str:
    """Judge the middle trips of a run; a text says why it cannot be judged."""
    asynchronous = [c for c in run.copies if c.is_async]
    loaded = [c for c in run.copies if not c.is_async and c.stored_in is not None]
    turn = rounds // 2 + 1
    tiles_a, tiles_l = _by_wait(asynchronous), _by_barrier(loaded)

    def size(cs):
        return sum(c.size for c in cs if c.round == turn)

    main, other, other_name = (
        (tiles_a, tiles_l, "LDG") if size(asynchronous) > size(loaded) else (tiles_l, tiles_a, "LDGSTS")
    )
    main_tiles = [t for t in main if t.turn == turn]
    if not main_tiles:
        return "no copies in steady state"
    if any(t.retired is None for t in main_tiles):
        return "Nothing on the path retires the copies"
    seen = _in_flight(main, run, turn)
    again = _in_flight(main, run, turn + 1)
    if seen != again:
        return "The path settles into no steady state"
    weight = sum(w for _, w in seen)
    flying = sum(w for n, w in seen if n)
    u = len(main_tiles)
    order = sorted(seen)
    half, acc, median = weight / 2, 0, 0
    for n, w in order:
        acc += w
        if acc > half:
            median = n
            break
    notes = []
    if other:
        notes.append(f"also {other_name}")
    b = Counter(t.copies[0].barriers_at_retire - t.copies[0].barriers_at_issue for t in main_tiles)
    return Overlap(
        median,
        round(flying / u),
        round(weight / u),
        flying / weight if weight else 0,
        b.most_common(1)[0][0],
        u,
        main_tiles[0].copies[0].retired_by,
        tuple(n for n, _ in seen),
        tuple(notes),
    )


def _in_flight(tiles, run, turn):
    out = []
    for now, r, w in run.math:
        if r == turn:
            out.append((sum(1 for t in tiles if t.issued < now and (t.retired is None or t.retired > now)), w))
    return out


def _by_wait(copies):
    groups = {}
    for c in copies:
        groups.setdefault(("r", c.retired) if c.retired is not None else ("g", c.group), []).append(c)
    return [_tile(g) for g in groups.values()]


def _by_barrier(copies):
    parent = {}

    def find(x):
        while parent.setdefault(x, x) != x:
            x = parent[x]
        return x

    for c in copies:
        parent[find(("i", c.barriers_at_issue))] = find(("s", c.stored_in))
    groups = {}
    for c in copies:
        groups.setdefault(find(("i", c.barriers_at_issue)), []).append(c)
    return [_tile(g) for g in groups.values()]


def _tile(copies):
    total = sum(c.size for c in copies)
    acc = 0
    issued = 0
    for c in copies:
        acc += c.size
        issued = c.issued
        if acc * 2 >= total:
            break
    acc, retired = 0, None
    for c in sorted((c for c in copies if c.retired is not None), key=lambda c: c.retired):
        acc += c.size
        if acc * 2 > total:
            retired = c.retired
            break
    return Tile(tuple(copies), issued, retired, copies[0].round)
