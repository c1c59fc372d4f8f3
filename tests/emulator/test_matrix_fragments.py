"""Fragment tables: as the ISA's text, and each element held once."""

import numpy as np
import pytest
from matrix_samples import ISA, isa_tables

from tilewright.emulator.matrix.fragments import fragment
from tilewright.emulator.matrix.wmma import load_offsets, wmma_fragment
from tilewright.errors import TilewrightError

OPERANDS = [(shape, element, which) for shape, elements, which in ISA for element in elements.split()]
WMMA = [
    *((shape, e) for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for e in ("f16", "bf16", "s8", "u8")),
    ("m16n16k8", "tf32"), ("m8n8k4", "f64"), ("m8n8k32", "s4"), ("m8n8k128", "b1"),
]  # fmt: skip


def sizes(shape, which):
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    m, n, k = int(m), int(n), int(k)
    return {"a": (m, k), "b": (k, n)}.get(which, (m, n))


def times_held(rows, cols, size):
    held = np.zeros(size, int)
    np.add.at(held, (rows, cols), 1)
    return held


@pytest.mark.parametrize(("shape", "element", "which"), OPERANDS)
def test_multiplicands_are_as_the_isa_writes_them(shape, element, which):
    table, (rows, cols) = fragment(shape, element, which), isa_tables(shape, element, which)
    np.testing.assert_array_equal(table.rows, rows)
    np.testing.assert_array_equal(table.cols, cols)
    assert (times_held(table.rows, table.cols, sizes(shape, which)) == 1).all()


@pytest.mark.parametrize("shape", ["m8n8k16", "m16n8k8", "m16n8k16", "m16n8k32"])
@pytest.mark.parametrize("element", ["f32", "f16", "s32"])
def test_accumulators_are_as_the_isa_writes_them(shape, element):
    table, (rows, cols) = fragment(shape, element, "d"), isa_tables(shape, element, "d")
    np.testing.assert_array_equal(table.rows, rows)
    np.testing.assert_array_equal(table.cols, cols)
    assert (times_held(table.rows, table.cols, sizes(shape, "d")) == 1).all()


def test_a_table_with_swapped_row_halves_is_told_apart():
    table, (rows, _) = fragment("m16n8k16", "f16", "a"), isa_tables("m16n8k16", "f16", "a")
    swapped = (table.rows + 8) % 16
    assert (times_held(swapped, table.cols, (16, 16)) == 1).all()  # a permutation still: only the text tells
    assert not np.array_equal(swapped, rows)


@pytest.mark.parametrize(("shape", "element"), WMMA)
def test_wmma_fragments_hold_each_element_equally_often(shape, element):
    accumulator = {"tf32": "f32", "f64": "f64", "s8": "s32", "u8": "s32", "s4": "s32", "b1": "s32"}.get(element, "f32")
    for which in "abd":
        table = wmma_fragment(shape, accumulator if which == "d" else element, which)
        held = times_held(table.rows, table.cols, sizes(shape, which))
        repeats = 32 * 16 // held.size if element == "f16" and which != "d" else 1  # PTX ISA: always eight registers
        assert (held == repeats).all()


def test_wmma_accumulators_are_two_mma_halves():
    rows, cols = isa_tables("m16n8k16", "f32", "d")
    table = wmma_fragment("m16n16k16", "f32", "d")
    np.testing.assert_array_equal(table.rows, np.hstack([rows, rows]))
    np.testing.assert_array_equal(table.cols, np.hstack([cols, cols + 8]))


def test_offsets_of_a_column_major_matrix_swap_the_coordinates():
    slow, fast = load_offsets("m16n16k16", "s8", "b", False)
    table = wmma_fragment("m16n16k16", "s8", "b")
    np.testing.assert_array_equal(slow, table.cols)
    np.testing.assert_array_equal(fast, table.rows)


@pytest.mark.parametrize(
    ("shape", "element"), [("m8n8k4", "f16"), ("m16n8k12", "f16"), ("16x8x16", "f16"), ("m16n8k16", "f31")]
)
def test_unknown_matrices_are_refused(shape, element):
    with pytest.raises(TilewrightError):
        fragment(shape, element, "a")
