"""What verification ends in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.launch.bind import LaunchChange
from tilewright.launch.executor import Hazard, Program

Verdict = Literal["passed", "failed", "not_run"]


@dataclass(frozen=True)
class SizeCheck:
    """The verdict at one size set.

    Attributes:
        size: name of the set.
        verdict: passed or failed.
        bit_identical: to the baseline there; None where a tolerance replaced it, or the launch failed.
        max_abs_error: from the reference.
        bound: the absolute part of the tolerance that the error had to keep.
        message: what is wrong; where nothing is, what share could not be compared, or "".
    """

    size: str
    verdict: Verdict
    bit_identical: bool | None = None
    max_abs_error: float | None = None
    bound: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Verification:
    """The verdict on one program.

    Attributes:
        verdict: passed, failed or not_run.
        executor: ``gpu`` or ``emulator``; None where nothing ran.
        sizes: names of the size sets that were run.
        bit_identical: to the baseline, in every byte of every output at every size; None where it was not asked (the
            baseline itself is not deterministic, or nothing ran).
        max_abs_error: the largest distance from the reference, in the output's units; None without a reference.
        hazards: stray writes, modified inputs, races.
        checks: the verdict at each of ``sizes``.
        tolerance: what replaces bit identity, where the baseline is not deterministic; else "".
        reason: one sentence that says why; for a pass, what share of a set could not be compared, or "".
        races_at: the size sets at which races were looked for, which only the emulator can.
    """

    verdict: Verdict
    executor: str | None = None
    sizes: tuple[str, ...] = ()
    bit_identical: bool | None = None
    max_abs_error: float | None = None
    hazards: tuple[Hazard, ...] = ()
    checks: tuple[SizeCheck, ...] = ()
    tolerance: str = ""
    reason: str = ""
    races_at: tuple[str, ...] = ()


def judge(executor: str, checks: Sequence[SizeCheck], hazards: Iterable[Hazard], tolerance: str) -> Verification:
    """Put the verdicts of the single size sets together."""
    failed = [check for check in checks if check.verdict == "failed"]
    told = failed or [check for check in checks if check.message]
    errors = [check.max_abs_error for check in checks if check.max_abs_error is not None]
    bits = {check.bit_identical for check in checks}
    return Verification(
        verdict="failed" if failed else "passed",
        executor=executor,
        sizes=tuple(check.size for check in checks),
        bit_identical=False if False in bits else None if None in bits else True,
        max_abs_error=max(errors, default=None),
        hazards=distinct(hazards),
        checks=tuple(checks),
        tolerance=tolerance,
        reason=f"{told[0].size}: {told[0].message}" if told else "",
        races_at=tuple(check.size for check in checks) if executor == "emulator" else (),
    )


# What tells two occurrences of one fault apart: how often, which bytes, which threads.
_OCCURRENCE = re.compile(r"\s*\[[\d.,]+( times)?\]|\b(thread|warp|block)s? \d+")


def distinct(hazards: Iterable[Hazard]) -> tuple[Hazard, ...]:
    """Each fault once, as it was first seen; the same one at another size, with other threads, is no news."""
    first: dict[tuple[str, int | None, str], Hazard] = {}
    for hazard in hazards:
        first.setdefault((hazard.kind, hazard.line, _OCCURRENCE.sub("", hazard.message)), hazard)
    return tuple(first.values())


def with_races(on_gpu: Verification, emulated: Verification) -> Verification:
    """A GPU's verdict on values, and what the emulator saw beside: a hazard, or a wrong value there, fails it too."""
    if on_gpu.verdict != "passed" or emulated.verdict == "not_run":
        return on_gpu
    merged = replace(on_gpu, hazards=(*on_gpu.hazards, *emulated.hazards), races_at=emulated.races_at)
    if emulated.verdict == "passed":
        return merged
    return replace(merged, verdict="failed", reason=f"in the emulator, {emulated.reason}")


def not_run(reason: str) -> Verification:
    """Nothing ran, and this is why: no GPU, no sidecar."""
    return Verification("not_run", reason=reason)


@dataclass(frozen=True)
class Passed:
    """A program that has passed verification: the only thing that may be timed.

    Attributes:
        program: what ran.
        change: what it changes of the sidecar's launch.
        verification: with the verdict ``passed``; anything else is refused with ValueError.
    """

    program: Program
    change: LaunchChange
    verification: Verification

    def __post_init__(self) -> None:
        if self.verification.verdict != "passed":
            raise ValueError(f"only what passed verification can be timed; this is {self.verification.verdict}")
