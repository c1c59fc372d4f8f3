"""Which rungs a size could be given to, and which of those is the fastest there, as far as their costs tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.ladder.family import Rung

TIME = "us"  # a cost whose last line is named so is a time, and that of one rung may be held against another's


def why_not(rung: Rung, sizes: Mapping[str, int], dtype: str, runs_on: Callable[[str], bool], address: int = 0) -> str:
    """Why who names no rung does not get this one; "" where it may be. As `Family.best`; it is ``at`` the sizes."""
    if dtype not in rung.dtypes:
        return f"it takes {', '.join(rung.dtypes)}"
    if rung.min_arch is not None and not runs_on(rung.min_arch):
        return f"it needs {rung.min_arch}"
    if rung.misfit(sizes):
        return rung.misfit(sizes)
    if address % rung.align_bytes:
        return f"its arrays have to begin at multiples of {rung.align_bytes} bytes"
    if not rung.is_meant_for(sizes, dtype, address):
        return f"it is not meant for these sizes{f': best_when, {rung.best_when}, is 0' if rung.best_when else ''}"
    return ""


def may_be_meant(rung: Rung, sizes: Mapping[str, int], dtype: str, address: int = 0) -> bool:
    """False where `why_not` says so of the rung ``at`` the sizes, without having it made: that takes its cost."""
    if dtype not in rung.dtypes:
        return False
    try:
        return rung.is_meant_for(sizes, dtype, address)
    except TilewrightError as error:  # no value, as where a size is zero: the rung may be unfit there, too
        if error.code != "launch/bad_value":
            raise
        return True


def time_of(rung: Rung, sizes: Mapping[str, int], dtype: str) -> float | None:
    """Microseconds of the choice that a rung makes at sizes; None where its cost is no time, or it has none.

    Args:
        rung: as the file has it, or ``at`` these sizes: then it has been told already.
    """
    if not rung.cost or list(rung.cost)[-1] != TIME:
        return None
    if rung.told is not None:
        return rung.told
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
