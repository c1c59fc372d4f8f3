"""The persistent ring in tiles whose last box is half a one: layouts, epilogues, and twins that are caught.

A sample; every width in every layout with ``TILEWRIGHT_MATMUL_ALL=1``.
"""

from __future__ import annotations

import itertools

import pytest
from test_ladder_matmul import ALL, FAMILY, LAYOUTS, built, sizes

from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.running import RungRun, operation, run_emulated

NAME = "20_persistent"


def made(
    of: dict[str, int], width: int, cluster: int, dtype: str = "bfloat16", old: str = "", new: str = ""
) -> CompiledRung:
    """One cluster for all tiles, or two of one block each."""
    tiles = {"TW_BN": width, "TW_STAGES": 2, "TW_BLOCKS": 2, "TW_GROUP": 8, "TW_CLUSTER": cluster, "TW_COME": 1}
    return built(NAME, tuple(of.items()), dtype, tuple(tiles.items()), old, new)


def ran(compiled: CompiledRung, of: dict[str, int], attempt: int) -> RungRun:
    return run_emulated(compiled, operation(FAMILY, compiled.spec.dtype, of), attempt=attempt)


# (width, blocks of a cluster, layout, element type, columns, bias, c, activation). Of 184 columns the second tile of 96
# has 24 of its last 32, of 136 and 141 none.
SOME = [
    (96, 2, "NN", "bfloat16", 184, 1, 1, 0),
    (96, 2, "NT", "float16", 184, 1, 1, 3),
    (96, 2, "TN", "float16", 181, 1, 1, 1),
    (96, 1, "TT", "bfloat16", 141, 0, 1, 2),
    (96, 1, "TN", "bfloat16", 136, 1, 0, 4),
    (160, 2, "NN", "bfloat16", 152, 1, 1, 2),
    (160, 2, "TT", "float16", 152, 0, 0, 0),
    (224, 2, "NT", "bfloat16", 216, 1, 1, 0),
]
EVERYTHING = [
    (width, cluster, layout, dtype, width * 2 - 8 - direct * 3, 1, c, activation)
    for width, cluster, layout, (dtype, activation), c, direct in itertools.product(
        (32, 96, 160, 224), (1, 2), LAYOUTS, (("float16", 2), ("bfloat16", 0)), (0, 1), (0, 1)
    )
]


@pytest.mark.parametrize(
    ("width", "cluster", "layout", "dtype", "columns", "bias", "c", "activation"), EVERYTHING if ALL else SOME
)
def test_a_layout_with_an_epilogue_is_right(
    width: int, cluster: int, layout: str, dtype: str, columns: int, bias: int, c: int, activation: int
) -> None:
    """Of batches, with several tiles for a cluster, ragged on every side."""
    of = sizes(layout, (2, 150, columns, 136), bias, c, activation)
    compiled = made(of, width, cluster, dtype)
    assert compiled.spill_bytes == 0
    assert ran(compiled, of, 1).message == ""


ALONG_N = sizes("NN", (1, 150, 184, 136), 1, 1, 0)
ALONG_K = sizes("NT", (1, 150, 184, 136), 1, 1, 0)
# (where it is run, what stands there, what stands there in the twin), in tiles of 96 and clusters of 2
TWINS = [
    (ALONG_K, "is_left ? &y_left_map : &y_map", "&y_map"),
    (ALONG_K, "if (is_left) store_sums<64>", "if (false) store_sums<64>"),
    (ALONG_K, "bias, column + WIDE, N,", "bias, column + (box + 1 == BN / WIDE ? LEFT : WIDE), N,"),
    (ALONG_K, "row, column + WIDE, M, N,", "row, column + (box + 1 == BN / WIDE ? LEFT : WIDE), M, N,"),
    (ALONG_K, "rank * (BN / CLUSTER)", "rank * (BOXES * WIDE / CLUSTER)"),
    (ALONG_K, "TW_B_ALONG_K ? BN : BOXES * WIDE", "BOXES * WIDE"),
    (ALONG_N, "TW_B_ALONG_K ? BN : BOXES * WIDE", "BN"),
    (ALONG_N, ": B_BOX_ROWS * 128", ": B_BYTES / CLUSTER"),
    (ALONG_N, "rank * B_BOX_ROWS", "rank * BK"),
    (ALONG_N, "HAS_WHOLE_BOXES ? BOXES / CLUSTER : BOXES", "BN / WIDE"),
]
if ALL:
    TWINS += [
        (ALONG_K, "? LEFT / 8 : WIDE / 8", "? LEFT / 16 : WIDE / 8"),
        (ALONG_K, "box < BOXES; ++box", "box < BN / WIDE; ++box"),
        (ALONG_K, "BN + box * WIDE, first_row", "BN + (is_left ? LEFT : box * WIDE), first_row"),
        (ALONG_K, "? B_BYTES / CLUSTER", "? BOXES * BOX_BYTES / CLUSTER"),
    ]


@pytest.mark.parametrize(("of", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(of: dict[str, int], old: str, new: str) -> None:
    assert not ran(made(of, 96, 2, "bfloat16", old, new), of, 0).passed


@pytest.mark.parametrize("of", [ALONG_N, ALONG_K], ids=["NN", "NT"])
def test_what_the_twins_are_twins_of_is_right(of: dict[str, int]) -> None:
    assert ran(made(of, 96, 2), of, 0).message == ""
