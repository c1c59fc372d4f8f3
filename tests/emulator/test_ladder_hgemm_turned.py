"""HGEMM's product turned over: a card's tiles are right, none waits for its own products, and twins are caught."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest
from ladder_rings import EVERY, FAMILY, as_defines, built, mutants_of, not_caught

from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.running import Operation, operation, run_emulated
from tilewright.sass.listing import disassemble
from tilewright.settings import Settings

TURNED = "38_turned"
RUNG = FAMILY.rung(TURNED)
Defines = tuple[tuple[str, int], ...]


def turned(
    rows: int, columns: int, parts: int, sharers: int, stages: int = 2, once: int = 1, ahead: int = 1
) -> Defines:
    return as_defines(BM=rows, BN=columns, PARTS=parts, SHARERS=sharers, STAGES=stages, ONCE=once, AHEAD=ahead, GROUP=2)


def sizes(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "ld_a": -(-k // 8) * 8 + 8, "ld_b": n + 16}


# Tiles, and sizes that they do not divide: bands with rows that are not there, parts with one tile of k more than
# others or none, chunks of rows that no number of parts divides, and blocks that share a's rows.
CASES = {
    "one part": (turned(48, 64, 1, 1), sizes(100, 136, 200)),
    "two parts": (turned(80, 128, 2, 1), sizes(150, 200, 456)),
    "three parts": (turned(112, 64, 3, 1), sizes(150, 72, 520)),
    "four parts": (turned(48, 192, 4, 1), sizes(41, 200, 392)),
    "more parts than chunks": (turned(16, 64, 4, 1), sizes(9, 72, 136)),
    "shared a": (turned(32, 128, 1, 2, once=0), sizes(60, 328, 264)),
    "shared a in parts": (turned(64, 128, 2, 2, ahead=4), sizes(70, 328, 328)),
    "tallest": (turned(256, 64, 2, 1), sizes(250, 136, 328)),
    "widest": (turned(128, 256, 1, 1), sizes(136, 264, 200)),
}
# No faults where an emulator decides: behind fences lie fresh mbarriers only, which fence.mbarrier_init publishes;
# where blocks share a, those that come to the cluster's barrier have met; and one warpgroup reads its tiles together.
RINGS = {
    "two parts": {"proxy_fence_dropped.0", "proxy_fence_dropped.1"},
    "shared a": {"proxy_fence_dropped.0", "barrier_removed.0"},
    "one part": {"proxy_fence_dropped.0", "barrier_removed.1"},
    "shared a in parts": {"proxy_fence_dropped.0", "proxy_fence_dropped.1", "barrier_removed.0"},
}


@cache
def right(case: str) -> Operation:
    """What a case computes, and it does: twins of it differ from something that is right."""
    defines, size = CASES[case]
    what = operation(FAMILY, "bfloat16", size)
    assert [run_emulated(built(TURNED, *defines), what, attempt=attempt).message for attempt in (0, 1)] == ["", ""]
    return what


@pytest.mark.parametrize("case", CASES)
def test_tiles_that_divide_nothing_are_right(case: str) -> None:
    right(case)
    assert built(TURNED, *CASES[case][0]).spill_bytes == 0


def of_a_card(shape: tuple[int, int, int], dtype: str = "bfloat16") -> CompiledRung:
    made = RUNG.at({"M": shape[0], "N": shape[1], "K": shape[2], "ld_a": shape[2], "ld_b": shape[1]}, dtype)
    return built(TURNED, *made.defines.items(), dtype=dtype)


def waits(compiled: CompiledRung) -> int:
    """For products, in its machine code."""
    (program,) = compiled.programs
    function = disassemble(program.cubin, Settings.from_environment()).function(program.kernel)
    return sum(each.opcode == "WARPGROUP" and "DEPBAR" in each.modifiers for each in function.instructions)


# Shapes to which the model gives every width, number of parts and way to share; run as far as two tiles go.
SHAPES = [
    (1, 1024, 1024), (24, 5120, 5120), (33, 64, 2048), (96, 4096, 4096), (128, 14336, 4096), (224, 6144, 4096),
    (384, 2048, 2048), (448, 2048, 2048), (576, 4096, 4096), (1536, 2048, 2048), (512, 512, 512), (16, 11008, 4096),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_what_a_card_gets_is_right_spills_nothing_and_multiplies_on(shape: tuple[int, int, int]) -> None:
    """Where ptxas makes each product wait for the last one, there is a wait behind each; else one in the loop."""
    dtype = FAMILY.dtypes[shape[0] % 2]
    compiled = of_a_card(shape, dtype)
    assert compiled.spill_bytes == 0
    assert waits(compiled) == 2
    constants = {key: int(value) for key, value in compiled.constants.items() if key in ("BM", "BN", "PARTS")}
    size = sizes(min(shape[0], constants["BM"] + 9), constants["BN"] + 8, 64 * constants["PARTS"] + 72)
    assert run_emulated(compiled, operation(FAMILY, dtype, size), attempt=1).message == ""


@pytest.mark.parametrize("case", RINGS)
def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught(case: str) -> None:
    defines, _ = CASES[case]
    compiled = built(TURNED, *defines)
    mutants = mutants_of(compiled, RINGS[case])[list(RINGS).index(case) % EVERY :: EVERY]
    assert not list(not_caught(compiled, right(case), mutants))


TWINS = [
    ("one part", "x2.trans", "x2"),
    ("one part", "moved(of_b, k * 128), moved(of_a, k * 2)", "moved(of_b, k * 128), moved(of_a, k)"),
    ("one part", "sync_warpgroups(2 + warpgroup);", ""),
    ("one part", "first + line < M && ", ""),
    ("one part", "&& column < N)", ")"),
    ("two parts", "warpgroup * BOX_BYTES", "0"),
    ("two parts", "warpgroup * OWN_CHUNKS * 1024", "0"),
    ("two parts", "wait_for(&sums_there, 0);", "{}"),
    ("two parts", "sync_warpgroups<CONSUMERS>(1);", ""),
    ("three parts", "part * OWN_CHUNKS * 8 + line < BM && ", ""),
    ("three parts", "CHUNKS - part * OWN_CHUNKS", "OWN_CHUNKS"),
    ("three parts", "part - (part > p)", "part - (part > p + 1)"),
    ("four parts", "sum.x + more.x", "more.x"),
    ("more parts than chunks", "(PARTS - 1) * chunks_of(part) * SHARE", "(PARTS - 1) * OWN_CHUNKS * SHARE"),
    ("shared a", "tile + sharer * A_ROWS * 128", "tile"),
    ("shared a", "first_row + sharer * A_ROWS", "first_row"),
    ("shared a in parts", "<< part * SHARERS", ""),
    ("shared a in parts", "p * SHARERS + sharer,", "p * SHARERS,"),
]


@pytest.mark.parametrize(("case", "old", "new"), TWINS)
def test_a_broken_twin_is_caught(case: str, old: str, new: str) -> None:
    defines, _ = CASES[case]
    what = right(case)
    twin = built(TURNED, *defines, twin=(old, new))
    assert not all(run_emulated(twin, what, attempt=attempt).passed for attempt in (0, 1))


def test_64_rows_alone_would_wait_for_each_product() -> None:
    """Why the model has no such tile; when a compiler does better, it may have one."""
    compiled = built(TURNED, *turned(64, 128, 1, 1, stages=9))
    assert waits(compiled) > 2
    for m in (64, 128, 512):
        made = replace(RUNG, choices=tuple(c for c in RUNG.choices if c["TW_PARTS"] * c["TW_SHARERS"] == 1))
        size = {"M": m, "N": 8192, "K": 512, "ld_a": 512, "ld_b": 8192}
        assert made.at(size, "bfloat16").defines["TW_BM"] != 64


def test_a_ring_has_three_stages_and_room_at_any_size() -> None:
    """What the emulator cannot tell: a card's shared memory and registers, and a tile that is on its way."""
    for m, n, k in itertools.product(
        (1, 17, 165, 181, 251, 384, 574, 1023, 2560, 8192), (72, 1000, 3584, 26944), (512, 13670)
    ):
        made = RUNG.at({"M": m, "N": n, "K": k, "ld_a": -(-k // 8) * 8, "ld_b": n}, "bfloat16")
        rows, columns, parts, stages = (int(made.defines[f"TW_{name}"]) for name in ("BM", "BN", "PARTS", "STAGES"))
        sent = (parts - 1) * -(-rows // 8 // parts) * columns * 32
        assert stages >= 3
        assert stages * (rows + columns) * 128 + sent + 1024 <= 232_448 - 256  # and the mbarriers
        assert rows <= {192: 192, 256: 128}.get(columns, 256)
