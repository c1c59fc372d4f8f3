"""IGEMM and W8A8: sums that wrap around, rings that go round, tiles of a card; broken twins are caught."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.references.igemm import igemm
from tilewright.ladder.running import RungRun, emulator_for, operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.settings import Settings

FAMILIES = {name: load_family(name) for name in ("igemm", "w8a8")}


def sizes(m: int, n: int, k: int, ld_a: int = 0, ld_b: int = 0) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "ld_a": ld_a or k, "step_a": 1, "ld_b": ld_b or k, "step_b": 1}


# Sizes of which no tile is a divisor, with more tiles of k than a ring has stages, and more tiles than blocks.
SIZES = sizes(300, 136, 312, 320, 336)
FEW = sizes(70, 72, 648, 656, 656)
EVERY = int(os.environ.get("TILEWRIGHT_IGEMM_MUTANTS", "32"))  # of the mutants, one in so many is looked at
# By rung: where it is run, and mutants that are no faults.
_FRESH = "proxy_fence_dropped.0"  # nothing but fresh mbarriers lies before it, and fence.mbarrier_init publishes those
_ONE_WARPGROUP = "empty_wait_dropped.0"  # it alone reads the stage, and its products are over: all four warps' at once
MUTATED = {
    ("igemm", "20_wgmma"): (FEW, {_FRESH, _ONE_WARPGROUP}),
    ("igemm", "21_specialised"): (FEW, {_FRESH}),
    ("igemm", "22_persistent"): (SIZES, {_FRESH}),
    ("igemm", "23_pingpong"): (SIZES, {_FRESH}),
    ("igemm", "24_split_k"): (FEW, {_FRESH, "proxy_fence_dropped.1"}),
    ("w8a8", "20_persistent"): (SIZES, {_FRESH}),
}


@cache
def built(
    family: str, name: str, defines: tuple[tuple[str, int], ...] = (), old: str = "", new: str = ""
) -> CompiledRung:
    """A rung, or its twin that has ``new`` in the place of ``old``."""
    rung = FAMILIES[family].rung(name)
    text = rung.file.read_text("utf-8")
    assert old in text
    spec = rung_spec(FAMILIES[family], replace(rung, defines={**rung.defines, **dict(defines)}), rung.dtypes[0])
    return compile_rung(spec, Settings.from_environment(), text=text.replace(old, new) if old else text)


def run(compiled: CompiledRung, of: Mapping[str, int], attempt: int = 0, counters: bool = False) -> RungRun:
    family = compiled.spec.family
    return run_emulated(compiled, operation(family, family.dtypes[0], of), attempt=attempt, counters=counters)


def test_sums_beyond_int32_wrap_around() -> None:
    """2**17 products of -128 by -128 are 2**31, one more than int32 has; some more of 127 by -128 the other way."""
    family, of = FAMILIES["igemm"], sizes(2, 16, 2**17 + 2048)
    a, b = np.full((2, of["K"]), -128, np.int8), np.full((16, of["K"]), -128, np.int8)
    a[1] = 127
    need = np.array([2**14 * of["K"] - 2**32, 2**32 - 127 * 128 * of["K"]], np.float64)
    assert -(2**31) < need.min() < need.max() < 2**31
    expected = np.repeat(need[:, None], 16, axis=1)
    assert np.array_equal(igemm(a, b)["c"], expected)
    what = replace(
        operation(family, "int8", of), inputs={"a": a.reshape(-1), "b": b.reshape(-1)}, expected={"c": expected}
    )
    executor = emulator_for(built("igemm", "20_wgmma"), checks=False)
    assert run_emulated(built("igemm", "20_wgmma"), what, executor=executor).message == ""


@pytest.mark.parametrize(
    ("family", "name"), [("igemm", "22_persistent"), ("igemm", "23_pingpong"), ("w8a8", "20_persistent")]
)
def test_a_ring_that_goes_round_is_right(family: str, name: str) -> None:
    assert run(built(family, name), SIZES, attempt=2).message == ""


PERSISTENT = (("TW_BN", 256), ("TW_STAGES", 4), ("TW_BLOCKS", 2), ("TW_GROUP", 2), ("TW_SLOTS", 2), ("TW_CLUSTER", 2))
SPLIT = (("TW_BM", 128), ("TW_BN", 128), ("TW_STAGES", 6), ("TW_PARTS", 2), ("TW_TOGETHER", 4), ("TW_AHEAD", 4))
PLAYERS = (("TW_BM", 128), ("TW_BN", 128), ("TW_STAGES", 6), ("TW_BLOCKS", 2), ("TW_GROUP", 8), ("TW_SLOTS", 2))
CARD = [
    ("igemm", "22_persistent", PERSISTENT),
    ("igemm", "23_pingpong", (*PLAYERS, ("TW_CLUSTER", 2))),
    ("igemm", "24_split_k", SPLIT),
    ("w8a8", "20_persistent", PERSISTENT),
    ("w8a8", "21_split_k", SPLIT),
]


@pytest.mark.parametrize(("family", "name", "defines"), CARD)
def test_tiles_of_a_card_are_right_and_spill_nothing(
    family: str, name: str, defines: tuple[tuple[str, int], ...]
) -> None:
    compiled = built(family, name, defines)
    assert compiled.spill_bytes == 0
    assert run(compiled, sizes(270, 264, 656), attempt=1).message == ""


@pytest.mark.parametrize(("family", "name"), MUTATED)
def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught(family: str, name: str) -> None:
    of, equivalent = MUTATED[family, name]
    compiled = built(family, name)
    what = operation(FAMILIES[family], FAMILIES[family].dtypes[0], of)
    program = compiled.programs[0]
    mutants = synchronisation_mutants(program.ptx, program.kernel, None)
    assert equivalent <= {m.name for m in mutants}
    assert {"full_wait_dropped", "wrong_phase", "arrive_dropped", "wgmma_wait_dropped"} <= {m.kind for m in mutants}
    for mutant in [m for m in mutants if m.name not in equivalent][
        list(MUTATED).index((family, name)) % EVERY :: EVERY
    ]:
        broken = (replace(program, cubin=b"", ptx=mutant.ptx),)
        assert any(not run_emulated(compiled, what, programs=broken, attempt=attempt).passed for attempt in (0, 1)), (
            mutant.name
        )


# (family, rung, what stands there, what stands there in the twin)
TWINS = [
    ("igemm", "01_dp4a", "(unsigned char)row", "row"),  # the sign of a byte spoils the three above it
    (
        "igemm",
        "02_mma_ldmatrix",
        "b_part[j / 2][j % 2], b_part[j / 2][j % 2 + 2]",
        "b_part[j / 2][j % 2 * 2], b_part[j / 2][j % 2 * 2 + 1]",
    ),
    ("igemm", "03_cp_async", "first_column + i < N && k < K", "k < K"),
    ("igemm", "03_cp_async", "STAGES - 2>();  // this", "STAGES - 1>();  // this"),
    ("igemm", "04_swizzle", "^ lane / 2 % 4", "^ lane % 4"),
    ("igemm", "22_persistent", "moved(of_a, k), moved(of_b, k)", "moved(of_a, k), moved(of_b, k / 2)"),
    ("igemm", "22_persistent", "to + A_BYTES + rank * B_ROWS * BK", "to + A_BYTES"),
    ("igemm", "23_pingpong", "turn.skip(k_tiles);  // those", "// those"),
    ("igemm", "24_split_k", "sum.w += ", "sum.w = "),
    ("w8a8", "20_persistent", "i & 2 ? lower_scale : upper_scale", "upper_scale"),
    ("w8a8", "20_persistent", "two[chunk] = next[chunk]", "two[chunk] = two[chunk]"),
    ("w8a8", "21_split_k", "two.of(1, lower[1], lower_scale)", "two.of(0, lower[1], lower_scale)"),
]


@pytest.mark.parametrize(("family", "name", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(family: str, name: str, old: str, new: str) -> None:
    of = sizes(70, 72, 656) if name < "20" else SIZES
    assert any(not run(built(family, name, (), old, new), of, attempt).passed for attempt in (0, 1))


def test_results_go_to_other_banks_in_odd_rows() -> None:
    header = FAMILIES["igemm"].file.parent.parent / "include" / "wgmma_s8.cuh"
    plain = header.read_text("utf-8").replace("const bool is_odd = row % 2;", "const bool is_odd = false;")
    twin = built("igemm", "22_persistent", (), '#include "wgmma_s8.cuh"', plain.replace("#pragma once", ""))
    done = run(twin, SIZES, counters=True)
    assert done.passed, done.message
    assert done.counters["shared_conflicts"] > 0


def test_products_go_to_a_rung_that_takes_their_rows() -> None:
    def chosen(of: Mapping[str, int], address: int = 0) -> str:
        return FAMILIES["igemm"].best(of, "int8", lambda arch: True, address).name

    large = sizes(4096, 4096, 4096)
    assert chosen(large) >= "04"
    assert chosen(large, address=1) == "25_packed"
    assert chosen({**large, "ld_b": 1, "step_b": 4096}) == "25_packed"  # b is [K, N], row by row
    assert chosen({**large, "K": 4095, "ld_a": 4095, "ld_b": 4095}) == "25_packed"
    assert chosen({**large, "K": 0}) < "20"
    with pytest.raises(TilewrightError, match="step_b = 80; 22_persistent takes at least 1 and at most 1"):
        run(built("igemm", "22_persistent"), {**FEW, "ld_b": 16, "step_b": 80})
    with pytest.raises(TilewrightError, match="ld_a = 650; 24_split_k takes at least 16 and a multiple of 16"):
        run(built("igemm", "24_split_k"), {**FEW, "ld_a": 650})


@pytest.mark.parametrize(("family", "name"), [("igemm", "24_split_k"), ("w8a8", "21_split_k")])
def test_two_blocks_share_a_multiprocessor_where_one_would_have_wide_tiles(family: str, name: str) -> None:
    """Of 64 rows: 67.3 us on an H200 for 28,672 columns in tiles of 112, 68.5 in tiles of 224."""
    rung = FAMILIES[family].rung(name)
    for columns in range(64, 33793, 64):
        defines = rung.at(sizes(64, columns, 8192), rung.dtypes[0]).defines
        bn, stages = int(defines["TW_BN"]), int(defines["TW_STAGES"])
        blocks = int(defines["TW_PARTS"]) * -(-columns // bn)
        assert blocks <= (132 if columns <= 16896 else 264)
        assert bn <= 128
        assert columns <= 16896 or (2 * (stages * (64 + bn) * 128 + 2048) <= 233472 and stages >= 4)
    assert rung.at(sizes(64, 28672, 8192), rung.dtypes[0]).defines["TW_BN"] == 112
