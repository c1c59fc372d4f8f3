"""IGEMM and W8A8 of packed operands: rows that begin anywhere, or lie across k; broken twins are caught."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from ladder_twins import twin_of

from tilewright.ladder.compiling import CompiledRung, compile_rung, constants_of
from tilewright.ladder.family import load_family
from tilewright.ladder.running import RungRun, operation, run_emulated
from tilewright.ladder.specs import bound_launches, rung_spec
from tilewright.settings import Settings

RUNGS = {"igemm": "25_packed", "w8a8": "22_packed"}
FAMILIES = {name: load_family(name) for name in RUNGS}
# Of what is built for it alone, one in so many is looked at.
EVERY = int(os.environ.get("TILEWRIGHT_IGEMM_MUTANTS", "8"))


def sizes(m: int, n: int, k: int, ld_a: int = 0, ld_b: int = 0, step_a: int = 1, step_b: int = 1) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "ld_a": ld_a or k, "step_a": step_a, "ld_b": ld_b or k, "step_b": step_b}


ODD = sizes(131, 73, 203, 205, 207)  # more tiles than blocks, more of k than stages
TURNED = sizes(130, 127, 301, 1, 1, 131, 127)
EDGES = [
    sizes(1, 1, 1),
    sizes(5, 9, 15, 15, 1, 1, 9),
    sizes(3, 8, 17, 17, 19),
    sizes(2, 3, 21, 1, 1, 2, 3),  # a word has elements of several k
    sizes(1, 125, 129, 129, 1, 1, 125),
    sizes(33, 40, 50, 103, 201, 2, 5),  # neither are neighbours in memory
    sizes(7, 5, 40, 40, 1, 0, 0),  # expanded
]


@cache
def built(family: str, old: str = "", new: str = "", defines: tuple[tuple[str, int], ...] = ()) -> CompiledRung:
    """The rung, or its twin that has ``new`` in the place of ``old``, in its file or in what packs."""
    rung = FAMILIES[family].rung(RUNGS[family])
    spec = rung_spec(FAMILIES[family], replace(rung, defines={**rung.defines, **dict(defines)}), rung.dtypes[0])
    return compile_rung(spec, Settings.from_environment(), text=twin_of(rung.file, old, new) if old else None)


def run(compiled: CompiledRung, of: Mapping[str, int], attempt: int = 1, counters: bool = False) -> RungRun:
    family = compiled.spec.family
    return run_emulated(compiled, operation(family, family.dtypes[0], of), attempt=attempt, counters=counters)


@pytest.mark.parametrize(
    ("family", "of"),
    [("w8a8", ODD), *(("igemm", of) for of in (ODD, TURNED, *EDGES))],
    ids=lambda of: "x".join(map(str, of.values())) if isinstance(of, dict) else of,
)
def test_operands_may_lie_anyhow(family: str, of: dict[str, int]) -> None:
    assert run(built(family), of).message == ""


@pytest.mark.parametrize("family", RUNGS if EVERY == 1 else ["w8a8"])  # whose sums meet more in registers
def test_the_widest_tile_of_a_card_is_right_and_spills_nothing(family: str) -> None:
    compiled = built(
        family, defines=(("TW_BN", 256), ("TW_STAGES", 4), ("TW_BLOCKS", 2), ("TW_PACKS", 4), ("TW_ALIGN", 128))
    )
    assert compiled.spill_bytes == 0
    assert run(compiled, sizes(140, 265, 601, 1, 603, 141)).message == ""


def test_matrices_may_begin_anywhere() -> None:
    """A twin that is given them from their second row on, or column: at an odd address."""
    twin = built("igemm", "{a, M, K, ld_a, step_a}, {b, N,", "{a + ld_a, M - 1, K, ld_a, step_a}, {b + ld_b, N - 1,")
    for of in (ODD, TURNED, {**TURNED, "K": 1}):
        what = operation(FAMILIES["igemm"], "int8", of)
        got = run_emulated(twin, what, attempt=1)
        assert np.array_equal(what.launch.view("c", got.outputs)[:-1, :-1], what.expected["c"][1:, 1:])


def test_turning_meets_in_no_bank() -> None:
    assert run(built("igemm"), TURNED, counters=True).counters["shared_conflicts"] == 0
    twin = built("igemm", "(quad % 4 ^ lane / 8)", "quad % 4")
    assert run(twin, TURNED, counters=True).counters["shared_conflicts"] > 0


TWINS = [
    ("there.has_between(word)) words", "word < there.bytes) words"),  # reads what is behind the matrix, or before it
    ("word + 16 < there.last", "word + 4 < there.bytes"),
    ("words[i][4], shifts[i]", "words[i][3], shifts[i]"),
    ("word == 0 ? first : last", "first"),
    ("some |= ", "some = "),
    ("lay[1 ^ turn]", "lay[1]"),
    ("next_high, 0x7632", "next_high, 0x7362"),
    ("block % from.tiles_of_rows()", "block / 3"),
    ("of_a = a.template blocks<PACKS>();", "of_a = a.template blocks<PACKS>() + 1;"),
]


@pytest.mark.parametrize(("old", "new"), TWINS[::EVERY])
def test_a_broken_twin_is_caught(old: str, new: str) -> None:
    twin = built("igemm", old, new)
    assert not all(run(twin, of).passed for of in (TURNED, ODD, EDGES[3]))


# The fastest of what an H200 timed: columns of a tile, stages, whether blocks stay, packs a thread, and the bytes that
# rows begin at multiples of.
FASTEST = [
    ("igemm", sizes(257, 1000, 776), (64, 8, True, 1, 128)),
    ("igemm", sizes(1000, 1000, 1000), (64, 8, True, 1, 128)),
    ("igemm", sizes(2047, 2049, 2001), (128, 6, False, 4, 128)),
    ("igemm", sizes(5000, 5000, 5000), (256, 4, False, 4, 128)),
    ("igemm", sizes(1024, 1024, 1024, 1024, 1, 1, 1024), (128, 6, True, 1, 128)),
    ("igemm", sizes(4096, 4096, 4096, 4096, 1, 1, 4096), (256, 4, True, 4, 128)),
    ("igemm", sizes(64, 14336, 4095), (128, 7, True, 4, 128)),
    ("w8a8", sizes(257, 1000, 776), (64, 8, True, 1, 128)),
    ("w8a8", sizes(1000, 1000, 1000), (64, 8, True, 1, 128)),
    ("w8a8", sizes(5000, 5000, 5000), (256, 4, False, 4, 128)),
    ("w8a8", sizes(1024, 1024, 1024, 1024, 1, 1, 1024), (64, 8, True, 1, 128)),
]


@pytest.mark.parametrize(("family", "of", "expected"), FASTEST)
def test_tiles_are_those_that_were_fastest(family: str, of: dict[str, int], expected: tuple[object, ...]) -> None:
    rung = FAMILIES[family].best(of, FAMILIES[family].dtypes[0], lambda arch: True)
    assert rung.name == RUNGS[family]
    defines = rung.at(of, FAMILIES[family].dtypes[0]).defines
    stays = defines["TW_BLOCKS"] == 132
    found = (defines["TW_BN"], defines["TW_STAGES"], stays, defines["TW_PACKS"], defines["TW_ALIGN"])
    assert found == expected


# Sizes, and how many bytes the operands have: of what is expanded, fewer than they show.
THIN = [
    (sizes(64, 28672, 8191), (64 + 28672) * 8191),
    (sizes(4097, 4099, 4101, 1, 1, 4097, 4099), (4097 + 4099) * 4101),
    (sizes(1, 8_000_000, 1), 8_000_001),  # 16 bytes for one
    (sizes(1, 1_000_000, 1), 1_000_001),
    (sizes(65_537, 7, 5121, 1, 5121, 0), 65_537 + 7 * 5121),
    (sizes(131_073, 7, 5121) | {"ld_a": 0}, 5121 + 7 * 5121),
    (sizes(4099, 16_001, 4001, 4001, 1, 1, 1), 4099 * 4001 + 16_001 + 4000),
]


@pytest.mark.parametrize("family", RUNGS)
def test_packed_operands_take_no_more_memory_than_a_few_times_the_callers(family: str) -> None:
    takes = []
    for of, has_bytes in THIN:
        rung = FAMILIES[family].rung(RUNGS[family]).at(of, FAMILIES[family].dtypes[0])
        spec = rung_spec(FAMILIES[family], rung, FAMILIES[family].dtypes[0])
        packed = {b.name: b for launch in bound_launches(spec, of, constants_of(spec)) for b in launch.buffers}
        packed_bytes = packed["a_rows"].storage_elements + packed["b_rows"].storage_elements
        takes.append(rung.is_meant_for(of, spec.dtype))
        assert takes[-1] == (packed_bytes <= 4 * has_bytes + 64_000_000), (of, packed_bytes)
    assert set(takes) == {True, False}
