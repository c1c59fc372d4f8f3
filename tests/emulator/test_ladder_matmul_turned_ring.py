"""Linear layers turned over in a ring that goes on: layouts, epilogues, a card's tiles, and twins that are caught."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_ladder_matmul import ALL, FAMILY, LAYOUTS, built, sizes

from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.running import RungRun, operation, run_emulated
from tilewright.mutate.ptx_mutants import synchronisation_mutants

NAME = "26_turned_ring"
Tiles = dict[str, int]


def tiles(consumers: int, each: int, height: int, shares_a: int, blocks: int = 2) -> Tiles:
    """Few stages, and one cluster for all tiles or two."""
    shape = {"TW_CONSUMERS": consumers, "TW_EACH": each, "TW_BM": height, "TW_SHARE_A": shares_a}
    return {**shape, "TW_STAGES": 2, "TW_BLOCKS": blocks, "TW_GROUP": 8}


def made(of: dict[str, int], shape: Tiles, dtype: str = "bfloat16", old: str = "", new: str = "") -> CompiledRung:
    return built(NAME, tuple(of.items()), dtype, tuple(shape.items()), old, new)


def ran(
    of: dict[str, int], shape: Tiles, attempt: int, dtype: str = "bfloat16", old: str = "", new: str = ""
) -> RungRun:
    return run_emulated(made(of, shape, dtype, old, new), operation(FAMILY, dtype, of), attempt=attempt)


HALF = tiles(2, 1, 80, 1)  # a's rows of k are shared out as half of the k of each box
WHOLE = tiles(2, 1, 128, 1)  # as boxes
BELOW = tiles(2, 2, 48, 0)  # b's, as boxes
THREE = tiles(3, 1, 48, 0)  # as half of the k of each


@pytest.mark.parametrize(
    ("layout", "dtype", "shape", "bias", "c", "activation"),
    [
        ("NN", "bfloat16", HALF, 1, 1, 0),
        ("NT", "float16", HALF, 0, 0, 2),
        ("TN", "bfloat16", HALF, 1, 1, 3),
        ("TN", "float16", WHOLE, 1, 0, 1),
        ("TT", "bfloat16", WHOLE, 0, 1, 4),
        ("NN", "float16", BELOW, 1, 0, 3),
        ("TT", "bfloat16", BELOW, 0, 0, 0),
        ("NN", "bfloat16", THREE, 0, 0, 1),
        ("NT", "bfloat16", THREE, 1, 1, 2),
    ],
)
def test_a_layout_with_an_epilogue_is_right(
    layout: str, dtype: str, shape: Tiles, bias: int, c: int, activation: int
) -> None:
    """Of batches, with several tiles for a cluster, ragged on every side."""
    of = sizes(layout, (2, 150, 200, 136), bias, c, activation)
    assert [ran(of, shape, attempt, dtype).message for attempt in (0, 1)] == ["", ""]


ONE_A = {**sizes("NT", (3, 70, 72, 72), 0, 0, 0), "batch_a": 0}


def test_one_matrix_stands_for_a_batch_and_c_may_have_any_strides() -> None:
    of = sizes("NT", (3, 70, 72, 72), 0, 1, 0, shared_b=True)
    assert ran({**of, "batch_c": 0, "ld_c": 0}, HALF, 0).message == ""  # a row for all rows
    assert ran({**of, "batch_c": 72 * 71, "ld_c": 1, "step_c": 71}, THREE, 1).message == ""
    assert ran(ONE_A, HALF, 0).message == ""


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        (shape, layout)
        for index, shape in enumerate(((2, 2, 176, 1), (2, 2, 160, 0), (3, 1, 192, 0), (3, 1, 160, 1)))
        for layout in (LAYOUTS if ALL else LAYOUTS[index % 2 :: 2])
    ],
    ids=str,
)
def test_tiles_of_a_card_are_right_and_spill_nothing(shape: tuple[int, int, int, int], layout: str) -> None:
    """The largest, with a bias and GELU; c is for those with fewer sums a thread."""
    of = sizes(layout, (1, shape[2] + 23, 304, 136), 1, int(shape[1] == 1 and shape[2] <= 160), 2)
    one = {**tiles(*shape), "TW_STAGES": 3}
    assert made(of, one).spill_bytes == 0
    assert ran(of, one, 1).message == ""


def test_c_beside_so_many_sums_is_refused_with_the_reason() -> None:
    of = sizes("NT", (1, 4096, 4096, 4096), 0, 1, 0)
    for m, n, k in (
        (4096, 4096, 4096),
        (2056, 5000, 4008),
        (300, 8192, 1024),
    ):  # who names the rung gets tiles that can
        assert not FAMILY.rung(NAME).at(sizes("NT", (1, m, n, k), 0, 1, 0), "bfloat16").misfit(of)
    for choice in FAMILY.rung(NAME).choices:
        why = replace(FAMILY.rung(NAME), choices=(choice,)).at(of, "bfloat16").misfit(of)
        assert ("needs registers for what comes of c" in why) == (choice["TW_BM"] * choice["TW_EACH"] > 160)


ONE = sizes("TN", (2, 150, 200, 136), 1, 1, 0)
TWO = sizes("NT", (2, 150, 200, 136), 1, 1, 0)
TWINS = [
    (ONE, HALF, "moved(of_a, TW_A_ALONG_M ? k * 128", "moved(of_a, TW_A_ALONG_M ? k * 2"),
    (ONE, HALF, "!A_WHOLE * a_part * A_BOX_ROWS", "0"),
    (ONE, HALF, "a_part * A_SHARE", "0"),
    (ONE, HALF, "tile_descriptor(from, TW_A_ALONG_M ? BOX_BYTES : 0)", "tile_descriptor(from, 0)"),
    (ONE, WHOLE, "A_WHOLE * a_part * A_BOXES", "0"),
    (ONE, THREE, "!B_WHOLE * b_part * B_BOX_ROWS", "0"),
    (ONE, THREE, "b_part * B_SHARE", "0"),
    (TWO, THREE, "first_column : k) + !B_WHOLE * b_part * B_BOX_ROWS", "first_column : k)"),
    (TWO, HALF, "(TW_B_ALONG_K ? k * 2 : k * 128)", "k * 128"),
    (TWO, HALF, "one_of(bias + own_column + 8, has_both)", "one_of(bias + own_column, has_one)"),
    (TWO, HALF, "here + ld_c", "here"),
    (TWO, HALF, "has_next = row + 1 < M", "has_next = true"),
    (TWO, HALF, "four + 2, alpha, beta", "four + 2, 1.0f, beta"),
    (TWO, HALF, "first_row + j + line, batch", "first_row + j + line, 0"),
    (TWO, HALF, "b_batch = batch_b == 0 ? 0 : batch", "b_batch = 0"),
    (ONE_A, HALF, "a_batch = batch_a == 0 ? 0 : batch", "a_batch = batch"),
    (TWO, HALF, "(j + line) / 2", "line / 2"),
    (TWO, HALF, "k_tiles - 1 - t", "k_tiles - t"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "shape", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(of: dict[str, int], shape: Tiles, old: str, new: str) -> None:
    assert not all(ran(of, shape, attempt, "bfloat16", old, new).passed for attempt in (0, 1))


@pytest.mark.parametrize("of", [ONE, TWO], ids=["TN", "NT"])
@pytest.mark.parametrize("shape", [HALF, WHOLE, THREE], ids=["half", "whole", "three"])
def test_what_the_twins_are_twins_of_is_right(of: dict[str, int], shape: Tiles) -> None:
    assert ran(of, shape, 0).message == ""


@pytest.mark.parametrize(("of", "shape"), [(ONE, HALF), (TWO, THREE)], ids=["TN", "NT"])
def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught(of: dict[str, int], shape: Tiles) -> None:
    """One in twelve of them; nothing but fresh mbarriers lies before the fence that is left out."""
    compiled = made(of, shape)
    what, program = operation(FAMILY, "bfloat16", of), compiled.programs[0]
    mutants = [
        m for m in synchronisation_mutants(program.ptx, program.kernel, None) if m.name != "proxy_fence_dropped.0"
    ]
    assert {"full_wait_dropped", "wrong_phase", "arrive_dropped", "wgmma_wait_dropped"} <= {m.kind for m in mutants}
    for mutant in mutants[:: 1 if ALL else 12]:
        broken = (replace(program, cubin=b"", ptx=mutant.ptx),)
        runs = (run_emulated(compiled, what, programs=broken, attempt=attempt) for attempt in (0, 1))
        assert any(not one.passed for one in runs), mutant.name
