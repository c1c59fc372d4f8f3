"""Elementwise operations, embedding and histogram, where it is not enough that a rung is right at the family's sizes.

Every 16-bit value, views that begin anywhere, indices and values out of range, the defines that a card gets, and twins
broken on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.running import Arrays, Operation, RungRun, operation, reference_of, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings


def built(family: Family, rung: Rung, dtype: str, text: str | None = None) -> CompiledRung:
    return compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), text=text)


def on(what: Operation, **inputs: np.ndarray) -> Operation:
    """The operation with other inputs."""
    arrays: Arrays = {**what.inputs, **inputs}
    return replace(what, inputs=arrays, expected=reference_of(what.family).compute(what.launch, arrays))


def edited(rung: Rung, *changes: tuple[str, str]) -> str:
    text = rung.file.read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def ordered(values: np.ndarray) -> np.ndarray:
    """16-bit floats as integers that follow each other as they do."""
    bits = values.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -0x8000 - bits, bits)


@pytest.mark.parametrize(("name", "dtype"), [("gelu", "float16"), ("gelu", "bfloat16"), ("sigmoid", "float16")])
def test_every_16_bit_value(name: str, dtype: str) -> None:
    """At most one unit in the last place from the rounded result; NaNs and infinities are PyTorch's."""
    family = load_family(name)
    what = operation(family, dtype, {"N": 1 << 16})
    every = np.arange(1 << 16, dtype=np.uint16).view(what.inputs["x"].dtype)
    what = on(what, x=every)
    compiled = built(family, family.rung("in_flight"), dtype)
    done = run_emulated(compiled, what, checks=False)
    assert done.passed, done.message
    got = done.outputs["y"]
    with np.errstate(all="ignore"):
        need = what.expected["y"].astype(got.dtype)
        told = np.isfinite(need) & (every.astype(np.float32) > -7.5)  # below, PyTorch has -0, and 1e-13 is near enough
    assert np.abs(ordered(got) - ordered(need))[told].max() <= 1


def test_gelu_of_floats() -> None:
    """Where 1 + erf keeps no more than the digits that cancelling leaves it, too: x * P(X <= x) relatively."""
    family = load_family("gelu")
    x = np.concatenate([np.linspace(-4, 4, 4001), np.geomspace(1e-6, 1, 95)]).astype(np.float32)
    what = on(operation(family, "float32", {"N": len(x)}), x=x)
    file = family.rung("03").file.parents[1] / "include" / "activations.cuh"
    header = file.read_text("utf-8").replace("#pragma once", "")
    careless = header.replace("1.00219711e-06f", "1.003e-06f")
    assert careless != header
    far = []
    for activations in (header, careless):
        text = edited(family.rung("03"), ('#include "activations.cuh"', activations))
        got = run_emulated(built(family, family.rung("03"), "float32", text), what).outputs["y"]
        off = np.abs(got - what.expected["y"]) / np.maximum(np.abs(what.expected["y"]), 1e-30)
        far.append((off[x > -1].max(), off.max()))
    assert far[0] < (6e-7, 2e-6), far
    assert far[0][1] < 2e-6 < 4e-6 < far[1][1], far


def test_what_is_not_finite_is_as_in_pytorch() -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40], np.float32)
    for name, need in (
        ("relu", [np.nan, np.inf, 0, 0, 1e-40]),
        ("sigmoid", [np.nan, 1, 0, 0.5, 0.5]),
        ("gelu", [np.nan, np.inf, np.nan, 0, 5e-41]),
    ):
        family = load_family(name)
        what = on(operation(family, "float32", {"N": 5}), x=values)
        np.testing.assert_allclose(what.expected["y"], need, rtol=1e-5)
        done = run_emulated(built(family, family.rung("03"), "float32"), what)
        assert done.passed, f"{name}: {done.message}"
        np.testing.assert_allclose(done.outputs["y"], need, rtol=1e-4)
    family = load_family("silu_mul")
    what = on(operation(family, "float32", {"N": 5}), a=values, b=np.full(5, -2, np.float32))
    np.testing.assert_allclose(what.expected["y"], [np.nan, -np.inf, np.nan, 0, -1e-40], rtol=1e-5)
    done = run_emulated(built(family, family.rung("03"), "float32"), what)
    assert done.passed, done.message


# As a card gets them, or as they are tried there: family, element type, defines, sizes with whole blocks and a rest.
SIZED: list[tuple[str, str, Mapping[str, int], Mapping[str, int]]] = [
    ("add", "bfloat16", {"THREADS": 256, "PACKS": 2, "STREAM": 1}, {"N": 9003}),
    ("silu_mul", "float16", {"THREADS": 128, "PACKS": 1, "STREAM": 0}, {"N": 2051}),
    ("relu", "float32", {"THREADS": 256, "PACKS": 4, "STREAM": 1}, {"N": 4102}),
    ("embedding", "float16", {"THREADS": 128, "PACKS": 2, "TW_STREAM": 0}, {"N": 37, "V": 9, "C": 136, "ld_w": 136}),
    ("embedding", "bfloat16", {"THREADS": 128, "PACKS": 1, "TW_STREAM": 0}, {"N": 37, "V": 9, "C": 33, "ld_w": 33}),
    ("histogram", "uint8", {"THREADS": 256, "PACKS": 1, "BLOCKS": 3, "COPIES": 32}, {"N": 14007, "bins": 200}),
    ("histogram", "int32", {"THREADS": 256, "PACKS": 1, "BLOCKS": 3, "COPIES": 8}, {"N": 5003, "bins": 1000}),
]


