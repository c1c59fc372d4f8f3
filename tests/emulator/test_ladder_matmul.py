"""Products in every layout, with epilogues, of batches: against float64, ragged and strided; broken twins are caught.

A sample; all of it with ``TILEWRIGHT_MATMUL_ALL=1``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from ladder_twins import twin_of

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.running import RungRun, operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.settings import Settings

ALL = os.environ.get("TILEWRIGHT_MATMUL_ALL") == "1"
NUMBERS = {"alpha": 0.75, "beta": -1.5}  # neither is one that could be left out
# Tiles for the emulator, of which no size below is a multiple; a card's are many times as large.
TILES = {
    "01_strided": {"TW_BM": 64, "TW_BN": 64},
    "02_cp_async": {"TW_BM": 64, "TW_BN": 64, "TW_STAGES": 4},
    "20_persistent": {"TW_BN": 128, "TW_STAGES": 2, "TW_BLOCKS": 2, "TW_GROUP": 8, "TW_CLUSTER": 2, "TW_COME": 1},
    "21_split_k": {"TW_BM": 64, "TW_BN": 48, "TW_STAGES": 2, "TW_PARTS": 2, "TW_SHARERS": 1, "TW_COME": 1,
                   "TW_AHEAD": 1, "TW_ONCE": 1, "TW_PAIRS": 0, "TW_PIECES": 0},
    "22_direct": {"TW_GROUPS": 2, "TW_SIDE": 1, "TW_DEEP": 2, "TW_PARTS": 2, "TW_AHEAD": 32, "TW_RESIDENT": 1,
                  "TW_ONCE": 0},
    "23_little": {},
    "24_packed": {"TW_BN": 64, "TW_STAGES": 2, "TW_PACKS": 2},
    "25_turned": {"TW_BM": 48, "TW_BN": 64, "TW_STAGES": 2, "TW_PARTS": 2, "TW_SHARERS": 1, "TW_COME": 1,
                  "TW_AHEAD": 1, "TW_ONCE": 1, "TW_PIECES": 0},
}  # fmt: skip
LAYOUTS = ("NN", "NT", "TN", "TT")
ONLY_NT = ("22_direct",)


def with_numbers(family: Family) -> Family:
    """The family with an alpha and a beta that matter, in its own arguments and in its kernels'."""

    def told(args: tuple[Mapping[str, object], ...]) -> tuple[Mapping[str, object], ...]:
        return tuple({**arg, "value": NUMBERS[str(arg["name"])]} if arg["name"] in NUMBERS else arg for arg in args)

    def rung(one: Rung) -> Rung:
        return replace(one, launches=tuple(replace(launch, args=told(launch.args)) for launch in one.launches))

    return replace(family, args=told(family.args), rungs=tuple(map(rung, family.rungs)))


FAMILY = with_numbers(load_family("matmul"))


