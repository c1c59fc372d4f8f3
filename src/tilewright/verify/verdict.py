"""What verification ends in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.launch.bind import LaunchChange
from tilewright.launch.executor import Hazard, Program

Verdict = Literal["passed", "failed", "not_run"]


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
        reason: one sentence that says why; "" for a plain pass.
    """

    verdict: Verdict
    executor: str | None = None
    sizes: tuple[str, ...] = ()
    bit_identical: bool | None = None
    max_abs_error: float | None = None
    hazards: tuple[Hazard, ...] = ()
    reason: str = ""


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
