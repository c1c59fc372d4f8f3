"""SGEMM and SGEMV: broken twins of rungs, each of which has to be caught at the sizes that the families have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.settings import Settings

# (family, rung, what stands there, what stands there in the twin)
TWINS = [
    ("sgemm", "06_conflict_free", "k0 + k < K && first_column + column < N", "first_column + column < N"),
    ("sgemm", "06_conflict_free", "row < M && column < N", "column < N"),
    ("sgemm", "10_cp_async3", "&a_tile[k][patch_row", "&a_tile[0][patch_row"),
    ("sgemm", "16_split_k", "min(K, begin + part_length)", "min(K, begin + part_length - BK)"),
    ("sgemm", "16_split_k", "part < PARTS", "part < PARTS - 1"),
    ("sgemv", "03_vector", "done = N / TW_PACK * TW_PACK;", "done = N;"),
    ("sgemv", "05_split_k", "max(begin, end / TW_PACK * TW_PACK)", "end / TW_PACK * TW_PACK"),
    ("sgemv", "05_split_k", "min(begin + length, (long long)N)", "begin + length"),
]


def messages(family_name: str, rung_name: str, old: str, new: str) -> list[str]:
    """What is wrong with a twin, at each of the emulated sizes."""
    family = load_family(family_name)
    rung = family.rung(rung_name)
    text = rung.file.read_text("utf-8")
    assert old in text
    compiled = compile_rung(
        rung_spec(family, rung, "float32"), Settings.from_environment(), text=text.replace(old, new)
    )
    sets = [s for s in family.emulated_sets(rung) if s.startswith("ragged")]
    return [run_emulated(compiled, operation(family, "float32", family.sizes[s])).message for s in sets]


@pytest.mark.parametrize(("family", "rung", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(family: str, rung: str, old: str, new: str) -> None:
    assert any(messages(family, rung, old, new))


def test_a_ring_without_one_of_its_waits_or_barriers_is_caught() -> None:
    family = load_family("sgemm")
    rung = family.rung("14_tf32_cp_async3")
    compiled = compile_rung(rung_spec(family, rung, "float32"), Settings.from_environment())
    what = operation(family, "float32", family.sizes["ragged_packs"])
    program = compiled.programs[0]
    twins = [m for m in synchronisation_mutants(program.ptx, program.kernel, 1) if not m.may_be_equivalent]
    assert {"barrier_removed", "wait_removed"} <= {m.kind for m in twins}
    for twin in twins:
        broken = (replace(program, cubin=b"", ptx=twin.ptx),)
        results = [run_emulated(compiled, what, programs=broken, attempt=attempt) for attempt in (0, 1)]
        assert not all(r.passed for r in results), twin.description