def sizes(
    layout: str, shape: tuple[int, int, int, int], bias: int, c: int, activation: int, shared_b: bool = False
) -> dict[str, int]:
    """Of B, M, N, K; pitches are longer than they need be. Where ``shared_b``, one b stands for all of the batch."""
    batches, m, n, k = shape

    def pitch(extent: int) -> int:
        return -(-extent // 8) * 8 + 8

    a = (m * pitch(k), pitch(k), 1) if layout[0] == "N" else (k * pitch(m), 1, pitch(m))
    b = (k * pitch(n), pitch(n), 1) if layout[1] == "N" else (n * pitch(k), 1, pitch(k))
    out = {"B": batches, "M": m, "N": n, "K": k}
    for name, (batch, row, column) in (("a", a), ("b", (0 if shared_b else b[0], *b[1:])), ("c", (m * n, n, 1))):
        out |= {f"batch_{name}": batch, f"ld_{name}": row, f"step_{name}": column}
    return {**out, "with_bias": bias, "with_c": c, "activation": activation}


@cache
def built(
    name: str, of: tuple[tuple[str, int], ...], dtype: str, tiles: tuple[tuple[str, int], ...], old: str, new: str
) -> CompiledRung:
    rung = FAMILY.rung(name).at(dict(of), dtype)
    spec = rung_spec(FAMILY, replace(rung, defines={**rung.defines, **dict(tiles)}), dtype)
    return compile_rung(spec, Settings.from_environment(), text=twin_of(rung.file, old, new) if old else None)


def run(
    name: str, of: dict[str, int], dtype: str, attempt: int = 0, old: str = "", new: str = "", **more: int
) -> RungRun:
    """A rung as a card would get it at these sizes, but with small tiles, and ``more`` defines; or a twin of it."""
    tiles = {**TILES[name], **more}
    if name == "20_persistent" and of["step_b"] != 1:
        tiles = {**tiles, "TW_BN": 64}  # half the time of ptxas; boxes of rows of k are shared out at 128
    compiled = built(name, tuple(of.items()), dtype, tuple(tiles.items()), old, new)
    return run_emulated(compiled, operation(FAMILY, dtype, of), attempt=attempt)


# Everything a kernel is compiled for, each of it with each other at some place.
EVERYTHING = [
    (name, layout, dtype, (batches, m, n, 200), bias, c, activation)
    for name, layout, dtype, bias, c, activation in itertools.product(
        TILES, LAYOUTS, ("bfloat16", "float16"), (0, 1), (0, 1), range(5)
    )
    for batches, m, n in ((1, 150, 136), (2, 70, 139))
    if layout == "NT" or name not in ONLY_NT
]
SOME = [
    ("01_strided", "TN", "float16", (2, 70, 69, 40), 1, 0, 1),
    ("02_cp_async", "NN", "bfloat16", (1, 70, 101, 83), 0, 1, 0),
    ("02_cp_async", "TT", "float16", (2, 37, 72, 40), 1, 0, 4),
    ("20_persistent", "NN", "float16", (2, 70, 136, 136), 0, 1, 4),
    ("20_persistent", "NT", "bfloat16", (1, 150, 139, 72), 1, 0, 0),
    ("20_persistent", "TN", "bfloat16", (1, 150, 136, 72), 1, 1, 3),
    ("20_persistent", "TT", "float16", (2, 70, 136, 72), 0, 0, 1),
    ("21_split_k", "NN", "bfloat16", (1, 70, 101, 136), 1, 0, 3),
    ("21_split_k", "NT", "float16", (2, 70, 72, 136), 0, 0, 0),
    ("21_split_k", "TN", "float16", (1, 150, 72, 72), 0, 1, 2),
    ("21_split_k", "TT", "bfloat16", (3, 70, 40, 72), 1, 1, 4),
    ("22_direct", "NT", "float16", (2, 19, 69, 1000), 1, 1, 2),
    ("22_direct", "NT", "bfloat16", (1, 5, 129, 24), 0, 0, 0),  # one of the parts has no k
    ("23_little", "NN", "bfloat16", (2, 21, 37, 261), 1, 1, 4),
    ("23_little", "TT", "float16", (1, 1, 1, 1), 0, 1, 0),
    ("25_turned", "NN", "bfloat16", (1, 70, 101, 136), 1, 0, 3),
    ("25_turned", "NT", "float16", (2, 70, 72, 136), 0, 1, 2),
    ("25_turned", "TN", "float16", (1, 150, 139, 72), 1, 1, 0),
    ("25_turned", "TT", "bfloat16", (3, 37, 40, 72), 0, 0, 4),
]


@pytest.mark.parametrize(("name", "layout", "dtype", "shape", "bias", "c", "activation"), EVERYTHING if ALL else SOME)
def test_a_layout_with_an_epilogue_is_right(
    name: str, layout: str, dtype: str, shape: tuple[int, int, int, int], bias: int, c: int, activation: int
) -> None:
    assert run(name, sizes(layout, shape, bias, c, activation), dtype, attempt=1).message == ""


def test_one_matrix_stands_for_a_batch_and_c_may_have_any_strides() -> None:
    of = sizes("NT", (3, 70, 72, 72), 0, 1, 0, shared_b=True)
    assert run("20_persistent", {**of, "batch_c": 0, "ld_c": 0}, "bfloat16").message == ""  # a row for all rows
    assert run("21_split_k", {**of, "batch_c": 72 * 71, "ld_c": 1, "step_c": 71}, "bfloat16").message == ""


def unpacked(layout: str, shape: tuple[int, int, int, int], **more: int) -> dict[str, int]:
    """`sizes` of which nothing begins at a multiple of 8 elements, with a bias and c."""
    _, m, n, k = shape
    of = sizes(layout, shape, 1, 1, 0)
    a, b = (k if layout[0] == "N" else m) + 1, (n if layout[1] == "N" else k) + 2
    of |= {"ld_a": a, "batch_a": a * m + 3} if layout[0] == "N" else {"step_a": a, "batch_a": a * k + 3}
    of |= {"ld_b": b, "batch_b": b * k + 1} if layout[1] == "N" else {"step_b": b, "batch_b": b * n + 1}
    return {**of, **more}


GAPS = {"ld_a": 2, "step_a": 80, "batch_a": 0, "ld_b": 3, "step_b": 100, "batch_b": 3400}


@pytest.mark.parametrize(
    ("of", "more"),
    [
        (unpacked("NT", (2, 37, 69, 515)), {"TW_BN": 192, "TW_PACKS": 1}),
        (unpacked("NN", (2, 37, 33, 29), **GAPS), {}),
    ],
)
def test_what_no_tensor_map_has_is_packed_as_it_lies(of: dict[str, int], more: dict[str, int]) -> None:
    assert run("24_packed", of, "bfloat16", attempt=1, **more).message == ""


@pytest.mark.parametrize(
    ("layout", "columns", "more"),
    [
        ("NT", 200, {"TW_PARTS": 1, "TW_SHARERS": 2}),
        ("TN", 72, {"TW_PARTS": 2, "TW_SHARERS": 2, "TW_STAGES": 3}),
        ("NT", 200, {"TW_PARTS": 2, "TW_BN": 160}),
    ],
)
def test_neighbours_share_a_and_rows_are_stored_in_pieces(layout: str, columns: int, more: dict[str, int]) -> None:
    """Eight lanes have a row of 64 results, or four one of 32, or ten pieces are one of 80; a last tile is empty."""
    of = sizes(layout, (2, 70, columns, 136), 1, 1, 0)
    tiles = {"TW_BN": 64, "TW_PAIRS": 1, "TW_PIECES": 1, **more}
    assert run("21_split_k", of, "bfloat16", 1, "", "", **tiles).message == ""


@pytest.mark.parametrize(
    ("layout", "m", "more"),
    [
        ("NT", 100, {"TW_BM": 112, "TW_BN": 128, "TW_PARTS": 3}),
        ("TN", 150, {"TW_BM": 80, "TW_BN": 128, "TW_PARTS": 1, "TW_SHARERS": 2}),  # a's last boxes are a quarter theirs
        ("TT", 70, {"TW_BM": 48, "TW_BN": 192, "TW_PARTS": 4}),
        ("NN", 40, {"TW_BM": 32, "TW_BN": 64, "TW_PARTS": 2, "TW_SHARERS": 2, "TW_STAGES": 3}),
    ],
)
def test_tiles_are_as_high_as_rows_there_are(layout: str, m: int, more: dict[str, int]) -> None:
    of = sizes(layout, (2, m, 200, 328), 1, 1, 1)
    tiles = tuple({**TILES["25_turned"], "TW_PIECES": 1, **more}.items())
    compiled = built("25_turned", tuple(of.items()), "bfloat16", tiles, "", "")
    assert compiled.spill_bytes == 0
    assert run_emulated(compiled, operation(FAMILY, "bfloat16", of), attempt=1).message == ""


@pytest.mark.parametrize(("m", "parts", "side", "deep"), [(16, 4, 2, 3), (32, 1, 1, 4)])
def test_weights_go_straight_to_registers_with_the_tiles_of_a_card(m: int, parts: int, side: int, deep: int) -> None:
    of = sizes("NT", (1, m, 136, 1000), 1, 0, 0)
    tiles = {"TW_GROUPS": -(-m // 8), "TW_SIDE": side, "TW_DEEP": deep, "TW_PARTS": parts, "TW_AHEAD": 32 * deep,
             "TW_RESIDENT": 1, "TW_ONCE": int(side == 1)}  # fmt: skip
    compiled = built("22_direct", tuple(of.items()), "bfloat16", tuple(tiles.items()), "", "")
    assert compiled.spill_bytes == 0
    assert run_emulated(compiled, operation(FAMILY, "bfloat16", of), attempt=2).message == ""


@pytest.mark.parametrize(("layout", "c"), [("NT", 0), ("TN", 1)])
def test_tiles_of_a_card_are_right_and_spill_nothing(layout: str, c: int) -> None:
    of = sizes(layout, (1, 270, 264, 136), 1, c, 0)
    tiles = {"TW_BN": 256, "TW_STAGES": 4, "TW_BLOCKS": 2, "TW_GROUP": 2, "TW_CLUSTER": 2}
    compiled = built("20_persistent", tuple(of.items()), "bfloat16", tuple(tiles.items()), "", "")
    assert compiled.spill_bytes == 0
    assert run_emulated(compiled, operation(FAMILY, "bfloat16", of), attempt=1).message == ""


ONE = sizes("TT", (2, 150, 136, 136), 1, 1, 0)
TWO_BOXES = sizes("TN", (1, 150, 136, 136), 1, 1, 0)
TWO = sizes("NT", (2, 70, 101, 136), 1, 1, 0)
FEW = sizes("NT", (2, 11, 69, 200), 1, 1, 0)
ODD = unpacked("NT", (2, 37, 69, 75))
# (rung, where it is run, what stands there, what stands there in the twin)
TWINS = [
    ("20_persistent", ONE, "wgmma<!TW_B_ALONG_K, TW_A_ALONG_M>", "wgmma<TW_B_ALONG_K, TW_A_ALONG_M>"),
    ("20_persistent", ONE, "wgmma<!TW_B_ALONG_K, TW_A_ALONG_M>", "wgmma<!TW_B_ALONG_K, !TW_A_ALONG_M>"),
    ("20_persistent", ONE, "unsigned two = biases.at[chunk + i]", "unsigned two = 0"),
    ("20_persistent", ONE, "four + 2, alpha, beta, terms", "four + 2, alpha, 1.0f, terms"),
    ("20_persistent", ONE, "first_row, batch, slot", "first_row, 0, slot"),
    ("20_persistent", ONE, "k_tiles - 1 - t", "k_tiles - t"),
    ("21_split_k", TWO, "b_batch = batch_b == 0 ? 0 : batch", "b_batch = 0"),
    ("21_split_k", TWO, "moved(of_b, TW_B_ALONG_K ? k * 2", "moved(of_b, TW_B_ALONG_K ? k * 128"),
    ("02_cp_async", TWO, "row < rows ?", "true ?"),
    ("01_strided", TWO, "line < lines && k < ks", "k < ks"),
    ("22_direct", FEW, "a[g].at[half], a[g].at[half + 1]", "a[g].at[half + 1], a[g].at[half]"),
    ("22_direct", FEW, "columns, k < last);\n        even.multiply", "columns, k < K);\n        even.multiply"),
    ("22_direct", FEW, "cluster_arrive();\n        cluster_wait();\n    } else", "    } else"),
    ("22_direct", FEW, "min(column, N - 1)", "column"),
    ("22_direct", FEW, "for (int d = 0;", "for (int d = 1;"),
    ("23_little", FEW, "column + i * 8 < N ? there : 0", "there"),
    ("23_little", FEW, "added.at(row + 8, ", "added.at(row, "),
    ("25_turned", FEW, "has_next = row + 1 < M", "has_next = row < M"),
    ("25_turned", TWO, "one_of(bias + own_column + 8, has_both)", "one_of(bias + own_column, has_one)"),
    ("25_turned", TWO, "here + ld_c", "here"),
    ("25_turned", TWO_BOXES, "TW_A_ALONG_M ? k * 128 : k * 2", "k * 2"),
    ("25_turned", TWO, "TW_B_ALONG_K ? k * 2 : k * 128", "k * 128"),
    ("25_turned", TWO, "(PARTS - 1) * chunks_of(part)", "chunks_of(part) + chunks_of(part)"),
    ("24_packed", ODD, "address & 2 ? 16 : 0", "0"),
    ("24_packed", ODD, "b_batch = batch_b > 0 ? batch : 0", "b_batch = 0"),
]
if ALL:
    TWINS += [
        ("21_split_k", TWO, "four, alpha, beta, added", "four, 1.0f, beta, added"),
        ("20_persistent", ONE, "TW_A_ALONG_M ? k * 128 : k * 2", "k * 2"),
        ("20_persistent", TWO_BOXES, "terms = next_terms", "terms = terms"),
        ("21_split_k", TWO, "added.at(row + 8, ", "added.at(row, "),
        ("02_cp_async", ONE, "lane / 8 % 2", "lane / 16"),
        ("02_cp_async", TWO, "STAGES - 2>();", "STAGES - 1>();"),
        ("24_packed", ODD, "matrix * batch + ", ""),
        ("01_strided", TWO, "sums[i][j][half * 2], alpha, beta", "sums[i][j][half * 2], alpha, 1.0f"),
    ]


@pytest.mark.parametrize(("name", "of", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(name: str, of: dict[str, int], old: str, new: str) -> None:
    assert not run(name, of, "bfloat16", old=old, new=new).passed


FOUR_TOGETHER = {"TW_BN": 64, "TW_PARTS": 2}
WIDER = {"TW_BN": 128, "TW_PARTS": 1}  # a warpgroup's results lie where another one may still read b


@pytest.mark.parametrize(
    ("more", "old", "new"),
    [
        (FOUR_TOGETHER, "sharer * A_BOX_ROWS * 128", "0"),
        *([(FOUR_TOGETHER, "begin<SHARERS * CONSUMERS>", "begin<CONSUMERS>")] if ALL else []),
        (FOUR_TOGETHER, "p * SHARERS + sharer", "p"),
        (FOUR_TOGETHER, "(piece ^ line % 8) * 16", "piece * 16"),
        (WIDER, "sync_warpgroups<CONSUMERS>(1);", ";"),
        ({"TW_BN": 48, "TW_PARTS": 1}, "box * 8 + piece < OWN_CHUNKS && ", ""),
    ],
)
def test_a_broken_twin_of_neighbours_is_caught(more: dict[str, int], old: str, new: str) -> None:
    of = sizes("NT", (1, 150, 120, 328), 1, 0, 0)
    tiles = {"TW_BM": 128, "TW_SHARERS": 2, "TW_PAIRS": 1, "TW_PIECES": 1, **more}
    runs = (run("21_split_k", of, "bfloat16", attempt, old, new, **tiles) for attempt in range(3))
    assert any(not one.passed for one in runs)


@pytest.mark.parametrize(("name", "of"), [("20_persistent", ONE), ("21_split_k", TWO), ("22_direct", FEW)])
def test_what_the_twins_are_twins_of_is_right(name: str, of: dict[str, int]) -> None:
    assert run(name, of, "bfloat16").message == ""


def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught() -> None:
    of = sizes("NT", (2, 70, 136, 328), 1, 0, 0)
    compiled = built("20_persistent", tuple(of.items()), "bfloat16", tuple(TILES["20_persistent"].items()), "", "")
    what = operation(FAMILY, "bfloat16", of)
    program = compiled.programs[0]
    mutants = synchronisation_mutants(program.ptx, program.kernel, None)
    assert {"full_wait_dropped", "wrong_phase", "arrive_dropped", "wgmma_wait_dropped"} <= {m.kind for m in mutants}
    # Nothing but fresh mbarriers lies before that fence, and fence.mbarrier_init publishes those.
    chosen = [m for m in mutants if m.name != "proxy_fence_dropped.0"]
    for mutant in chosen if ALL else chosen[3::16]:
        broken = (replace(program, cubin=b"", ptx=mutant.ptx),)
        runs = (run_emulated(compiled, what, programs=broken, attempt=attempt) for attempt in (0, 1))
        assert any(not one.passed for one in runs), mutant.name


def test_what_a_tensor_map_cannot_have_is_refused_with_the_reason() -> None:
    of = {**sizes("NT", (1, 70, 40, 72), 0, 0, 0), "ld_a": 73}
    for name in ("02_cp_async", "20_persistent", "21_split_k"):
        assert "needs a whose rows, or columns, are packed" in FAMILY.rung(name).at(of, "bfloat16").misfit(of)
        with pytest.raises(TilewrightError, match="needs a whose rows"):
            run(name, of, "bfloat16")
    assert FAMILY.rung("01_strided").at(of, "bfloat16").misfit(of) == ""
