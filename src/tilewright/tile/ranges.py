"""A dynamic shape: which tile from where to where, and the crossover points.

The dim is walked on a geometric grid. A choice is kept as long as it is within `KEPT` of the best one at a point: a
table of forty kernels that are all equally good would help nobody. Where it no longer is, the new best takes over, and
the crossover is the smallest value at which the new one is as fast as the old one. Times rise in steps (waves), so a
crossover is good to about one grid step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.tile.gemm import label, timed_space
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Convolution, Gemm, Op, Range, Target, at
from tilewright.tile.parameters import CostParameters
from tilewright.tile.selection import candidates, tiles_of

KEPT = 1.05
POINTS_PER_OCTAVE = 4


@dataclass(frozen=True)
class RangeChoice:
    """A tile for ``low`` to ``high`` of the dim, both included.

    Attributes:
        parameters: the tile's.
        time_us: predicted at ``high``.
        worst: over the grid points of the range, the predicted time over the best one's there.
    """

    low: int
    high: int
    label: str
    parameters: Mapping[str, int]
    time_us: float
    worst: float


@dataclass(frozen=True)
class _Point:
    """All times at one value, by label, and the fastest label."""

    value: int
    times_us: Mapping[str, float]
    parameters: Mapping[str, Mapping[str, int]]
    best: str


def choices_by_range(
    op: Op, dynamic: Range, machine: Machine, cost: CostParameters, target: Target = "cuda"
) -> tuple[RangeChoice, ...]:
    """The table of choices, from the low end to the high end, without gaps."""
    points = [_point(op, dynamic.dim, value, machine, cost, target) for value in grid(dynamic.low, dynamic.high)]
    rows: list[RangeChoice] = []
    low, current, last, worst = dynamic.low, points[0].best, points[0], 1.0
    for point in points:
        best_us = point.times_us[point.best]
        mine = point.times_us.get(current)
        if mine is None or mine > KEPT * best_us:
            start = _crossover(op, dynamic, (last.value, point.value), (current, point.best), machine, cost, target)
            rows.append(_row(low, start - 1, current, last, worst))
            low, current, worst, mine = start, point.best, 1.0, best_us
        worst = max(worst, mine / best_us)
        last = point
    rows.append(_row(low, dynamic.high, current, last, worst))
    return tuple(rows)


def grid(low: int, high: int) -> tuple[int, ...]:
    """Values from low to high, both included: every one at first, then a few per octave."""
    values = {low, high}
    value = float(low)
    while value < high:
        values.add(round(value))
        value = max(value + 1, value * 2 ** (1 / POINTS_PER_OCTAVE))
    # The edges of tiles are where waves begin: 128, 256, 512, …
    power = 16
    while power < high:
        values |= {power} if power > low else set()
        power *= 2
    return tuple(sorted(v for v in values if low <= v <= high))


def _row(low: int, high: int, chosen: str, last: _Point, worst: float) -> RangeChoice:
    return RangeChoice(low, high, chosen, last.parameters[chosen], last.times_us[chosen], worst)


def _point(op: Op, dim: str, value: int, machine: Machine, cost: CostParameters, target: Target) -> _Point:
    here: Op = at(op, dim, value)
    if isinstance(here, Gemm | Convolution) and target == "cuda":  # only the times are needed, many times: no rows
        product = here.as_gemm() if isinstance(here, Convolution) else here
        timed = timed_space(product, machine, cost, tiles_of(here, machine))
        labels = [label(tile) for tile in timed.tiles]
        times = {name: float(s) * 1e6 for name, s in zip(labels, timed.time.seconds, strict=True)}
        parameters = {name: vars(tile) for name, tile in zip(labels, timed.tiles, strict=True)}
        return _Point(value, times, parameters, labels[timed.order[0]])
    rows = candidates(here, machine, cost, target)
    return _Point(value, {r.label: r.time_us for r in rows}, {r.label: r.parameters for r in rows}, rows[0].label)


def _crossover(
    op: Op,
    dynamic: Range,
    between: tuple[int, int],
    labels: tuple[str, str],
    machine: Machine,
    cost: CostParameters,
    target: Target,
) -> int:
    """The smallest value after ``between[0]`` at which the new tile is as fast as the old one, by bisection."""
    old, new = labels
    low, high = between
    while high - low > 1:
        middle = (low + high) // 2
        times = _point(op, dynamic.dim, middle, machine, cost, target).times_us
        takes_over = old not in times or (new in times and times[new] <= times[old])
        low, high = (low, middle) if takes_over else (middle, high)
    return high
