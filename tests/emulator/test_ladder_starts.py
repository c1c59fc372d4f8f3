"""Arrays that begin between two packs, rows at odd distances, rows of zeros: no rung's usual way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.running import (
    Operation,
    RungRun,
    judge,
    operation,
    operation_launch,
    reference_of,
    run_emulated,
)
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

Sizes = Mapping[str, int]


def built(family: Family, rung: Rung, dtype: str, text: str | None = None) -> CompiledRung:
    return compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), text=text)


def shifted(family: Family, rung: Rung, text: str, offsets: Sizes, wide: Sizes, less: Sizes) -> RungRun:
    """A rung whose arrays begin so many elements later, and which makes so much less of its sizes."""
    dtype = "float16" if "float16" in family.dtypes else "uint8"
    opening = text.index("{", text.index('extern "C" ' if 'extern "C" ' in text else 'extern "C"')) + 1
    moved = "".join(f" {name} += {count};" for name, count in offsets.items())
    moved += "".join(f" {name} -= {count};" for name, count in less.items())
    compiled = built(family, rung, dtype, text[:opening] + moved + text[opening:])
    done = run_emulated(compiled, operation(family, dtype, wide))
    if done.hazards or not done.outputs:
        return done
    narrow = {name: value - less.get(name, 0) for name, value in wide.items()}
    launch = operation_launch(family, dtype, narrow)
    parts = {}
    for buffer in launch.buffers:
        first = offsets.get(buffer.name, 0)
        parts[buffer.name] = done.outputs[buffer.name][first : first + buffer.storage_elements]
    inputs = {b.name: parts[b.name] for b in launch.buffers if b.is_read_first}
    what = Operation(family, dtype, narrow, launch, inputs, reference_of(family).compute(launch, inputs))
    return judge(compiled, what, parts)


ROWS = {"R": 3, "C": 72, "ld_x": 80}
# Family, rung, the array that begins one element later, sizes, and how much less is made of them.
STARTS = [
    ("softmax", "04", "x", ROWS, {"C": 8}),
    ("softmax", "07", "x", ROWS, {"C": 8}),
    ("softmax", "07", "y", ROWS, {"C": 8}),
    ("rmsnorm", "03", "y", ROWS, {"C": 8}),
    ("rmsnorm", "05", "weight", ROWS, {"C": 8}),
    ("layernorm", "05", "bias", ROWS, {"C": 8}),
    ("embedding", "03", "weight", {"N": 9, "V": 5, "C": 40, "ld_w": 48}, {"C": 8}),
    ("embedding", "03", "y", {"N": 9, "V": 5, "C": 40, "ld_w": 48}, {"C": 8}),
    ("histogram", "04", "x", {"N": 4200, "bins": 40}, {"N": 9}),
    ("relu", "02", "x", {"N": 200}, {"N": 8}),
    ("relu", "02", "y", {"N": 200}, {"N": 8}),
    ("add", "02", "b", {"N": 200}, {"N": 8}),
    ("add", "03", "y", {"N": 200}, {"N": 8}),
    ("rope_half", "03", "cosines", {"tokens": 3, "H": 2, "D": 32, "ld_x": 64}, {"tokens": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "array", "wide", "less"), STARTS)
def test_an_array_that_begins_between_two_packs(name: str, which: str, array: str, wide: Sizes, less: Sizes) -> None:
    family = load_family(name)
    rung = family.rung(which)
    text = rung.file.read_text("utf-8")
    done = shifted(family, rung, text, {array: 1}, wide, less)
    assert done.passed, done.message
    careless = text.replace(f"!is_pack_aligned({array})", "false").replace(f"is_pack_aligned({array})", "true")
    assert careless != text
    assert not shifted(family, rung, careless, {array: 1}, wide, less).passed


PITCHES = [
    ("softmax", "07", {"R": 3, "C": 64, "ld_x": 67}, "ld_x % TW_PACK == 0"),
    ("rmsnorm", "05", {"R": 3, "C": 64, "ld_x": 67}, "ld_x % TW_PACK == 0"),
    ("layernorm", "05", {"R": 3, "C": 64, "ld_x": 67}, "ld_x % TW_PACK == 0"),
    ("embedding", "03", {"N": 9, "V": 5, "C": 32, "ld_w": 35}, "ld_w % TW_PACK == 0"),
    ("rope_half", "03", {"tokens": 3, "H": 2, "D": 32, "ld_x": 67}, "ld_x % TW_PACK == 0"),
    ("rope_interleaved", "03", {"tokens": 3, "H": 2, "D": 32, "ld_x": 67}, "ld_x % TW_PACK == 0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "sizes", "mask"), PITCHES)
def test_rows_of_whole_packs_at_odd_distances(name: str, which: str, sizes: Sizes, mask: str) -> None:
    family = load_family(name)
    rung = family.rung(which)
    what = operation(family, "float16", sizes)
    done = run_emulated(built(family, rung, "float16"), what)
    assert done.passed, done.message
    text = rung.file.read_text("utf-8")
    assert mask in text
    assert not run_emulated(built(family, rung, "float16", text.replace(mask, "true")), what).passed


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm"])
def test_a_row_of_zeros_is_divided_by_epsilon(name: str) -> None:
    """Beside a row of anything else, epsilon is within the tolerance."""
    family = load_family(name)
    for rung in family.rungs:
        sizes = next(family.sizes[each] for each in ("small", "short") if not rung.misfit(family.sizes[each]))
        dtype = rung.dtypes[0]
        what = operation(family, dtype, sizes)
        inputs = {n: np.zeros_like(a) if n in ("x", "residual") else a for n, a in what.inputs.items()}
        what = replace(what, inputs=inputs, expected=reference_of(family).compute(what.launch, inputs))
        assert np.isfinite(what.expected["y"]).all()
        done = run_emulated(built(family, rung, dtype), what)
        assert done.passed, f"{rung.name}: {done.message}"
    text = rung.file.read_text("utf-8")
    careless = text.replace("+ epsilon)", ")")
    assert careless != text
    assert not run_emulated(built(family, rung, dtype, careless), what).passed