@pytest.mark.parametrize(("name", "dtype", "defines", "sizes"), SIZED)
def test_a_rung_as_a_card_gets_it(name: str, dtype: str, defines: Mapping[str, int], sizes: Mapping[str, int]) -> None:
    family = load_family(name)
    rung = next((r for r in family.rungs if "in_flight" in r.name), family.rungs[-1])
    if rung.sized:
        assert set(rung.at(family.sizes["default"], dtype).defines) == {*rung.defines, *defines}
    rung = replace(rung, defines={**rung.defines, **defines}, limits={})
    done = run_emulated(built(family, rung, dtype), operation(family, dtype, sizes), attempt=1)
    assert done.passed, done.message


@pytest.mark.parametrize(("name", "dtype"), [("add", "float32"), ("gelu", "bfloat16")])
def test_who_names_no_rung_gets_a_pack_a_thread_or_of_little_an_element(name: str, dtype: str) -> None:
    """What an H200 took least time for; the rung above it is a loss."""
    family = load_family(name)
    for size in family.sizes.values():
        rung = family.best(size, dtype, lambda arch: True)
        assert rung.name == "04_dependent"
        count, bytes_ = size["N"], size["N"] * (2 if dtype == "bfloat16" else 4)
        is_some, is_little = 2 << 20 < bytes_ <= 12 << 20, name == "add" and count > 128 and bytes_ <= 12288
        assert rung.defines["SINGLE"] == (count <= 128)
        assert rung.defines["THREADS"] == (256 if is_some else 32 if is_little or count <= 32 else 128)
    done = run_emulated(built(family, rung, dtype), operation(family, dtype, {"N": 2051}), attempt=1)
    assert done.passed, done.message
    for count in (1, 32, 33, 128):
        rung = family.best({"N": count}, dtype, lambda arch: True)
        done = run_emulated(built(family, rung, dtype), operation(family, dtype, {"N": count}), attempt=1)
        assert done.passed, done.message


def shifted(name: str, *, careless: bool = False) -> tuple[RungRun, np.ndarray]:
    """The rung of several packs on inputs that begin one element later: what came of it, and what should have.

    Args:
        careless: it does not look where they begin.
    """
    family = load_family(name)
    rung = next((r for r in family.rungs if "in_flight" in r.name), family.rungs[-1])
    inputs = [arg["name"] for arg in family.args if "shape" in arg and arg.get("role") != "out"]
    changes = [("N - begin)", "N - 1 - begin)"), *((f"{each} += begin;", f"{each} += begin + 1;") for each in inputs)]
    if careless:
        changes += [(f"!is_pack_aligned({each})", "false") for each in inputs]
    what = operation(family, "float16", {"N": 3003})
    done = run_emulated(built(family, rung, "float16", edited(rung, *changes)), what)
    return done, what.expected["y"][1:]


@pytest.mark.parametrize("name", ["gelu", "add"])
def test_views_that_begin_between_two_packs(name: str) -> None:
    done, need = shifted(name)
    assert not done.hazards
    got = done.outputs["y"][:-1].astype(np.float64)
    np.testing.assert_allclose(got, need, rtol=2e-3, atol=1e-6)
    done, _ = shifted(name, careless=True)
    assert "not a multiple of 16" in done.message


@pytest.mark.parametrize("rung", load_family("embedding").rungs, ids=lambda rung: rung.name)
def test_an_index_that_names_no_row_stops_the_kernel(rung: Rung) -> None:
    family = load_family("embedding")
    what = operation(family, "float32", family.sizes["strided"])
    compiled = built(family, rung, "float32")
    for bad in (-1, what.sizes["V"], 1 << 40):
        indices = what.inputs["indices"].copy()
        indices[7] = bad
        done = run_emulated(compiled, replace(what, inputs={**what.inputs, "indices": indices}))
        assert "trap" in done.message, done.message
        assert not done.hazards, "it read what is not the table's"


@pytest.mark.parametrize("rung", load_family("histogram").rungs, ids=lambda rung: rung.name)
def test_values_without_a_bin_are_not_counted(rung: Rung) -> None:
    family = load_family("histogram")
    what = operation(family, "int32", {"N": 4103, "bins": 33})
    x = what.inputs["x"].copy()
    x[::3] = 7  # most of a warp adds to one bin
    x[[0, 5, 31, 700, 4102]] = [-1, 33, -(1 << 31), (1 << 31) - 1, 34]
    what = on(what, x=x)
    assert what.expected["counts"].sum() == 4098
    done = run_emulated(built(family, rung, "int32"), what)
    assert done.passed, done.message


