"""Which of several rungs that a size could be given to is the fastest there, as far as their costs tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.ladder.family import Rung

TIME = "us"  # a cost whose last line is named so is a time, and that of one rung may be held against another's


def time_of(rung: Rung, sizes: Mapping[str, int], dtype: str) -> float | None:
    """Microseconds of the choice that a rung makes at sizes; None where its cost is no time, or it has none."""
    if not rung.cost or list(rung.cost)[-1] != TIME:
        return None
    return min(rung.cost_of(choice, sizes, dtype) for choice in rung.choices)


def fastest(rungs: Sequence[Rung], sizes: Mapping[str, int], dtype: str) -> Rung:
    """The first of them; where its cost is a time, the one of the least.

    Args:
        rungs: at the sizes, those that are preferred first.
    """
    times = [time_of(rung, sizes, dtype) for rung in rungs]
    if times[0] is None:
        return rungs[0]
    known = [(us, index) for index, us in enumerate(times) if us is not None]
    return rungs[min(known)[1]]
