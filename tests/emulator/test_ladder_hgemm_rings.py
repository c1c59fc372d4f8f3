"""HGEMM's rungs for Hopper: rings, turns and clusters at sizes where all of them go round; their twins are caught."""

from __future__ import annotations

import pytest
from ladder_rings import EVERY, FAMILY, as_defines, built, mutants_of, not_caught

from tilewright.errors import TilewrightError
from tilewright.ladder.launching import runs_code
from tilewright.ladder.running import emulator_for, operation, run_emulated

# Sizes of which no tile is a divisor, with more tiles of k than a ring has stages, and more tiles than blocks.
SIZES = {"M": 300, "N": 136, "K": 200, "ld_a": 208, "ld_b": 144}
FEW = {"M": 70, "N": 72, "K": 328, "ld_a": 328, "ld_b": 72}
# Twelve tiles for three blocks, or six for two clusters, and three more of which one warpgroup has rows: light ones.
STREAM = {"M": 560, "N": 264, "K": 200, "ld_a": 208, "ld_b": 264}
# A tile each for two clusters, and a row and eight columns more.
RIM = {"M": 513, "N": 72, "K": 200, "ld_a": 200, "ld_b": 72}
# By rung: where it is run, and mutants that are no faults.
_FRESH = "proxy_fence_dropped.0"  # nothing but fresh mbarriers lies before it, and fence.mbarrier_init publishes those
_ONE_WARPGROUP = "empty_wait_dropped.0"  # it alone reads the stage, and its products are over: all four warps' at once
# The emulator looks at arrivals in blocks that may have ended, not at loads from them.
_LAST_BARRIER = "cluster_barrier_removed"
CASES = {
    "21_wgmma": (FEW, {_FRESH, _ONE_WARPGROUP}),
    "22_specialised": (FEW, {_FRESH}),
    "24_persistent": (SIZES, {_FRESH}),
    "25_pingpong": (SIZES, {_FRESH}),
    "26_split_k": (FEW, {_FRESH, f"{_LAST_BARRIER}.1"}),
    "27_shared_a": (FEW, {_FRESH, f"{_LAST_BARRIER}.2"}),
    "28_even": (FEW, {_FRESH, "proxy_fence_dropped.1"}),
    "29_fringe": (SIZES, {_FRESH}),
    "31_stream_k": (STREAM, {_FRESH}),
    "33_rim": (RIM, {_FRESH}),
    "35_parts_in_memory": (FEW, {_FRESH, "proxy_fence_dropped.1"}),
}
TWO_WARPGROUPS = (("TW_BM", 128), ("TW_BN", 64), ("TW_STAGES", 2), ("TW_PARTS", 2))
IN_PIECES = {"AHEAD": 4, "PIECES": 1}
ONE_BLOCK = as_defines(BN=128, EDGE=64, STAGES=2, BLOCKS=1, GROUP=8, QUICK=1)  # every slot is used again
MORE = {
    "26_split_k": TWO_WARPGROUPS,
    "27_shared_a": (*TWO_WARPGROUPS, ("TW_SHARERS", 2)),
    "29_fringe": ONE_BLOCK,
    "31_stream_k": as_defines(BN=128, STAGES=2, BLOCKS=4, GROUP=8, CLUSTER=2),
    "33_rim": as_defines(BN=64, STAGES=2, BLOCKS=4, GROUP=8, QUICK=1, RIM=16),
}


