"""HGEMM's tiles that walk k back and forth, and those of other shapes: a card's are right, and twins are caught."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from ladder_rings import EVERY, FAMILY, as_defines, built, mutants_of, not_caught

from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.family import Rung
from tilewright.ladder.running import Operation, emulator_for, operation, run_emulated

BACK, FITTED = "36_back_and_forth", "37_fitted"
Defines = tuple[tuple[str, int], ...]
# Sizes of which no tile is a divisor, with more tiles of k than a ring has stages, and several tiles for one cluster.
SIZES = {"M": 300, "N": 200, "K": 200, "ld_a": 208, "ld_b": 208}


def fitted(consumers: int, each: int, columns: int, shares_a: int, slots: int = 1) -> Defines:
    """Few stages, and one cluster for all tiles."""
    return as_defines(
        CONSUMERS=consumers, EACH=each, BN=columns, SHARE_A=shares_a, SLOTS=slots, STAGES=2, BLOCKS=2, GROUP=8
    )


# A rung and its tiles. Where one slot is all there is, more than 16 columns are left of a tile: up to 16 lie where the
# first warp writes next, whose thread waits for the slot, and nobody would miss the barrier behind that.
CASES = {
    "back": (BACK, ()),
    "left over": (BACK, as_defines(BN=96, STAGES=2, BLOCKS=2, GROUP=2)),
    "shared a": (FITTED, fitted(3, 1, 160, 1)),
    "shared b": (FITTED, fitted(2, 2, 80, 0, slots=2)),
    "rows of b": (FITTED, fitted(3, 1, 144, 0)),  # each block brings half the rows of each of b's boxes
    "two products": (FITTED, fitted(3, 1, 208, 0)),  # a step's, of 128 columns and of 80
}
RINGS = ("back", "shared a", "shared b")
_FRESH = "proxy_fence_dropped.0"  # nothing but fresh mbarriers lies before it, and fence.mbarrier_init publishes those


@cache
def right(case: str) -> Operation:
    """What a case computes, and it does: twins of it differ from something that is right."""
    name, defines = CASES[case]
    what = operation(FAMILY, "bfloat16", SIZES)
    assert [run_emulated(built(name, *defines), what, attempt=attempt).message for attempt in (0, 1)] == ["", ""]
    return what


@pytest.mark.parametrize("dtype", FAMILY.dtypes)
@pytest.mark.parametrize("case", RINGS)
def test_a_ring_that_goes_round_is_right(case: str, dtype: str) -> None:
    name, defines = CASES[case]
    compiled = built(name, *defines, dtype=dtype)
    executor = emulator_for(compiled)
    what = operation(FAMILY, dtype, SIZES)
    for attempt in (0, 2):
        assert run_emulated(compiled, what, attempt=attempt, executor=executor).message == ""


def more_than_a_tile(compiled: CompiledRung) -> dict[str, int]:
    """Sizes with two or four tiles for a cluster, ragged behind the first; in all more of k than a ring has stages."""
    rows = int(compiled.constants.get("ROWS", 256))
    columns = int(compiled.constants["BN"]) + 40
    return {"M": rows + 23, "N": columns, "K": 136, "ld_a": 136, "ld_b": columns}


def of_a_card(rung: Rung, choice: dict[str, int], dtype: str) -> CompiledRung:
    """What a card gets of a choice, for one cluster; which sizes it is for makes no difference to stages and slots."""
    made = replace(rung, choices=(choice,)).at(FAMILY.sizes["default"], dtype)
    assert set(choice.items()) <= set(made.defines.items())
    return built(rung.name, *{**made.defines, "TW_BLOCKS": 2, "TW_GROUP": 2}.items(), dtype=dtype)


# Of the widths that no choice has, those that came with this rung. Three warpgroups have no 216: it would be a product
# of 128 and one of 88, and there is none of 88.
OTHERS = [
    dict(as_defines(CONSUMERS=consumers, EACH=1, BN=columns, SHARE_A=shares_a))
    for consumers, columns in ((3, 152), (2, 216))
    for shares_a in (0, 1)
]


@pytest.mark.parametrize(
    "choice", [*FAMILY.rung(FITTED).choices, *OTHERS], ids=lambda one: "-".join(map(str, one.values()))
)
def test_tiles_that_fit_a_card_are_right_and_spill_nothing(choice: dict[str, int]) -> None:
    """In either type, by turns."""
    dtype = FAMILY.dtypes[choice["TW_BN"] // 16 % 2]
    compiled = of_a_card(FAMILY.rung(FITTED), choice, dtype)
    assert compiled.spill_bytes == 0
    what = operation(FAMILY, dtype, more_than_a_tile(compiled))
    assert run_emulated(compiled, what, attempt=1).message == ""


@pytest.mark.parametrize("choice", FAMILY.rung(BACK).choices, ids=lambda one: str(one["TW_BN"]))
def test_a_cards_tiles_that_walk_back_and_forth_are_right_and_spill_nothing(choice: dict[str, int]) -> None:
    compiled = of_a_card(FAMILY.rung(BACK), choice, "bfloat16")
    assert compiled.spill_bytes == 0
    what = operation(FAMILY, "bfloat16", more_than_a_tile(compiled))
    assert run_emulated(compiled, what, attempt=1).message == ""


@pytest.mark.parametrize("case", RINGS)
def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught(case: str) -> None:
    name, defines = CASES[case]
    compiled = built(name, *defines)
    mutants = mutants_of(compiled, {_FRESH})[RINGS.index(case) % EVERY :: EVERY]
    assert not list(not_caught(compiled, right(case), mutants))


TWINS = [
    ("back", "k_tiles - 1 - t", "k_tiles - t"),
    ("back", "place.row * ROWS + rank * BM;", "place.row * ROWS;"),
    ("back", "t > 0 || k > 0", "true"),
    ("left over", "is_left ? &c_left_map : &c_map", "&c_map"),
    ("left over", "store_sums<64>", "store_sums"),
    ("shared a", "k_tiles - 1 - t", "k_tiles - t"),
    ("shared a", "rank * (SHARES_A ? A_ROWS : BM)", "rank * BM"),
    ("shared a", "to + rank * A_ROWS * 128, &a_map", "to + (1 - rank) * A_ROWS * 128, &a_map"),
    ("shared a", "rank * (SHARES_A ? BN : HAS_WHOLE_BOXES * B_BOXES * 64)", "0"),
    ("shared a", "COLUMNS + SHARES_A * rank_again * BN", "COLUMNS"),
    ("shared a", "is_left ? &c_left_map : &c_map", "&c_map"),
    ("shared a", "sum_row(thread, i) * LEFT", "sum_row(thread, i) * 64"),
    ("shared a", "wait_until_read<SLOTS - 1>", "wait_until_read<SLOTS>"),
    ("shared b", "k_tiles - 1 - t", "k_tiles - t"),
    ("shared b", "rank * (SHARES_A ? A_ROWS : BM)", "0"),
    ("shared b", "k * 2 + i * 64 * 128", "k * 2"),
    ("shared b", "first_row + i * 64", "first_row"),
    ("shared b", "!SHARES_A * rank_again * BM + part", "part"),
    ("rows of b", "!HAS_WHOLE_BOXES * rank * B_BOX_ROWS", "0"),
    ("rows of b", ": B_BOX_ROWS * 128)", ": 0)"),
    ("two products", "FIRST * BK * 2", "FIRST * 2"),
    ("two products", "part_of<REST ? FIRST / 2 : 0,", "part_of<0,"),
]


@pytest.mark.parametrize(("case", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(case: str, old: str, new: str) -> None:
    name, defines = CASES[case]
    what = right(case)
    twin = built(name, *defines, twin=(old, new))
    assert not all(run_emulated(twin, what, attempt=attempt).passed for attempt in (0, 1))


def is_forward(compiled: CompiledRung, rows: int, columns: int) -> np.ndarray:
    """Which results of a cluster's six tiles have been summed up from the least k on.

    Each is 2**26 - 2**26 + 1, in this order of three tiles of k. From the other end the 1 is lost in a float32.
    """
    sizes = {"M": 3 * rows, "N": 2 * columns, "K": 192, "ld_a": 192, "ld_b": 2 * columns}
    what = operation(FAMILY, "float16", sizes)
    a, b = np.zeros((sizes["M"], 192), np.float16), np.zeros((192, sizes["N"]), np.float16)
    a[:, [0, 64, 128]] = 8192, -8192, 1
    b[[0, 64, 128]] = [[8192], [8192], [1]]
    run = run_emulated(compiled, replace(what, inputs={"a": a.ravel(), "b": b.ravel()}), attempt=1)
    c = run.outputs["c"].reshape(3, rows, 2, columns).astype(float)
    assert np.isin(c, (0, 1)).all()
    ones = c.mean(axis=(1, 3))
    assert np.isin(ones, (0, 1)).all(), "each tile has one direction"
    return ones == 1


@pytest.mark.parametrize(
    ("name", "defines", "rows", "columns"),
    [
        (BACK, as_defines(BN=64, STAGES=2, BLOCKS=2, GROUP=8), 256, 64),
        (FITTED, fitted(2, 1, 64, 0), 256, 64),
        (FITTED, fitted(2, 1, 64, 1), 128, 128),
    ],
)
def test_each_tile_of_a_cluster_walks_k_the_other_way(name: str, defines: Defines, rows: int, columns: int) -> None:
    """One column of tiles after the other."""
    compiled = built(name, *defines, dtype="float16")
    assert is_forward(compiled, rows, columns).T.tolist() == [[True, False, True], [False, True, False]]
    one_way = built(name, *defines, dtype="float16", twin=("is_backward = !is_backward", "is_backward = false"))
    assert is_forward(one_way, rows, columns).all()
