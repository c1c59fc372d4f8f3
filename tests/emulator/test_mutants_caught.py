"""Every broken twin of every variant of the examples is found, by the check that is for it; the variant is silent.

Each of the four examples runs a quarter of them, each twin of each variant on one; all do with
TILEWRIGHT_MUTANTS_ALL=1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set

import pytest
from variant_mutants import EQUIVALENT, PTX_MUTANTS, SIZES, SOURCE_MUTANTS, VARIANTS, Variant, executor, variant

from tilewright.emulator.executor import ATTEMPTS
from tilewright.launch.bind import bind
from tilewright.mutate.source_mutants import source_mutants
from tilewright.verification.compare import bitwise
from tilewright.verification.mutation import ProgramMutant, judge_mutants, ptx_programs
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
    names = [mutant.name for mutant in source_mutants(whole.text)]
    assert set(names) == set(SOURCE_MUTANTS[name])
    share = share_of(example, name, names)
    mutants = mutate_variant(whole.text, whole.opened.compiler, only=share)
    caught_as_expected(example, whole, share, mutants, SOURCE_MUTANTS[name], {})


@each
def test_every_mutant_of_the_ptx_is_caught(example: str, name: str) -> None:
    whole = variant(example, name)
    mutants = ptx_programs(whole.program, None)
    equivalent = EQUIVALENT.get(name, {})
    names = [mutant.name for mutant in mutants]
    assert set(names) == {*PTX_MUTANTS[name], *equivalent}
    caught_as_expected(example, whole, share_of(example, name, names), mutants, PTX_MUTANTS[name], equivalent)


def share_of(example: str, name: str, names: Sequence[str]) -> set[str]:
    """The mutants that are run: a quarter, another one for the next example and the next variant."""
    if os.environ.get("TILEWRIGHT_MUTANTS_ALL"):
        return set(names)
    first = (list(SIZES).index(example) + list(VARIANTS).index(name)) % 4
    return set(sorted(names)[first::4])


def test_each_mutant_of_a_variant_is_run_on_some_example() -> None:
    for name in VARIANTS:
        names = [*SOURCE_MUTANTS[name], *PTX_MUTANTS[name]]
        assert set().union(*(share_of(example, name, names) for example in SIZES)) == set(names)


def caught_as_expected(
    example: str,
    whole: Variant,
    share: Set[str],
    mutants: Sequence[ProgramMutant],
    expected: Mapping[str, Set[str]],
    equivalent: Mapping[str, str],
) -> None:
    """Those of the share, each by all that the table names."""
    run = [mutant for mutant in mutants if mutant.name in share]
    verdicts = judge_mutants(whole.record, run, whole.change, executor(example))
    by_name = {v.name: v for v in verdicts}
    assert set(by_name) == share
    expected = {name: by for name, by in expected.items() if name in share}
    equivalent = {name: why for name, why in equivalent.items() if name in share}
    missed = {n: (v.by, v.message) for n, v in by_name.items() if n in expected and not expected[n] <= set(v.by)}
    assert not missed
    assert not [v for n, v in by_name.items() if n in equivalent and v.caught]
    for verdict in by_name.values():
        assert verdict.caught == (verdict.name in expected)
        assert verdict.is_equivalent == (verdict.name in equivalent)  # which the text shows, too
        assert bool(verdict.message) == verdict.caught
        assert verdict.line is not None
