"""Every broken twin of every variant of the examples is found, by the check that is for it; the variant is silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import pytest
from variant_mutants import EQUIVALENT, PTX_MUTANTS, SIZES, SOURCE_MUTANTS, VARIANTS, executor, variant

from tilewright.emulator.executor import ATTEMPTS
from tilewright.launch.bind import bind
from tilewright.verification.compare import bitwise
from tilewright.verification.mutation import MutantVerdict, judge_mutants, ptx_programs
from tilewright.verification.runs import POISONS, run_poisoned
from tilewright.workflow.mutating import mutate_variant

CASES = [(example, name) for example in SIZES for name in VARIANTS]
each = pytest.mark.parametrize(("example", "name"), CASES)


@each
def test_the_unbroken_variant_is_silent(example: str, name: str) -> None:
    """In lock-step, warp after warp, and in an order of chance."""
    whole = variant(example, name)
    assert whole.record.verification.verdict == "passed", whole.record.verification
    (one,) = whole.record.sets
    launch = bind(whole.record.spec, one.sizes, whole.record.constants, whole.change)
    for attempt, schedule in enumerate(ATTEMPTS):
        result = run_poisoned(executor(example), whole.program, launch, one.inputs, POISONS[0], attempt)
        assert (result.error, result.hazards) == (None, ()), schedule
        for buffer, expected in one.outputs.items():
            assert bitwise(result.arrays[buffer], expected).count == 0, (schedule, buffer)


@each
def test_every_mutant_of_the_source_is_caught(example: str, name: str) -> None:
    whole = variant(example, name)
    mutants = mutate_variant(whole.text, whole.opened.compiler)
    verdicts = judge_mutants(whole.record, mutants, whole.change, executor(example))
    caught_as_expected(verdicts, SOURCE_MUTANTS[name], {})


@each
def test_every_mutant_of_the_ptx_is_caught(example: str, name: str) -> None:
    whole = variant(example, name)
    mutants = ptx_programs(whole.program, None)
    verdicts = judge_mutants(whole.record, mutants, whole.change, executor(example))
    caught_as_expected(verdicts, PTX_MUTANTS[name], EQUIVALENT.get(name, {}))


def caught_as_expected(
    verdicts: Iterable[MutantVerdict], expected: Mapping[str, Set[str]], equivalent: Mapping[str, str]
) -> None:
    """Each by all that the table names, and the table has them all."""
    by_name = {v.name: v for v in verdicts}
    assert set(by_name) == {*expected, *equivalent}
    missed = {n: (v.by, v.message) for n, v in by_name.items() if n in expected and not expected[n] <= set(v.by)}
    assert not missed
    assert not [v for n, v in by_name.items() if n in equivalent and v.caught]
    for verdict in by_name.values():
        assert verdict.caught == (verdict.name in expected)
        assert verdict.is_equivalent == (verdict.name in equivalent)  # which the text shows, too
        assert bool(verdict.message) == verdict.caught
        assert verdict.line is not None
