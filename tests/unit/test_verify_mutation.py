"""Verdicts on mutants: by what each was caught, where it was run, and what says nothing about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from fake_executor import FakeExecutor, program
from launch_samples import CONSTANTS, gemm_spec

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, LaunchChange
from tilewright.launch.executor import Hazard, Program, RunResult
from tilewright.verification.baseline import BaselineRecord, baseline_runs
from tilewright.verification.mutation import MutantVerdict, ProgramMutant, judge_mutants, ptx_programs

SPEC = gemm_spec()
RECORD = baseline_runs(program(), SPEC, CONSTANTS, FakeExecutor(), 7)
SETS = len(RECORD.sets) - 1  # without "default"
PTX = """.version 8.0
.target sm_86
.address_size 64
.visible .entry k()
{
	bar.sync 0;
	bar.sync 0;
	ret;
}
"""


@dataclass
class Ends(FakeExecutor):
    """Every run ends with this."""

    result: RunResult | None = None

    def run(self, program: Program, launch: BoundLaunch, arrays: Mapping[str, np.ndarray], **_: object) -> RunResult:
        self.runs += 1
        assert self.result is not None
        return self.result


def mutant(fault: str, may_be_equivalent: bool = False) -> ProgramMutant:
    return ProgramMutant(fault, "It is broken.", 3, program(fault), may_be_equivalent)


def judged(one: ProgramMutant, executor: FakeExecutor | None = None, record: BaselineRecord = RECORD) -> MutantVerdict:
    (verdict,) = judge_mutants(record, [one], LaunchChange(shared_bytes=64), executor or FakeExecutor())
    assert (verdict.name, verdict.description, verdict.line) == (one.name, "It is broken.", 3)
    return verdict


@pytest.mark.parametrize(
    ("fault", "by", "words"),
    [
        ("one_ulp", ("values",), "differ"),
        ("race", ("values",), "change from run to run"),
        ("unwritten_row", ("values",), "was not written"),
        ("out_of_bounds", ("out_of_bounds_write",), "after the end"),
        ("input_modified", ("input_modified",), "input 'b'"),
    ],
)
def test_what_caught_it(fault: str, by: tuple[str, ...], words: str) -> None:
    verdict = judged(mutant(fault))
    assert (verdict.caught, verdict.by, verdict.is_equivalent) == (True, by, False)
    assert words in verdict.message


def test_a_hazard_is_named_before_the_values() -> None:
    both = RunResult(
        {name: np.ones_like(array) for name, array in {**RECORD.sets[0].inputs, **RECORD.sets[0].outputs}.items()},
        (Hazard("race_read_after_write", 9, "a race"),),
    )
    verdict = judged(mutant(""), Ends(result=both))
    assert (verdict.by[0], verdict.message) == ("race_read_after_write", "a race")
    assert verdict.by[-1] == "values"


def test_a_hang_is_caught_and_not_run_again() -> None:
    hang = RunResult({}, (Hazard("deadlock", 5, "they wait for ever"),), "the kernel hangs")
    executor = Ends(result=hang)
    verdict = judged(mutant(""), executor)
    assert (verdict.caught, verdict.by, verdict.message) == (True, ("deadlock", "error"), "they wait for ever")
    assert executor.runs == 1


def test_a_run_that_was_too_long_is_caught_by_its_error() -> None:
    verdict = judged(mutant(""), Ends(result=RunResult({}, error="its time was over")))
    assert (verdict.caught, verdict.by, verdict.message) == (True, ("error",), "its time was over")


def test_what_the_executor_cannot_do_says_nothing() -> None:
    verdict = judged(mutant("", True), Ends(result=RunResult({}, error="no such opcode", is_unsupported=True)))
    assert (verdict.caught, verdict.by, verdict.is_equivalent) == (False, (), False)
    assert "no such opcode" in verdict.message


@pytest.mark.parametrize("harmless", [False, True])
def test_what_nothing_catches_has_run_at_every_set_but_the_default(harmless: bool) -> None:
    executor = FakeExecutor()
    verdict = judged(mutant("", harmless), executor)
    assert (verdict.caught, verdict.by, verdict.message, verdict.is_equivalent) == (False, (), "", harmless)
    assert executor.runs == 2 * SETS
    assert {shared for _, _, shared in executor.log} == {64}


def test_the_first_set_that_shows_it_is_the_last_that_runs() -> None:
    executor = FakeExecutor()
    assert judged(mutant("k0_stray"), executor).caught  # at K = 0, the smallest
    assert executor.runs == 2


def test_what_is_harmless_by_construction_and_yet_caught_is_caught() -> None:
    verdict = judged(mutant("one_ulp", True))
    assert (verdict.caught, verdict.is_equivalent) == (True, False)


def test_a_baseline_that_failed_judges_nothing() -> None:
    bad = replace(RECORD, verification=replace(RECORD.verification, verdict="failed", reason="it is wrong"))
    with pytest.raises(TilewrightError, match="it is wrong"):
        judge_mutants(bad, [mutant("")], None, FakeExecutor())


def test_progress_names_each_mutant() -> None:
    names: list[str] = []
    judge_mutants(RECORD, [mutant("one_ulp"), mutant("race")], None, FakeExecutor(), names.append)
    assert names == ["one_ulp", "race"]


def test_twins_of_the_ptx_have_no_cubin() -> None:
    whole = Program(b"elf", PTX, "k", "sm_86")
    mutants = ptx_programs(whole)
    assert [m.name for m in mutants] == ["barrier_removed.0", "barrier_removed.1"]
    for one in mutants:
        assert (one.program.cubin, one.program.kernel, one.program.arch) == (b"", "k", "sm_86")
        assert one.program.ptx.count("bar.sync") == 1
        assert one.may_be_equivalent
    assert len(ptx_programs(whole, 1)) == 1