@pytest.mark.parametrize("name", ["23_cluster", "24_persistent", "25_pingpong"])
def test_a_ring_that_goes_round_is_right(name: str) -> None:
    compiled = built(name)
    executor = emulator_for(compiled)
    what = operation(FAMILY, "bfloat16", SIZES)
    for attempt in (0, 2):
        assert run_emulated(compiled, what, attempt=attempt, executor=executor).message == ""


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("24_persistent", (("TW_BN", 256), ("TW_STAGES", 4), ("TW_BLOCKS", 2), ("TW_GROUP", 2))),
        ("24_persistent", (("TW_BN", 192), ("TW_STAGES", 4), ("TW_BLOCKS", 2), ("TW_GROUP", 2))),
        ("24_persistent", as_defines(BN=224, STAGES=4, BLOCKS=2, GROUP=2)),
        ("24_persistent", as_defines(BN=64, STAGES=8, BLOCKS=4, GROUP=1)),
        ("25_pingpong", (("TW_BM", 128), ("TW_BN", 128), ("TW_STAGES", 6), ("TW_BLOCKS", 2))),
        ("26_split_k", (("TW_BM", 128), ("TW_BN", 128), ("TW_STAGES", 6), ("TW_PARTS", 4))),
        ("27_shared_a", (("TW_BM", 128), ("TW_BN", 128), ("TW_STAGES", 6), ("TW_PARTS", 2), ("TW_SHARERS", 2))),
        ("28_even", as_defines(BM=128, BN=112, STAGES=6, PARTS=1, SHARERS=2, TOGETHER=1, ONCE=1, GROUP=2, **IN_PIECES)),
        ("28_even", as_defines(BM=64, BN=128, STAGES=9, PARTS=1, SHARERS=2, TOGETHER=0, ONCE=0, GROUP=4, **IN_PIECES)),
        ("29_fringe", as_defines(BN=256, EDGE=64, STAGES=4, BLOCKS=3, GROUP=16, QUICK=1)),
        ("31_stream_k", as_defines(BN=256, STAGES=4, BLOCKS=4, GROUP=8, CLUSTER=1)),
        ("31_stream_k", as_defines(BN=192, STAGES=4, BLOCKS=2, GROUP=8, CLUSTER=2)),
    ],
)
def test_tiles_of_a_card_are_right_and_spill_nothing(name: str, defines: tuple[tuple[str, int], ...]) -> None:
    compiled = built(name, *defines)
    assert compiled.spill_bytes == 0
    sizes = {"M": 300, "N": 264, "K": 456, "ld_a": 456, "ld_b": 264}
    assert run_emulated(compiled, operation(FAMILY, "bfloat16", sizes), attempt=1).message == ""


@pytest.mark.parametrize("name", CASES)
def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught(name: str) -> None:
    sizes, equivalent = CASES[name]
    compiled = built(name, *MORE.get(name, ()))
    what = operation(FAMILY, "bfloat16", sizes)
    chosen = mutants_of(compiled, equivalent)[list(CASES).index(name) % EVERY :: EVERY]
    assert not list(not_caught(compiled, what, chosen))


@pytest.mark.parametrize(
    ("old", "new"), [("is_left ? &c_left_map : &c_map", "&c_map"), ("store_sums<64>", "store_sums")]
)
def test_what_is_left_of_a_tile_has_boxes_of_its_own_width(old: str, new: str) -> None:
    tiles = as_defines(BN=96, STAGES=2, BLOCKS=2, GROUP=2)
    sizes = operation(FAMILY, "bfloat16", {"M": 70, "N": 136, "K": 72, "ld_a": 72, "ld_b": 136})
    assert run_emulated(built("24_persistent", *tiles), sizes).message == ""
    assert not run_emulated(built("24_persistent", *tiles, twin=(old, new)), sizes).passed


