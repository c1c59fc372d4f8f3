"""SGEMM's top rungs as built on a card: the tiles that sizes ask for, and an mbarrier in place of a barrier."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import emulator_for, operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.settings import Settings

FAMILY = load_family("sgemm")
RUNG = FAMILY.rung("16_split_k")


def sizes(m: int, n: int, k: int, ld_a: int = 0, ld_b: int = 0) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "ld_a": ld_a or k, "ld_b": ld_b or n}


@cache
def built(side: int, stages: int, parts: int, deep: int = 16, *, old: str = "", new: str = "") -> CompiledRung:
    """The rung with square tiles, or a twin that has ``new`` in the place of ``old``."""
    defines = {"TW_BM": side, "TW_BN": side, "TW_TN": 8, "TW_BK": deep, "TW_STAGES": stages, "TW_PARTS": parts}
    text = RUNG.file.read_text("utf-8")
    assert old in text
    spec = rung_spec(FAMILY, replace(RUNG, defines=defines), "float32")
    return compile_rung(spec, Settings.from_environment(), text=text.replace(old, new) if old else text)


def message(compiled: CompiledRung, of: dict[str, int], attempt: int = 0) -> str:
    return run_emulated(compiled, operation(FAMILY, "float32", of), attempt=attempt).message


def test_few_tiles_have_many_parts_and_a_short_ring() -> None:
    sides = {4096: (128, 32, 3, 1), 2000: (128, 16, 3, 1), 1024: (128, 16, 3, 2), 512: (64, 16, 2, 8)}
    for side, (tile, deep, stages, parts) in sides.items():
        defines = {"TW_BM": tile, "TW_BN": tile, "TW_TN": 8, "TW_BK": deep, "TW_STAGES": stages, "TW_PARTS": parts}
        assert RUNG.at(sizes(side, side, side), "float32").defines == defines


@pytest.mark.parametrize(
    ("side", "deep", "stages", "parts", "of"),
    [
        (128, 32, 3, 1, (sizes(129, 128, 96), sizes(131, 140, 53, 55, 144))),
        (128, 16, 3, 1, (sizes(129, 128, 96), sizes(131, 140, 53, 55, 144), sizes(1, 4, 1, 3, 8))),
        (64, 16, 2, 8, (sizes(64, 68, 512), sizes(70, 36, 141, 142, 40), sizes(1, 4, 20))),
    ],
)
def test_tiles_of_large_sizes_are_right_at_whole_ragged_and_tiny_ones(
    side: int, deep: int, stages: int, parts: int, of: tuple[dict[str, int], ...]
) -> None:
    compiled = built(side, stages, parts, deep)
    assert (compiled.spill_bytes, compiled.registers <= 128) == (0, True)
    executor = emulator_for(compiled, counters=True)
    for attempt, each in enumerate(of):
        done = run_emulated(
            compiled, operation(FAMILY, "float32", each), counters=True, executor=executor, attempt=attempt
        )
        assert done.passed, (each, done.message)
        assert done.counters["shared_conflicts"] == 0


# Blocks with masks and without; eleven tiles of K, so that the ring goes round in both parts.
BOTH_PATHS = sizes(70, 64, 176)


def test_an_arrival_or_a_wait_that_is_dropped_is_caught() -> None:
    compiled = built(64, 3, 2)
    assert message(compiled, BOTH_PATHS) == ""
    program = compiled.programs[0]
    kinds = {"arrive_dropped", "empty_wait_dropped", "wrong_phase", "wait_removed"}
    twins = [m for m in synchronisation_mutants(program.ptx, program.kernel, 2) if m.kind in kinds]
    assert {m.kind for m in twins} == kinds
    what = operation(FAMILY, "float32", BOTH_PATHS)
    for twin in twins:
        broken = (replace(program, cubin=b"", ptx=twin.ptx),)
        assert not run_emulated(compiled, what, programs=broken).passed, twin.description


@pytest.mark.parametrize(
    ("stages", "old", "new"),
    [
        (2, "STAGES == 2 ? BK - 1", "STAGES == 2 ? BK - 2"),  # arrives before its last reads of where copies go next
        (3, "stage + 1 == STAGES", "stage + 1 == STAGES - 1"),  # arrives early, and the ring has two stages
    ],
)
def test_an_arrival_that_comes_too_early_is_caught(stages: int, old: str, new: str) -> None:
    assert message(built(64, stages, 2, old=old, new=new), BOTH_PATHS)


def test_a_cluster_that_does_not_wait_for_its_parts_is_caught() -> None:
    twin = built(64, 3, 2, old="    cluster_arrive();\n    cluster_wait();\n", new="")
    # The second part is empty: it is the first to be there, and reads bytes that nobody wrote.
    assert message(twin, sizes(64, 64, 16), attempt=1)


# Rung, what a card may build it with beside tiles of eight by eight patches, sizes.
ON_A_CARD = [
    ("17_left_over_first", {"TW_BM": 128, "TW_BN": 128, "TW_STAGES": 3, "TW_PARTS": 1}, sizes(131, 140, 53, 55, 144)),
    ("18_any_pitch", {"TW_BM": 64, "TW_BN": 64, "TW_STAGES": 2, "TW_PARTS": 8}, sizes(70, 37, 141, 143, 41)),
    # Eighteen steps of K for seven blocks: three come to a tile.
    ("22_packed", {"TW_BM": 64, "TW_BN": 64, "TW_STAGES": 4, "TW_BLOCKS": 7}, sizes(70, 37, 141, 143, 41)),
    ("22_packed", {"TW_BM": 64, "TW_BN": 128, "TW_STAGES": 4, "TW_BLOCKS": 7}, sizes(70, 135, 40, 43, 135)),
    ("24_mapped", {"TW_BM": 64, "TW_BN": 64, "TW_STAGES": 4, "TW_BLOCKS": 7}, sizes(70, 36, 141, 144, 40)),
    ("19_stream_k", {"TW_BM": 128, "TW_BN": 128, "TW_STAGES": 3, "TW_BLOCKS": 2}, sizes(300, 128, 70)),
]


@pytest.mark.parametrize(
    ("name", "defines", "of"), ON_A_CARD, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_rung_above_it_is_right_with_the_tiles_of_a_card(
    name: str, defines: dict[str, int], of: dict[str, int]
) -> None:
    rung = replace(FAMILY.rung(name), defines={"TW_TN": 8, "TW_BK": 16, **defines})
    compiled = compile_rung(rung_spec(FAMILY, rung, "float32"), Settings.from_environment())
    assert (compiled.spill_bytes, compiled.registers <= 128) == (0, True)
    runs = [run_emulated(compiled, operation(FAMILY, "float32", of), attempt=attempt) for attempt in (0, 1)]
    assert all(run.passed for run in runs), [run.message for run in runs]
    assert len({run.outputs["c"].tobytes() for run in runs}) == 1, "the order of blocks makes no difference"
