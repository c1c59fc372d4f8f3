"""Would a fault be seen? Broken twins of a program, each run as a variant is: every one of them has to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, LaunchChange
from tilewright.launch.executor import Executor, Part, Program, RunResult
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.verification.baseline import BaselineRecord
from tilewright.verification.variant import verify

if TYPE_CHECKING:
    import numpy as np

# What ``MutantVerdict.by`` holds beside the kinds of hazards.
VALUES = "values"
ERROR = "error"


@dataclass(frozen=True)
class ProgramMutant:
    """A broken twin that can be run.

    Attributes:
        name: what was broken, ``barrier_removed``; unique among the mutants of a program.
        description: one sentence.
        line: of the source, where the fault is; None where it is not known.
        program: the twin. One that was made of PTX has no cubin: it is for the emulator.
        may_be_equivalent: it is harmless by construction, so nothing need find it.
    """

    name: str
    description: str
    line: int | None
    program: Program
    may_be_equivalent: bool = False


@dataclass(frozen=True)
class MutantVerdict:
    """Whether a mutant was caught, and by what.

    Attributes:
        name, description, line: the mutant's.
        caught: at one of the record's size sets.
        by: kinds of hazards, in the order in which they were seen; then ``values`` where outputs differ from the
            baseline's, and ``error`` where the run did not go through (a deadlock, a fault, a run that was too long).
        message: the first hazard; without one, the error or what differs. Where nothing was caught: why it could not
            be run, or "".
        is_equivalent: it was not caught, and need not be: it is harmless by construction.
    """

    name: str
    description: str
    line: int | None
    caught: bool
    by: tuple[str, ...] = ()
    message: str = ""
    is_equivalent: bool = False


def ptx_programs(program: Program, per_kind: int | None = 8) -> tuple[ProgramMutant, ...]:
    """The broken twins of a program's PTX, without cubins.

    Args:
        per_kind: at most so many of a kind, spread over the text; None for all.

    Raises:
        TilewrightError: as ``mutate.ptx_mutants.synchronisation_mutants``.
    """
    mutants = synchronisation_mutants(program.ptx, program.kernel, per_kind)
    return tuple(
        ProgramMutant(m.name, m.description, m.line, replace(program, cubin=b"", ptx=m.ptx), m.may_be_equivalent)
        for m in mutants
    )


def judge_mutants(
    record: BaselineRecord,
    mutants: Iterable[ProgramMutant],
    change: LaunchChange | None,
    executor: Executor,
    progress: Callable[[str], None] | None = None,
    *,
    launch_at: Callable[[Mapping[str, int]], BoundLaunch] | None = None,
) -> tuple[MutantVerdict, ...]:
    """Run each mutant as its unbroken twin was verified, up to the first size set that shows the fault.

    The set ``default`` is left out: it is the large one, and not a single tile is special there. A mutant can hang, so
    give an executor that has a bound (``EmulatorOptions.max_seconds``): what runs longer is caught, by ``error``.

    Args:
        record: the baseline's; it must have passed, and the unbroken variant against it: else a verdict means nothing.
        change: of the unbroken variant: dynamic shared bytes.
        progress: called with the name of each mutant before it runs.
        launch_at: the unbroken variant's own launch, as for ``verify``.

    Raises:
        TilewrightError: ``verification/baseline_failed``.
    """
    if record.verification.verdict != "passed":
        message = f"Mutants are judged against a baseline that passed; this one did not: {record.verification.reason}."
        raise TilewrightError("verification/baseline_failed", message)
    verdicts: list[MutantVerdict] = []
    for mutant in mutants:
        if progress:
            progress(mutant.name)
        verdicts.append(_judge(record, mutant, change, executor, launch_at))
    return tuple(verdicts)


def _judge(
    record: BaselineRecord,
    mutant: ProgramMutant,
    change: LaunchChange | None,
    executor: Executor,
    launch_at: Callable[[Mapping[str, int]], BoundLaunch] | None,
) -> MutantVerdict:
    by: tuple[str, ...] = ()
    message = ""
    for one in (s for s in record.sets if s.name != "default"):
        watched = _Watched(executor)
        verdict = verify(replace(record, sets=(one,)), mutant.program, change, watched, launch_at=launch_at)
        if verdict.verdict == "not_run":
            message = verdict.reason
            break
        hazards = list(verdict.hazards)
        by = tuple(dict.fromkeys(h.kind for h in hazards))
        told = next((check.message for check in verdict.checks), "")
        if watched.failed is not None:
            by += (ERROR,)
        elif verdict.bit_identical is False or (told and told not in [h.message for h in hazards]):
            by += (VALUES,)
        if by:
            message = hazards[0].message if hazards else told
            break
    equivalent = mutant.may_be_equivalent and not by and not message
    return MutantVerdict(mutant.name, mutant.description, mutant.line, bool(by), by, message, equivalent)


class _Watched:
    """An executor that remembers a run that failed, and runs nothing after it: a hang need not be seen twice."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.failed: RunResult | None = None

    @property
    def name(self) -> Literal["gpu", "emulator"]:
        return self._executor.name

    @property
    def arch(self) -> str:
        return self._executor.arch

    @property
    def is_dead(self) -> bool:
        return self._executor.is_dead

    def part_of(self, size_set: str) -> Part:
        return self._executor.part_of(size_set)

    def run(
        self,
        program: Program,
        launch: BoundLaunch,
        arrays: Mapping[str, np.ndarray],
        *,
        attempt: int = 0,
        part: Part = "all",
    ) -> RunResult:
        if self.failed is not None:
            return self.failed
        result = self._executor.run(program, launch, arrays, attempt=attempt, part=part)
        if result.error:
            self.failed = result
        return result