def test_a_product_goes_to_the_rung_that_was_fastest_there_and_takes_its_rows() -> None:
    def chosen(sizes: dict[str, int], address: int = 0) -> str:
        return FAMILY.best(sizes, "float16", lambda arch: runs_code(arch, "sm_90"), address).name

    large = {"M": 4096, "N": 4096, "K": 4096, "ld_a": 4096, "ld_b": 4096}
    assert chosen({**large, "N": 4095}) == "22_specialised"
    assert chosen({**large, "ld_a": 4100}) == "32_packed"
    assert chosen({**large, "ld_b": 4100}) == "32_packed"
    assert chosen(large, address=2) == "32_packed"
    assert chosen({**large, "M": 16, "N": 64, "K": 64, "ld_a": 67}) == "34_little"
    odd = operation(FAMILY, "bfloat16", {**FEW, "ld_a": 4100})
    for name in ("24_persistent", "36_back_and_forth", "37_fitted"):
        with pytest.raises(TilewrightError, match=f"ld_a = 4100; {name} takes at least 8 and a multiple of 8"):
            run_emulated(built(name), odd)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("piece % 8 ^ line % 8", "piece % 8"),
        (" && piece < OWN_CHUNKS", ""),
        ("if (PIECES) sync_warpgroups<CONSUMERS>(1);", ""),
        ("int piece = box * 8 + ", "int piece = "),
    ],
)
def test_rows_of_a_result_are_stored_in_pieces_and_twins_of_that_are_caught(old: str, new: str) -> None:
    tiles = as_defines(BM=128, BN=160, STAGES=2, PARTS=2, SHARERS=2, TOGETHER=0, ONCE=0, **IN_PIECES)
    made = built("28_even", *tiles, twin=(old, new) if old else None)
    what = operation(FAMILY, "bfloat16", {**FEW, "N": 312, "ld_b": 312})
    assert all(run_emulated(made, what, attempt=attempt).passed for attempt in (0, 1)) is (not old)


# (what stands in 30_direct, what stands in the twin)
TWINS = [
    ("row[0].at[i], row[1].at[i], 0x7632", "row[0].at[i], row[1].at[i], 0x5410"),
    ("k < last, column < N);\n        odd", "true, column < N);\n        odd"),
    ("for (int d = 0; d < DEEP; ++d)", "for (int d = 1; d < DEEP; ++d)"),
    ("cluster_arrive();\n        cluster_wait();\n    } else", "    } else"),
    ("__syncthreads();", ""),
    ("const int end = (int)((long long)all * (part + 1) / PARTS)", "const int end = all"),
]


@pytest.mark.parametrize(("m", "parts", "side", "deep"), [(1, 4, 2, 4), (16, 7, 1, 6), (32, 1, 4, 2)])
def test_b_goes_straight_to_registers_and_each_part_of_k_is_added_once(
    m: int, parts: int, side: int, deep: int
) -> None:
    compiled = built(
        "30_direct",
        *as_defines(GROUPS=-(-m // 8), SIDE=side, DEEP=deep, PARTS=parts, AHEAD=32, RESIDENT=1, ONCE=int(m == 16)),
    )
    assert compiled.spill_bytes == 0
    sizes = {"M": m, "N": 136, "K": 1000, "ld_a": 1008, "ld_b": 144}
    for attempt in (0, 2):
        assert run_emulated(compiled, operation(FAMILY, "bfloat16", sizes), attempt=attempt).message == ""


@pytest.mark.parametrize(("old", "new"), TWINS)
def test_a_broken_twin_of_it_is_caught(old: str, new: str) -> None:
    parts = 2 if "cluster" in old or "end" in old else 1
    tiles = as_defines(GROUPS=1, SIDE=1, DEEP=2, PARTS=parts, AHEAD=32, RESIDENT=1, ONCE=0)
    twin = built("30_direct", *tiles, twin=(old, new))
    what = operation(FAMILY, "bfloat16", {"M": 5, "N": 72, "K": 200, "ld_a": 208, "ld_b": 72})
    assert not all(run_emulated(twin, what, attempt=attempt).passed for attempt in (0, 1))


def test_shares_may_meet_in_a_light_tile() -> None:
    compiled = built("31_stream_k", *as_defines(BN=128, STAGES=2, BLOCKS=2, GROUP=8, CLUSTER=1))
    sizes = {"M": 176, "N": 848, "K": 200, "ld_a": 200, "ld_b": 848}
    for attempt in (0, 1):
        assert run_emulated(compiled, operation(FAMILY, "bfloat16", sizes), attempt=attempt).message == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("draws_last(tickets + pair, 2)", "1"),
        ("of_parts[work.is_end", "of_parts[!work.is_end"),
        ("CLUSTER + !to.is_end", "CLUSTER"),
        ("heavy / 2 + (place - heavy)", "heavy / 2 + (place - heavy) / 2"),
    ],
)
def test_a_twin_whose_parts_of_a_tile_do_not_meet_is_caught(old: str, new: str) -> None:
    broken = built("31_stream_k", twin=(old, new))
    what = operation(FAMILY, "bfloat16", STREAM)
    assert not all(run_emulated(broken, what, attempt=attempt).passed for attempt in (0, 1))


