"""What rungs of rows are built with for long rows, in small: right, and twins broken on purpose are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_ladder_starts import shifted

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.running import Operation, operation, reference_of, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

RING = {
    "CLUSTER": 2,
    "WORKERS": 64,
    "PACKS": 2,
    "GROUP": 1,
    "STAGES": 3,
    "RESIDENT": 2,
    "CLUSTERS": 2,
    "TW_STREAM": 0,
    "WHOLE": 0,
}
WHOLE = {"R": 5, "C": 2048, "ld_x": 2056}  # what the ring holds of 16-bit elements
RAGGED = {"R": 5, "C": 1800, "ld_x": 1808}
ODD = {"R": 5, "C": 1801, "ld_x": 1803}  # rows of 16-bit elements begin in a word and between two in turn
WORDS = {"WORKERS": 160, "PIECES": 6, "LATE": 1, "BLOCKS": 3}
Fill = Callable[[np.random.Generator, int], np.ndarray]


def far(rng: np.random.Generator, columns: int) -> np.ndarray:
    """Halves that lie 2,000 from zero, 1 apart: a base that is rounded must be the same one throughout."""
    return rng.integers(1990, 2001, columns).astype(float)


def huge(rng: np.random.Generator, columns: int) -> np.ndarray:
    """Their product with log2(e) is no float any more."""
    return np.where(rng.random(columns) < 0.01, 3.3e38, rng.choice([-3.3e38, 2.45e38, 0.0, 5.0], columns))


def outlier(rng: np.random.Generator, columns: int) -> np.ndarray:
    """The element that sums are around is the one that lies far from the mean."""
    row = rng.normal(0, 1, columns)
    row[0] = 60000
    return row


def plain(rng: np.random.Generator, columns: int) -> np.ndarray:
    return rng.normal(3, 2, columns)


CASES: list[tuple[str, str, str, dict[str, int], dict[str, int], Fill, tuple[str, str]]] = [
    (
        "softmax", "07", "float16", {}, RAGGED, far,
        ("Exp::between(own[g], rows[g].largest)", "Exp::between(rows[g].largest, rows[g].largest)"),
    ),
    (
        "softmax", "10", "bfloat16", {"WHOLE": 2048}, WHOLE, huge,
        ("const Exp exp(state.largest)", "const Exp exp(MINUS_INFINITY)"),
    ),
    (
        "softmax", "12", "float16", {}, RAGGED, plain,
        ("largest = next;", ""),
    ),
    (
        "softmax", "12", "bfloat16", {"WHOLE": 2048, "PACKS": 2}, WHOLE, huge,
        ("Exp::between(largest, state.largest)", "1.0f"),
    ),
    (
        "softmax", "09", "bfloat16", {"WORKERS": 96, "PIECES": 3, "WIDTH": 8}, RAGGED, far,
        ("make_float2(MINUS_INFINITY, 0.0f)", "make_float2(3e38f, 0.0f)"),
    ),
    (
        "layernorm", "08", "float16", {}, RAGGED, outlier,
        ("fmaxf(warp_sum(squares) - sum * sum * rate, 0.0f)", "warp_sum(squares)"),
    ),
    (
        "layernorm", "08", "bfloat16", {"WHOLE": 2048}, WHOLE, plain,
        ("sum + pivot * rows.columns", "sum"),
    ),
    (
        "layernorm", "07", "float32", {"WORKERS": 160, "PIECES": 3, "WIDTH": 4, "HELD": 0, "LATE": 1, "BLOCKS": 3},
        RAGGED, plain, ("bias + first + column", "bias + first"),
    ),
    (
        "layernorm", "07", "float16", {"WORKERS": 64, "PIECES": 4, "WIDTH": 8, "HELD": 0, "AGAIN": 1},
        RAGGED, plain, ("(x + first + i * WORKERS * ACROSS)", "(x + first)"),
    ),
    (
        "rmsnorm", "07", "float32", {"WORKERS": 160, "PIECES": 3, "WIDTH": 4, "HELD": 0, "LATE": 1, "BLOCKS": 3},
        RAGGED, plain, ("first + i * WORKERS * ACROSS", "first"),
    ),
    (
        "add_rmsnorm", "05", "float32", {"WORKERS": 160, "PIECES": 3, "WIDTH": 4, "HELD": 0, "LATE": 1, "BLOCKS": 3},
        RAGGED, plain, ("first + i * WORKERS * ACROSS", "first"),
    ),
    (
        "add_layernorm", "05", "float32", {"WORKERS": 160, "PIECES": 3, "WIDTH": 4, "HELD": 0, "LATE": 1, "BLOCKS": 3},
        RAGGED, plain, ("bias + first + column", "bias + first"),
    ),
    # Rows in no packs, some in the middle of a word.
    (
        "layernorm", "07", "float32", {"WORKERS": 160, "PIECES": 6, "WIDTH": 2, "HELD": 1, "LATE": 1, "BLOCKS": 3},
        ODD, plain, ("make_row<1, PIECES * WIDTH>", "make_row<1, PIECES>"),
    ),
    (
        "rmsnorm", "07", "float32", {"WORKERS": 160, "PIECES": 12, "WIDTH": 1, "HELD": 1, "LATE": 1, "BLOCKS": 3},
        ODD, plain, ("first + i * WORKERS * ACROSS", "first"),
    ),
    (
        "add_layernorm", "05", "float32", {"WORKERS": 160, "PIECES": 12, "WIDTH": 1, "HELD": 1, "LATE": 1, "BLOCKS": 3},
        ODD, plain, ("bias + first + column", "bias + first"),
    ),
    (
        "add_rmsnorm", "05", "float32", {"WORKERS": 160, "PIECES": 6, "WIDTH": 2, "HELD": 1, "LATE": 1, "BLOCKS": 3},
        ODD, plain, ("make_row<1, PIECES * WIDTH>", "make_row<1, PIECES>"),
    ),
    ("layernorm", "09", "bfloat16", WORDS, ODD, plain, ("load_pair<IS_WORD>(bias + first", "load_pair<IS_WORD>(bias")),
    ("rmsnorm", "09", "bfloat16", WORDS, ODD, plain, ("SLOTS = power_of_two_from(WARPS)", "SLOTS = WARPS")),
    ("add_layernorm", "06", "bfloat16", WORDS, ODD, plain, ("SLOTS = power_of_two_from(WARPS)", "SLOTS = WARPS")),
    ("add_rmsnorm", "06", "bfloat16", WORDS, ODD, plain, ("load_bits<1>(weight + first", "load_bits<1>(weight")),
]  # fmt: skip


def built(family: Family, rung: Rung, dtype: str, text: str | None = None) -> CompiledRung:
    return compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), text=text)


def filled(what: Operation, fill: Fill) -> Operation:
    """The same with other rows of x."""
    rng = np.random.default_rng(7)
    x = what.inputs["x"].copy()
    for begin in range(0, x.size, what.sizes["ld_x"]):
        x[begin : begin + what.sizes["C"]] = fill(rng, what.sizes["C"]).astype(x.dtype)
    inputs = {**what.inputs, "x": x}
    return replace(what, inputs=inputs, expected=reference_of(what.family).compute(what.launch, inputs))


@pytest.mark.parametrize(("name", "which", "dtype", "switches", "sizes", "fill", "breakage"), CASES)
def test_switches_are_right_and_broken_twins_are_not(
    name: str,
    which: str,
    dtype: str,
    switches: dict[str, int],
    sizes: dict[str, int],
    fill: Fill,
    breakage: tuple[str, str],
) -> None:
    family = load_family(name)
    rung = family.rung(which)
    rung = replace(rung, defines={**({} if "WORKERS" in switches else RING), **switches}, claims=())
    what = filled(operation(family, dtype, sizes), fill)
    compiled = built(family, rung, dtype)
    done = run_emulated(compiled, what)
    assert done.passed, done.message
    assert compiled.spill_bytes == 0
    text = rung.file.read_text("utf-8")
    assert breakage[0] in text
    assert not run_emulated(built(family, rung, dtype, text.replace(*breakage)), what).passed


# Of a kernel for words: a broken twin, and whether it shows where weights begin in words as the row does.
SLOTS = ("SLOTS = power_of_two_from(WARPS)", "SLOTS = WARPS")
LAST = ("threadIdx.x == WORKERS - 2 &&", "threadIdx.x == WORKERS &&")
PAIR = ("upper = load_bits<1>(from + 1)", "upper = load_bits<1>(from)")
TWINS = [
    ("layernorm", "09", SLOTS, 0),
    ("layernorm", "09", LAST, 1),
    ("layernorm", "09", PAIR, 0),
    ("layernorm", "09", ("load_pair<IS_WORD>(bias + first + i", "load_pair<IS_WORD>(bias + first + 2 * i"), 1),
    ("rmsnorm", "09", SLOTS, 0),
    ("rmsnorm", "09", LAST, 1),
    ("rmsnorm", "09", PAIR, 0),
    ("rmsnorm", "09", ("load_pair<IS_WORD>(weight + first + i", "load_pair<IS_WORD>(weight + first + 2 * i"), 1),
    ("add_layernorm", "06", SLOTS, 0),
    ("add_layernorm", "06", LAST, 1),
    ("add_layernorm", "06", ("load_bits<1>((k ? bias : weight) + first + i * WORKERS * 2 + 1)", "Bits<1>()"), 1),
    ("add_rmsnorm", "06", SLOTS, 0),
    ("add_rmsnorm", "06", LAST, 1),
    ("add_rmsnorm", "06", (" = load_bits<1>(weight + first + i", " = load_bits<1>(weight + first + 2 * i"), 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "breakage", "begins"), TWINS)
def test_words_of_rows_with_an_element_at_both_ends(
    name: str, which: str, breakage: tuple[str, str], begins: int
) -> None:
    """Every row begins in the middle of a word and ends in one; weights and biases do, or do not."""
    family = load_family(name)
    rung = replace(family.rung(which), defines={"WORKERS": 96, "PIECES": 4, "LATE": 1, "BLOCKS": 3}, claims=())
    text = rung.file.read_text("utf-8")
    rows = dict.fromkeys(("x", "y", *(("residual", "total") if name.startswith("add_") else ())), 1)
    offsets = {**rows, "weight": begins, **({"bias": begins} if "layernorm" in name else {})}
    wide, less = {"R": 3, "C": 641, "ld_x": 650}, {"C": 1}
    done = shifted(family, rung, text, offsets, wide, less)
    assert done.passed, done.message
    assert breakage[0] in text
    assert not shifted(family, rung, text.replace(*breakage), offsets, wide, less).passed


# Many rows in no packs: columns, and what would spill where `sized` says something else of one define.
# Rows, columns and pitch; and what would make it spill.
SPILLS = [
    ("layernorm", "07", "float32", (20000, 2497, 2497), {"BLOCKS": 7}),
    ("layernorm", "07", "bfloat16", (20000, 4610, 4610), {"HELD": 1}),
    ("layernorm", "09", "bfloat16", (20000, 4051, 4051), {"BLOCKS": 6}),
    ("rmsnorm", "07", "bfloat16", (20000, 5134, 5135), {"BLOCKS": 0}),
    ("add_layernorm", "05", "bfloat16", (20000, 4610, 4610), {"HELD": 1}),
    ("add_layernorm", "05", "float32", (264, 8191, 8191), {"BLOCKS": 1}),
    ("add_layernorm", "05", "float16", (264, 8191, 8191), {"BLOCKS": 1}),
    ("add_rmsnorm", "05", "float32", (20000, 3330, 3330), {"BLOCKS": 3}),
    ("add_rmsnorm", "05", "float32", (20000, 5762, 5762), {"HELD": 1}),
    ("add_rmsnorm", "05", "bfloat16", (20000, 4610, 4610), {"HELD": 1}),
]


@pytest.mark.parametrize(("name", "which", "dtype", "sizes", "change"), SPILLS)
def test_rows_in_no_packs_spill_nothing(
    name: str, which: str, dtype: str, sizes: tuple[int, int, int], change: dict[str, int]
) -> None:
    family = load_family(name)
    rung = replace(family.rung(which).at(dict(zip(("R", "C", "ld_x"), sizes, strict=True)), dtype), claims=())
    spilled = []
    for defines in ({}, change):
        spec = rung_spec(family, replace(rung, defines={**rung.defines, **defines}), dtype)
        spilled.append(compile_rung(spec, Settings.from_environment(), "sm_90a").spill_bytes)
    assert spilled[0] == 0 < spilled[1]


def test_rows_that_do_not_fill_all_packs_are_refused_where_all_are_said_to() -> None:
    """By its launcher, and by the kernel itself."""
    family = load_family("rmsnorm")
    rung = replace(family.rung("08"), defines={**RING, "WHOLE": 2048}, claims=())
    compiled = built(family, rung, "float16")
    assert run_emulated(compiled, operation(family, "float16", WHOLE)).passed
    with pytest.raises(TilewrightError, match="rows of the length that it is built for"):
        run_emulated(compiled, operation(family, "float16", RAGGED))
    unasked = built(family, replace(rung, needs={}), "float16")
    assert not run_emulated(unasked, operation(family, "float16", RAGGED)).passed


@pytest.mark.parametrize(
    ("name", "which"), [("softmax", "10"), ("softmax", "12"), ("rmsnorm", "08"), ("layernorm", "08")]
)
def test_a_rung_as_a_card_has_it_is_judged_at_sets_that_it_takes(name: str, which: str) -> None:
    """A card judges what is built for `default` at smaller sets: it stopped there, and the context was gone."""
    family = load_family(name)
    default = family.sizes["default"]
    rung = replace(family.rung(which).at(default, "bfloat16"), claims=())
    sets = family.emulated_sets(rung, default)
    compiled = built(family, rung, "bfloat16")
    assert sets
    for size in sets:
        assert run_emulated(compiled, operation(family, "bfloat16", family.sizes[size])).passed, size
    long = {"R": 2048, "C": 65536, "ld_x": 65536}
    assert family.emulated_sets(family.rung(which).at(long, "bfloat16"), long) == ()


def test_sixteen_bytes_are_one_store() -> None:
    family = load_family("softmax")
    rung = replace(family.rung("10"), defines={**RING, "PACKS": 4}, claims=())
    ptx = built(family, rung, "bfloat16").artifacts[0].ptx
    assert ptx.count("st.global.v4.u32") == 4
    assert "st.global.u32" not in ptx
    # As it was written before: the compiler makes four stores of the first.
    text = rung.file.read_text("utf-8")
    call = "store_words_once(to + column_of<32>(i, lane), packed(values))"
    assert call in text
    assigned = "*reinterpret_cast<Words4*>(to + column_of<32>(i, lane)) = of(packed(values))"
    helper = (
        "struct alignas(16) Words4 { unsigned x, y, z, w; };\n"
        "__device__ Words4 of(const Words& a) { return {a.at[0], a.at[1], a.at[2], a.at[3]}; }\n"
    )
    broken = text.replace(call, assigned).replace('extern "C"', helper + 'extern "C"')
    assert built(family, rung, "bfloat16", broken).artifacts[0].ptx.count("st.global.u32") >= 4