# Family, rung, what stands in its file, what a broken twin has in its place, the set at which it has to be seen.
BROKEN = [
    ("relu", "02", "if (mine == TW_PACK) pack", "if (mine > 0) pack", "ragged"),
    ("relu", "02", "if (mine == TW_PACK) store_pack", "if (mine > 0) store_pack", "ragged"),
    ("relu", "04", "put_some(y + column, pack, mine)", "put_some(y + column, pack, mine - 1)", "tiny_31"),
    ("gelu", "03", "single = whole + threadIdx.x", "single = count", "tiny_33"),
    ("sigmoid", "03", "if (FULL || first + i * STEP < whole) store", "store", "ragged"),
    ("add", "02", "to_float(other.at[j])", "to_float(pack.at[j])", "small"),
    ("silu_mul", "03", "others[i] = load_pack_once(b", "others[i] = load_pack_once(a", "small"),
    ("add", "03", "y + first + i * STEP", "y + first", "small"),
    ("embedding", "02", "const int step = packed ? TW_PACK : 1", "const int step = TW_PACK", "ragged"),
    ("embedding", "02", "C % TW_PACK == 0 && ld_w", "ld_w", "ragged"),
    ("embedding", "03", "part -= steps;\n            ++place;", "part -= steps;", "ragged_packs"),
    ("embedding", "03", "place += more_places;", "", "small"),
    ("embedding", "03", "FULL ? place : min(place, N - 1)", "place", "tiny_31"),
    ("embedding", "03", "if (!FULL && at >= end) break;", "", "ragged"),
    ("histogram", "02", "min((unsigned)x[at], bins)", "min((unsigned)x[at], bins + 1)", "beyond"),
    ("histogram", "03", "(bin + i) % COPIES", "i % 16", "small"),
    ("histogram", "04", "min(value, bins)", "value", "beyond"),
    ("histogram", "04", "if (!FULL && first + i * STEP >= here) break;", "", "ragged"),
    ("histogram", "04", "at = whole + (long long)", "at = (long long)", "ragged"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "old", "new", "size"), BROKEN)
def test_a_broken_twin_is_caught(name: str, which: str, old: str, new: str, size: str) -> None:
    family = load_family(name)
    rung = family.rung(which)
    dtype = family.dtypes[0]
    what = operation(family, dtype, family.sizes["ragged" if size == "beyond" else size])
    if size == "beyond":
        x = what.inputs["x"].copy()
        x[[3, 900]] = [1 << 30, -5]
        what = on(what, x=x)
    compiled = built(family, rung, dtype, edited(rung, (old, new)))
    assert not all(run_emulated(compiled, what, attempt=attempt).passed for attempt in (0, 1))


def test_indices_beyond_32_bits_are_divided_whole() -> None:
    """No emulated array is so long: the index is taken 2**33 rows further, and its row as many back."""
    family = load_family("embedding")
    rung = family.rung("in_flight")
    what = operation(family, "float32", family.sizes["ragged"])
    division = "auto [place, part] = divide(first, steps);"
    far = (division, f"{division.replace('first', 'first + (1LL << 33) * steps')} place -= 1LL << 33;")
    assert run_emulated(built(family, rung, "float32", edited(rung, far)), what).passed
    header = rung.file.parents[1] / "include" / "divide.cuh"
    wide = "if (index >> 32) return {index / by, static_cast<int>(index % by)};"
    narrow = header.read_text("utf-8").replace("#pragma once", "").replace(wide, "")
    careless = edited(rung, far, ('#include "divide.cuh"', narrow))
    assert not run_emulated(built(family, rung, "float32", careless), what).passed


# What stands in activations.cuh, and what a broken twin has: family, element type.
WRONG_FUNCTIONS = [
    ("relu", "float32", "relu(to_float(", "fmaxf(0.0f, to_float("),  # drops NaN
    ("gelu", "float32", "gelu(to_float(", "0.99999f * gelu(to_float("),
    ("gelu", "float16", "gelu(to_float(", "1.01f * gelu(to_float("),
    ("sigmoid", "float32", "sigmoid(to_float(", "0.99999f * sigmoid(to_float("),
]


@pytest.mark.parametrize(("name", "dtype", "old", "new"), WRONG_FUNCTIONS)
def test_a_wrong_function_is_caught(name: str, dtype: str, old: str, new: str) -> None:
    family = load_family(name)
    rung = family.rungs[0]
    what = operation(family, dtype, family.sizes["ragged"], specials=family.specials)
    assert run_emulated(built(family, rung, dtype), what).passed
    text = edited(rung, ("TW_OP(to_float(", old), (old, new))
    assert not run_emulated(built(family, rung, dtype, text), what).passed
