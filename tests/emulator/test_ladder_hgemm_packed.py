"""HGEMM whose rows begin anywhere: packed first. Right at odd pitches, and its broken twins are caught."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ladder_twins import twin_of

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

FAMILY = load_family("hgemm")
RUNG = FAMILY.rung("32_packed")
ODD = {"M": 131, "N": 73, "K": 203, "ld_a": 205, "ld_b": 75}
EDGES = [
    {"M": 1, "N": 1, "K": 1, "ld_a": 1, "ld_b": 1},
    {"M": 3, "N": 9, "K": 7, "ld_a": 7, "ld_b": 9},
    {"M": 5, "N": 8, "K": 17, "ld_a": 17, "ld_b": 11},
    {"M": 129, "N": 130, "K": 66, "ld_a": 67, "ld_b": 130},
]

SHIPPED = {"TW_ALIGN": 16, "TW_PACKS": 2}


def built(old: str = "", new: str = "", **defines: int) -> CompiledRung:
    spec = rung_spec(FAMILY, replace(RUNG, defines={**RUNG.defines, **SHIPPED, **defines}), "bfloat16")
    return compile_rung(spec, Settings.from_environment(), text=twin_of(RUNG.file, old, new) if old else None)


@pytest.mark.parametrize("sizes", [ODD, *EDGES], ids=lambda sizes: "x".join(str(n) for n in sizes.values()))
def test_rows_may_begin_anywhere(sizes: dict[str, int]) -> None:
    assert run_emulated(built(), operation(FAMILY, "bfloat16", sizes), attempt=1).message == ""


@pytest.mark.parametrize("choice", RUNG.choices, ids=lambda choice: str(choice["TW_BN"]))
def test_tiles_of_a_card_are_right_and_spill_nothing(choice: dict[str, int]) -> None:
    compiled = built(**choice, TW_ALIGN=128, TW_PACKS=1)
    assert compiled.spill_bytes == 0
    sizes = {"M": 75, "N": 265, "K": 601, "ld_a": 603, "ld_b": 265}
    assert run_emulated(compiled, operation(FAMILY, "bfloat16", sizes)).message == ""


def test_the_tile_is_the_one_whose_rounds_are_full() -> None:
    def columns(m: int, n: int) -> int:
        return RUNG.at({"M": m, "N": n, "K": 2050, "ld_a": 2051, "ld_b": n}, "bfloat16").defines["TW_BN"]

    assert columns(8191, 8191) == 256  # 2,048 tiles: 15.5 rounds
    assert columns(4095, 4097) == 192  # 704 tiles, 5.3 rounds: 293 us, and 299 of 256
    assert columns(2047, 2049) == 128  # 272 tiles, three rounds: 56.0 us; two of 192 63.0, two of 256 66.2
    assert columns(257, 1001) == 64


@pytest.mark.parametrize(
    ("shape", "align", "packs"),
    [
        ((2047, 2049, 2055), 128, 2),  # 55.2 us; with 16 66.3, with four packs 56.0
        ((1000, 1000, 1001), 128, 1),  # 8.81; with 16 9.91, with four 13.4
        ((257, 1000, 777), 128, 1),  # 6.62; with 16 7.33, with four 8.47
        ((512, 512, 511), 16, 1),  # 5.05; with 128 5.10, with four 6.44
        ((256, 256, 1021), 16, 1),  # 5.87; with 128 5.95, with four 7.44
    ],
)
def test_operands_are_packed_as_was_the_fastest(shape: tuple[int, int, int], align: int, packs: int) -> None:
    m, n, k = shape
    defines = RUNG.at({"M": m, "N": n, "K": k, "ld_a": k, "ld_b": n}, "bfloat16").defines
    assert (defines["TW_ALIGN"], defines["TW_PACKS"]) == (align, packs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const unsigned shift = address & 2 ? 16 : 0", "const unsigned shift = 0"),
        ("read[4] = shift ? __ldg(whole + 4) : 0", "read[4] = 0"),
        ("column + 8 < columns;", "true;"),  # reads what is behind a row: another row's, or nothing's
        ("column + w * 2 < columns ?", "true ?"),
        ("at % of_a] = packs[i]", "at % of_a + (at == of_a)] = packs[i]"),
        ("wait_for(&stages.full[turn.stage], turn.phase);", ""),
        ("arrive(&stages.empty[before]);", ";"),
    ],
)
def test_a_broken_twin_is_caught(old: str, new: str) -> None:
    twin = built(old, new)
    sets = [operation(FAMILY, "bfloat16", sizes) for sizes in (ODD, EDGES[1])]
    assert not all(run_emulated(twin, what, attempt=attempt).passed for what in sets for attempt in (0, 1))
