"""HGEMM's rungs that any card with asynchronous copies runs: broken twins, the order of the tiles, small tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.sass.listing import disassemble
from tilewright.sass.proof import OverlapProof, prove
from tilewright.settings import Settings

FAMILY = load_family("hgemm")
SMALL_TILES = {"TW_BM": 64, "TW_BN": 64, "TW_WM": 32, "TW_WN": 32, "TW_STAGES": 4}
# 10 rows of tiles, so that the last band is a short one, and 2 columns, of tiles of 64 x 64.
BANDS = {"M": 64 * 9 + 5, "N": 72, "K": 16, "ld_a": 24, "ld_b": 80}
RAGGED = {"M": 69, "N": 72, "K": 136, "ld_a": 144, "ld_b": 88}  # more tiles of K than stages, and a short one

# (rung, what stands there, what stands there in the twin)
TWINS = [
    ("04_swizzle", "b_place = (b_column / 8 ^ b_k % 8) * 8", "b_place = (b_column / 8 ^ b_k % 4) * 8"),
    ("04_swizzle", "k0 + b_k + i < K && first_column", "first_column"),
    ("07_cp_async3", "first_row + a_row + i < M && k0", "k0"),
    ("09_register_double", "load_parts(read_stage, (step + 1) % STEPS,", "load_parts(read_stage, step,"),
    ("09_register_double", "STAGES - 1) * BK, write_stage)", "STAGES - 1) * BK, read_stage)"),
    ("11_wide_stores", "__syncthreads();  // nobody reads the ring", "// nobody reads the ring"),
    ("11_wide_stores", "row < M && column < N", "row < M"),
    ("34_little", "j < left ?", "true ?"),
    ("34_little", "row + i * 8 < M ? there : 0", "there"),
    ("34_little", "__syncthreads();", ""),
]


def compiled(rung_name: str, old: str = "", new: str = "", defines: Mapping[str, int] | None = None) -> CompiledRung:
    rung = FAMILY.rung(rung_name)
    rung = replace(rung, defines={**rung.defines, **(defines or {})})
    text = rung.file.read_text("utf-8")
    assert old in text
    return compile_rung(rung_spec(FAMILY, rung, "float16"), Settings.from_environment(), text=text.replace(old, new))


def message(rung: CompiledRung, sizes: Mapping[str, int]) -> str:
    return run_emulated(rung, operation(FAMILY, "float16", sizes)).message


@pytest.mark.parametrize(("rung", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(rung: str, old: str, new: str) -> None:
    assert message(compiled(rung, old, new, SMALL_TILES), RAGGED)


def test_bands_make_every_tile_once_the_short_one_too() -> None:
    assert message(compiled("10_raster", defines=SMALL_TILES), BANDS) == ""
    assert message(compiled("10_raster", "inside / height", "inside / BAND", SMALL_TILES), BANDS)


def test_a_swizzle_of_half_the_banks_is_right_and_has_conflicts() -> None:
    text = FAMILY.rung("04_swizzle").file.read_text("utf-8")
    assert text.count("b_k % 8") == text.count("^ row % 8") == 1
    half = text.replace("b_k % 8", "b_k % 4").replace("^ row % 8", "^ row % 4")
    rung = compile_rung(rung_spec(FAMILY, FAMILY.rung("04_swizzle"), "float16"), Settings.from_environment(), text=half)
    done = run_emulated(rung, operation(FAMILY, "float16", FAMILY.sizes["small"]), counters=True)
    assert done.passed
    assert done.counters["shared_conflicts"] > 0


def test_a_ring_without_one_of_its_waits_or_barriers_is_caught() -> None:
    rung = compiled("09_register_double", defines=SMALL_TILES)
    what = operation(FAMILY, "float16", {"M": 64, "N": 64, "K": 168, "ld_a": 168, "ld_b": 64})
    (program,) = rung.programs
    twins = [m for m in synchronisation_mutants(program.ptx, program.kernel, 1) if not m.may_be_equivalent]
    assert {"barrier_removed", "wait_removed"} <= {m.kind for m in twins}
    for twin in twins:
        broken = (replace(program, cubin=b"", ptx=twin.ptx),)
        assert not all(run_emulated(rung, what, programs=broken, attempt=n).passed for n in (0, 1)), twin.description


def proof(rung: CompiledRung) -> OverlapProof:
    (artifact,) = rung.artifacts
    function = disassemble(artifact.cubin, Settings.from_environment()).function(artifact.kernel)
    assert function is not None
    return prove(function)


def test_the_machine_code_of_the_last_rung_overlaps_and_waits_for_one_tile_only() -> None:
    ready = proof(compiled("10_raster", defines=SMALL_TILES))
    assert (ready.verdict, ready.math_kind) == ("overlap", "HMMA")
    assert ready.mean_in_flight > 2
    hasty = compiled(
        "10_raster", "wait_for_copies<STAGES - 2>();  // the next", "wait_for_copies<0>();  // the next", SMALL_TILES
    )
    assert proof(hasty).mean_in_flight < 1