def test_clusters_of_a_tile_meet_in_memory() -> None:
    compiled = built("35_parts_in_memory", *as_defines(BM=128, BN=32, STAGES=2, PARTS=4, SPLITS=3, BESIDE=1))
    assert compiled.spill_bytes == 0
    for k in (800, 200):  # at 200 some of the parts have no k
        what = operation(FAMILY, "bfloat16", {**FEW, "K": k, "ld_a": k})
        runs = [run_emulated(compiled, what, attempt=attempt) for attempt in (0, 1)]
        assert [run.message for run in runs] == ["", ""]
        assert len({run.outputs["c"].tobytes() for run in runs}) == 1, "the order of blocks makes no difference"


@pytest.mark.parametrize(
    ("old", "new", "k"),
    [
        ("draws_last(tickets + place, SPLITS)", "draws_last(tickets + place, SPLITS - 1)", 64),
        ("draws_last(tickets + place, SPLITS)", "split == 0", 64),
        ("SPLITS);\n        sync_warpgroups(1 + band);", "SPLITS);", 64),
        ("for (int s = 0; s", "for (int s = 1; s", 328),
        ("cluster / tiles_in_all", "cluster % SPLITS", 328),
    ],
)
def test_a_twin_whose_clusters_do_not_meet_is_caught(old: str, new: str, k: int) -> None:
    """Of 64 k one cluster has all: it comes last."""
    tiles = as_defines(BM=64, BN=32, STAGES=2, PARTS=2, SPLITS=3, BESIDE=int("in_all" in old))
    twin = built("35_parts_in_memory", *tiles, twin=(old, new))
    what = operation(FAMILY, "bfloat16", {**FEW, "K": k, "ld_a": k})
    assert not all(run_emulated(twin, what, attempt=n).passed for n in (0, 1))


@pytest.mark.parametrize(
    ("m", "n", "tiles"),
    [
        (257, 264, as_defines(BN=256, STAGES=4, BLOCKS=4, GROUP=2, QUICK=2, RIM=16)),
        (264, 488, as_defines(BN=224, STAGES=4, BLOCKS=4, GROUP=2, QUICK=2, RIM=16)),
        (770, 72, as_defines(BN=64, STAGES=2, BLOCKS=4, GROUP=2, QUICK=1, RIM=16)),
        (9, 16, as_defines(BN=64, STAGES=2, BLOCKS=4, GROUP=2, QUICK=1, RIM=16)),  # no tile at all
    ],
)
def test_what_is_a_little_more_than_tiles_is_no_tile_and_right(
    m: int, n: int, tiles: tuple[tuple[str, int], ...]
) -> None:
    compiled = built("33_rim", *tiles)
    assert compiled.spill_bytes == 0
    sizes = {"M": m, "N": n, "K": 328, "ld_a": 328, "ld_b": n}
    assert run_emulated(compiled, operation(FAMILY, "bfloat16", sizes), attempt=1).message == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("blockIdx.x - busy + i * idle", "blockIdx.x - busy + i"),
        ("idle * QUICK + blockIdx.x", "idle * QUICK + blockIdx.x + 1"),
        ("rows * ROWS, columns * BN)", "rows * ROWS, N)"),
        ("rows * ROWS, columns * BN)", "M, columns * BN)"),
    ],
)
def test_a_twin_that_leaves_out_some_of_the_rim_is_caught(old: str, new: str) -> None:
    tiles = as_defines(BN=64, STAGES=2, BLOCKS=4, GROUP=2, QUICK=2, RIM=16)
    twin = built("33_rim", *tiles, twin=(old, new))
    # Three tiles for two clusters: the second one's blocks take two pieces each of five in the last round.
    what = operation(FAMILY, "bfloat16", {"M": 769, "N": 72, "K": 72, "ld_a": 72, "ld_b": 72})
    assert not run_emulated(twin, what, attempt=1).passed
