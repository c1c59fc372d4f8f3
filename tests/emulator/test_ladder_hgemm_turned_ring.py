"""HGEMM's product turned over in a ring that goes on: a card's tiles are right, and twins are caught."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from ladder_rings import EVERY, FAMILY, as_defines, built, mutants_of, not_caught

from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.running import Operation, emulator_for, operation, run_emulated

NAME = "39_turned_ring"
RUNG = FAMILY.rung(NAME)
Defines = tuple[tuple[str, int], ...]
# Sizes of which no tile is a divisor, with more tiles of k than a ring has stages, and several tiles for one cluster.
SIZES = {"M": 300, "N": 200, "K": 200, "ld_a": 208, "ld_b": 208}


def ring(consumers: int, each: int, height: int, shares_a: int) -> Defines:
    """Few stages, and one cluster for all tiles."""
    return as_defines(CONSUMERS=consumers, EACH=each, BM=height, SHARE_A=shares_a, STAGES=2, BLOCKS=2, GROUP=8)


# Heights of whole pieces of 32 rows, and with half a piece behind them.
CASES: dict[str, Iterable[tuple[str, int]]] = {
    "shared a": ring(2, 1, 80, 1),
    "shared b": ring(2, 2, 64, 0),
    "rows of b": ring(3, 1, 48, 0),  # each block brings half the rows of each of b's boxes
    "two clusters": {**dict(ring(2, 1, 80, 1)), "TW_BLOCKS": 4}.items(),  # none stores behind whom it might have spoilt
}
_FRESH = "proxy_fence_dropped.0"  # nothing but fresh mbarriers lies before it, and fence.mbarrier_init publishes those


@cache
def right(case: str) -> Operation:
    """What a case computes, and it does: twins of it differ from something that is right."""
    what = operation(FAMILY, "bfloat16", SIZES)
    assert [run_emulated(built(NAME, *CASES[case]), what, attempt=attempt).message for attempt in (0, 1)] == ["", ""]
    return what


@pytest.mark.parametrize("dtype", FAMILY.dtypes)
@pytest.mark.parametrize("case", CASES)
def test_a_ring_that_goes_round_is_right(case: str, dtype: str) -> None:
    compiled = built(NAME, *CASES[case], dtype=dtype)
    executor = emulator_for(compiled)
    what = operation(FAMILY, dtype, SIZES)
    for attempt in (0, 2):
        assert run_emulated(compiled, what, attempt=attempt, executor=executor).message == ""


def more_than_a_tile(compiled: CompiledRung) -> dict[str, int]:
    """Sizes with two or four tiles for a cluster, ragged behind the first; in all more of k than a ring has stages."""
    rows, columns = int(compiled.constants["ROWS"]) + 23, int(compiled.constants["BN"]) + 40
    return {"M": rows, "N": columns, "K": 136, "ld_a": 136, "ld_b": columns}


# Each shape once, with what the blocks of a cluster share by turns; all with ``TILEWRIGHT_LADDER_ALL=1``.
CHOICES = RUNG.choices if os.environ.get("TILEWRIGHT_LADDER_ALL") == "1" else [*RUNG.choices[::4], *RUNG.choices[3::4]]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda one: "-".join(map(str, one.values())))
def test_what_a_card_gets_of_a_choice_is_right_and_spills_nothing(choice: dict[str, int]) -> None:
    """In either type, by turns."""
    dtype = FAMILY.dtypes[sum(choice.values()) // 16 % 2]
    made = replace(RUNG, choices=(choice,)).at(FAMILY.sizes["default"], dtype)
    assert set(choice.items()) <= set(made.defines.items())
    assert int(made.defines["TW_STAGES"]) >= 3
    compiled = built(NAME, *{**made.defines, "TW_BLOCKS": 2, "TW_GROUP": 2}.items(), dtype=dtype)
    assert compiled.spill_bytes == 0
    what = operation(FAMILY, dtype, more_than_a_tile(compiled))
    assert run_emulated(compiled, what, attempt=1).message == ""


@pytest.mark.parametrize("case", CASES)
def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught(case: str) -> None:
    compiled = built(NAME, *CASES[case])
    mutants = mutants_of(compiled, {_FRESH})[list(CASES).index(case) % EVERY :: EVERY]
    assert not list(not_caught(compiled, right(case), mutants))


TWINS = [
    ("shared a", "k_tiles - 1 - t", "k_tiles - t"),
    ("shared a", "place.row * ROWS + rank * A_ROWS", "place.row * ROWS"),
    ("shared a", "to + rank * A_ROWS * 128, &a_map", "to + (1 - rank) * A_ROWS * 128, &a_map"),
    ("shared a", "rank * (SHARES_A ? BN : HAS_WHOLE_BOXES * B_BOXES * 64)", "0"),
    ("shared a", "SHARES_A * rank_again * BN + part", "part"),
    ("shared a", "part * EACH * BOX_BYTES, 0", "0, 0"),
    ("shared a", "t > 0 || k > 0", "true"),
    ("shared a", "wait_until_read<SLOTS - 1>", "wait_until_read<SLOTS>"),
    ("two clusters", "BM - j < SLOT_ROWS ? BM - j : SLOT_ROWS", "SLOT_ROWS"),  # of the next tile's rows
    ("shared a", "BM - j < SLOT_ROWS ? BM - j : SLOT_ROWS", "STORE_ROWS"),
    ("shared a", "sync_warpgroups(1 + part);  //", "//"),
    ("shared b", "place.row * ROWS + rank * A_ROWS", "place.row * ROWS"),
    ("shared b", "k * 128 + i * BOX_BYTES", "k * 128"),
    ("shared b", "first_column + i * 64, first_row + j", "first_column, first_row + j"),
    ("shared b", "!SHARES_A * rank_again * BM", "0"),
    ("shared b", "(j + row) / 2", "row / 2"),
    ("rows of b", "!HAS_WHOLE_BOXES * rank * B_BOX_ROWS", "0"),
    ("rows of b", ": B_BOX_ROWS * 128)", ": 0)"),
]


@pytest.mark.parametrize(("case", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(case: str, old: str, new: str) -> None:
    what = right(case)
    twin = built(NAME, *CASES[case], twin=(old, new))
    assert not all(run_emulated(twin, what, attempt=attempt).passed for attempt in (0, 1))


def test_each_tile_of_a_cluster_walks_k_the_other_way() -> None:
    """Each result is 2**26 - 2**26 + 1, in this order of three tiles of k: from the other end a float32 loses the 1."""
    sizes = {"M": 240, "N": 512, "K": 192, "ld_a": 192, "ld_b": 512}
    what = operation(FAMILY, "float16", sizes)
    a, b = np.zeros((240, 192), np.float16), np.zeros((192, 512), np.float16)
    a[:, [0, 64, 128]] = 8192, -8192, 1
    b[[0, 64, 128]] = [[8192], [8192], [1]]
    inputs = {"a": a.ravel(), "b": b.ravel()}
    for twin, odd in ((None, 0), (("is_backward = !is_backward", "is_backward = false"), 1)):
        compiled = built(NAME, *CASES["shared a"], dtype="float16", twin=twin)
        run = run_emulated(compiled, replace(what, inputs=inputs), attempt=1)
        tiles = run.outputs["c"].reshape(3, 80, 2, 256).astype(float).transpose(2, 0, 1, 3).reshape(6, -1)
        assert (tiles[::2] == 1).all()
        assert (tiles[1::2] == odd).all()
