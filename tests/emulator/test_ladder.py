"""Every rung of every family: results against float64 at small and ragged sizes, hazards, claims; and broken twins.

One element type a rung, by turns; all of them with ``TILEWRIGHT_LADDER_ALL=1``. ``TILEWRIGHT_LADDER_FAMILIES`` may name
the families to look at.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.claims import Evidence, check_claims
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import Claim, Family, Rung, load_families, load_family
from tilewright.ladder.pages import page
from tilewright.ladder.report import LadderBench
from tilewright.ladder.running import emulator_for, judge, operation, run_emulated, tolerance_of
from tilewright.ladder.specs import rung_spec
from tilewright.ladder.sustained import SustainedBench
from tilewright.launch.executor import Program
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.settings import Settings

ONLY = os.environ.get("TILEWRIGHT_LADDER_FAMILIES", "").split()
FAMILIES = tuple(map(load_family, ONLY)) if ONLY else load_families()
RUNGS = [(family, rung) for family in FAMILIES for rung in family.rungs]
COUNTED = "small"  # the set at which claims are counted
ALL = os.environ.get("TILEWRIGHT_LADDER_ALL") == "1"


def name_of(value: object) -> str:
    return value.name if isinstance(value, Family | Rung) else str(value)


def by_turns(rung: Rung, turn: int) -> tuple[str, ...]:
    return rung.dtypes if ALL else (rung.dtypes[turn % len(rung.dtypes)],)


CASES = [
    (family, rung, dtype)
    for family in FAMILIES
    for turn, rung in enumerate(family.rungs)
    for dtype in by_turns(rung, turn)
]


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence(Settings.from_environment())


@pytest.mark.parametrize(("family", "rung", "dtype"), CASES, ids=name_of)
def test_a_rung_keeps_its_tolerance_at_every_small_size(
    evidence: Evidence, family: Family, rung: Rung, dtype: str
) -> None:
    compiled = evidence.compiled(family, rung, dtype)
    sets = family.emulated_sets(rung)
    assert sets
    executor = emulator_for(compiled)
    for attempt, size in enumerate(sets):  # each time other schedules, and other bytes in what nobody wrote
        what = operation(family, dtype, family.sizes[size])
        done = run_emulated(compiled, what, attempt=attempt % 2, executor=executor)
        assert done.passed, f"{size}: {done.message}"
    if family.specials:
        what = operation(family, dtype, family.sizes[sets[-1]], specials=family.specials)
        done = run_emulated(compiled, what, executor=executor)
        assert done.passed, f"{sets[-1]} with {', '.join(family.specials)}: {done.message}"


@pytest.mark.parametrize(("family", "rung"), RUNGS, ids=name_of)
def test_a_rung_shows_what_it_claims(evidence: Evidence, family: Family, rung: Rung) -> None:
    if not rung.misfit(family.sizes[COUNTED]):
        done = evidence.run(family, rung, rung.dtypes[0], COUNTED)
        assert done.passed, done.message
    results = check_claims(family, rung, evidence)
    assert results or rung is family.rungs[0], "a rung that claims nothing teaches nothing"
    assert [r.text for r in results if not r.holds] == []


# NVRTC 13.5 makes, from call to call, one of two texts of sgemm/20_little, a thousandth of the instructions apart.
UNSTEADY = frozenset({"sgemm"})


def is_near(one: str, other: str) -> bool:
    """The same words, and figures within a hundredth."""
    number = r"\d[\d,]*(?:\.\d+)?"
    figures = [[float(each.replace(",", "")) for each in re.findall(number, text)] for text in (one, other)]
    same = re.sub(number, "", one) == re.sub(number, "", other)
    return same and all(math.isclose(a, b, rel_tol=0.01) for a, b in zip(*figures, strict=True))


def without_figures(text: str) -> str:
    """A page as another compiler would leave it: the same words."""
    return re.sub(r"[\d.,]+|sm_\w+", "", text)


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_its_page_is_what_the_generator_makes(evidence: Evidence, family: Family) -> None:
    root = Path(__file__).parents[2]
    results = root / "benchmarks" / "results"
    record, load = results / f"ladder-{family.name}.json", results / f"h200-{family.name}-sustained.json"
    measured = msgspec.json.decode(record.read_bytes(), type=LadderBench) if record.is_file() else None
    sustained = msgspec.json.decode(load.read_bytes(), type=SustainedBench) if load.is_file() else None
    new = page(family, evidence, measured, sustained)
    home = root / "docs" / "ladder"
    old = (home / f"{family.name}.md").read_text("utf-8")
    made_with = re.compile(r"ladder_pages\.py with (.*?): not")
    told = "run: python benchmarks/ladder_pages.py"
    if made_with.findall(new.text) == made_with.findall(old):
        unsteady = family.name in UNSTEADY
        assert new.text == old or (unsteady and is_near(new.text, old)), told
        picture = (home / f"{family.name}.svg").read_text("utf-8")
        assert new.picture == picture or (unsteady and is_near(new.picture, picture)), told
        if new.ratios:
            assert new.ratios == (home / f"{family.name}-peers.svg").read_text("utf-8"), told
    else:
        assert without_figures(new.text) == without_figures(old), told


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_every_family_has_tiny_ragged_and_large_sizes(family: Family) -> None:
    values = {name: set(sizes.values()) for name, sizes in family.sizes.items()}
    emulated = set().union(*(values[name] for name in family.emulated_sets()))
    assert {1, 31, 33} <= emulated
    assert "ragged" in values
    assert "small" in values


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_a_result_that_is_a_little_off_is_caught(evidence: Evidence, family: Family) -> None:
    rung = family.rungs[0]
    dtype = rung.dtypes[0]
    compiled = evidence.compiled(family, rung, dtype)
    what = operation(family, dtype, family.sizes["small"])
    done = run_emulated(compiled, what)
    assert done.passed, done.message
    for name, expected in what.expected.items():
        array = next(a for a in what.launch.arrays if a.name == name)
        flat = int(np.argmax(np.abs(expected)))
        value = expected.reshape(-1)[flat]
        bound = tolerance_of(compiled, what, array.dtype, expected)
        wrong = value + 3 * (bound.absolute + bound.relative * abs(value)) + (1 if family.exact else 0)
        storage = done.outputs[name].copy()
        place = np.unravel_index(flat, array.shape)
        storage[sum(int(i) * s for i, s in zip(place, array.strides, strict=True))] = wrong
        assert not judge(compiled, what, {**done.outputs, name: storage}).passed


def barriers(family: Family) -> Rung | None:
    """The first rung with a barrier."""
    return next((r for r in family.rungs if "__syncthreads();" in r.file.read_text("utf-8")), None)


@pytest.mark.parametrize("family", [f for f in FAMILIES if barriers(f)], ids=name_of)
def test_a_barrier_that_is_dropped_is_caught(evidence: Evidence, family: Family) -> None:
    rung = barriers(family)
    assert rung is not None
    compiled = evidence.compiled(family, rung, rung.dtypes[0])
    what = operation(family, rung.dtypes[0], family.sizes["small"])
    first, *rest = compiled.programs
    twins = [m for m in synchronisation_mutants(first.ptx, first.kernel, 2) if m.kind == "barrier_removed"]
    twins = [m for m in twins if not m.may_be_equivalent]
    assert twins or rest, "a barrier of the source is not in the code"
    for twin in twins:
        broken = (replace(first, cubin=b"", ptx=twin.ptx), *rest)
        results = [run_emulated(compiled, what, programs=broken, attempt=attempt) for attempt in (0, 1)]
        assert not all(r.passed for r in results), twin.description


def unmasked(program: Program) -> list[Program]:
    """Twins without one of the branches that guard what follows them, or without one predicate of a store."""
    twins = []
    text = program.ptx
    for found in re.finditer(r"^[ \t]*@%p\d+ bra[^\n]*;|^[ \t]*@!?%p\d+ (?=st\.global|ld\.global)", text, re.MULTILINE):
        gap = "" if "bra" not in found[0] else " " * len(found[0])
        twins.append(replace(program, cubin=b"", ptx=text[: found.start()] + gap + text[found.end() :]))
    return twins


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_a_mask_that_is_dropped_is_caught(evidence: Evidence, family: Family) -> None:
    rung = family.rungs[0]
    compiled = evidence.compiled(family, rung, rung.dtypes[0])
    first, *rest = compiled.programs
    sets = [s for s in family.emulated_sets(rung) if s != "small"]
    for twin in unmasked(first):
        for size in sets:
            what = operation(family, rung.dtypes[0], family.sizes[size])
            done = run_emulated(compiled, what, programs=(twin, *rest))
            if any(h.kind.startswith("out_of_bounds") for h in done.hazards):
                return
    pytest.fail(f"no twin of {rung.name} without a mask was seen to leave its arrays")


def test_a_claim_that_does_not_hold_is_told() -> None:
    family = load_family("transpose")
    evidence = Evidence(Settings.from_environment())
    conflicts = Claim("counter", "shared_conflicts", "equals", 0)
    wide = Claim("sass", "LDG.E.128", "at_least", 1)
    merged = Claim("counter", "global_store_sectors", "ratio_at_most", 0.5, "01_naive")
    claiming = replace(family.rung("shared"), claims=(conflicts, wide, merged))
    assert [r.holds for r in check_claims(family, claiming, evidence)] == [False, False, True]
    unknown = replace(claiming, claims=(Claim("counter", "happiness", "at_least", 1),))
    with pytest.raises(TilewrightError, match="there is no counter 'happiness'"):
        check_claims(family, unknown, evidence)


def test_a_size_beyond_a_limit_is_refused_with_the_limit() -> None:
    from tilewright.ladder.family import Limit

    family = load_family("transpose")
    rung = replace(family.rungs[0], limits={"N": Limit(at_most=64, multiple_of=8)})
    compiled = compile_rung(rung_spec(family, rung, "float32"), Settings.from_environment())
    sizes = {"M": 8, "N": 72, "ld_x": 72}
    with pytest.raises(TilewrightError, match="N = 72; 01_naive takes at most 64 and a multiple of 8"):
        run_emulated(compiled, operation(family, "float32", sizes))


def test_what_is_near() -> None:
    assert is_near("a 5,001,216 b 0.5", "a 4,995,072 b 0.5")
    assert not is_near("a 5,001,216", "a 4,900,000")
    assert not is_near("a 5", "b 5")
