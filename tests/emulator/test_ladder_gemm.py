"""SGEMM and SGEMV: broken twins of rungs, each of which has to be caught at the sizes that the families have."""

from __future__ import annotations

from collections.abc import Iterator
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
    ("sgemm", "17_left_over_first", "terms == BK ||", "true ||"),
    ("sgemm", "17_left_over_first", "over + (begin - 1) * BK", "begin * BK"),
    ("sgemm", "17_left_over_first", "min(b_column, columns - 4)", "b_column"),
    ("sgemm", "17_left_over_first", "step + 2 < left", "step + 1 < left"),
    ("sgemm", "18_any_pitch", "a_row + i + A_ROWS < rows", "true"),
    ("sgemm", "18_any_pitch", "column + 1 < N", "column < N"),
    ("sgemm", "19_stream_k", "draws_last(tickets + border, 2)", "true"),
    ("sgemm", "19_stream_k", "blockIdx.x + !now.is_end", "blockIdx.x"),
    ("sgemm", "19_stream_k", "is_end * (BM * BN / 4) + i * THREADS] =", "i * THREADS] ="),
    ("sgemm", "19_stream_k", "phase ^= 1;  // that", "// that"),
    ("sgemm", "19_stream_k", "__syncthreads();  // nobody reads", "// nobody reads"),
    ("sgemm", "20_little", "k0 + a_k < K", "true"),
    ("sgemm", "20_little", "part < WARPS", "part < WARPS - 1"),
    ("sgemm", "20_little", "k0 + warp * WK < K", "warp * WK < K - BK"),
    ("sgemm", "21_parts_in_memory", "part + i < PARTS", "part + i < PARTS - 1"),
    ("sgemm", "21_parts_in_memory", "blockIdx.z * M * N", "blockIdx.z * M * N / 2"),
    ("sgemm", "22_packed", "draws_last(ticket, now.parts)", "true"),
    ("sgemm", "22_packed", "number / STAGES - 1 & 1", "number / STAGES & 1"),
    ("sgemm", "22_packed", "first_k + warp + i < depth", "true"),
    ("sgemm", "22_packed", "column + 1 < N", "column < N"),
    ("sgemm", "23_half_packed", "now.place.column * BN, now.first_step * BK", "now.place.column * BN, 0"),
    ("sgemm", "24_mapped", "pair / 4 ^ i % 2 * 2", "pair / 4"),
    ("sgemv", "03_vector", "done = N / TW_PACK * TW_PACK;", "done = N;"),
    ("sgemv", "05_split_k", "max(begin, end / TW_PACK * TW_PACK)", "end / TW_PACK * TW_PACK"),
    ("sgemv", "05_split_k", "min(begin + length, (long long)N)", "begin + length"),
    ("sgemv", "06_short_rows", "column < N ? there", "true ? there"),
    ("sgemv", "06_short_rows", "first + lane * GROUPS", "first + lane"),
    ("sgemv", "06_short_rows", "min(first + i * GROUPS, M - 1)", "first + i * GROUPS"),
    ("sgemv", "07_last_block", "draws_last(tickets + row, SPLITS)", "true"),
    ("sgemv", "07_last_block", "TW_PACK + blockIdx.x * THREADS", "TW_PACK"),
]


def messages(family_name: str, rung_name: str, old: str, new: str) -> Iterator[str]:
    """What is wrong with a twin, at one of the emulated sizes after the other."""
    family = load_family(family_name)
    rung = family.rung(rung_name)
    text = rung.file.read_text("utf-8")
    assert old in text
    compiled = compile_rung(
        rung_spec(family, rung, "float32"), Settings.from_environment(), text=text.replace(old, new)
    )
    sets = [s for s in family.emulated_sets(rung) if s.startswith(("ragged", "tiny_31"))]
    for size in sets:
        yield run_emulated(compiled, operation(family, "float32", family.sizes[size])).message


@pytest.mark.parametrize(("family", "rung", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(family: str, rung: str, old: str, new: str) -> None:
    assert any(messages(family, rung, old, new))


# SGEMV as a card gets it: rung, M, N, a row's pitch. Lanes of a row from one to 32, rows that are no packs, split ones.
SIZED = [
    *(("06", 5, 3, 3), ("06", 70, 64, 64), ("06", 71, 61, 64), ("06", 9, 1000, 1000)),
    *(("05", 1, 140_000, 140_000), ("07", 3, 70_001, 70_004)),
]


@pytest.mark.parametrize(("which", "rows", "columns", "pitch"), SIZED)
def test_rows_of_a_vectors_product_as_a_card_gets_them(which: str, rows: int, columns: int, pitch: int) -> None:
    family = load_family("sgemv")
    sizes = {"M": rows, "N": columns, "ld_a": pitch}
    compiled = compile_rung(
        rung_spec(family, family.rung(which).at(sizes, "float32"), "float32"), Settings.from_environment()
    )
    done = run_emulated(compiled, operation(family, "float32", sizes))
    assert done.passed, done.message
    assert compiled.spill_bytes == 0


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
