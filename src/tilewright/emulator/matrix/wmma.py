"""``wmma``: fragments as the hardware of sm_80 and up keeps them, and their product.

PTX ISA leaves these layouts open. Code that reads ``x[i]`` expects the hardware's: a 16 × 16 accumulator is two m16n8
halves side by side, and the multiplicands are those of ``mma.sync``. m8n32k16 is computed transposed, since only n
fills 16 rows. An H200 loads and stores all of this so. Row- and column-major matrices load into the same registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewright.emulator.matrix.elements import element_bits
from tilewright.emulator.matrix.fragments import (
    Accumulator,
    Blocks,
    Fragment,
    Multiplicand,
    Which,
    accumulator_table,
    multiplicand_table,
    parse_shape,
    rows_first,
)
from tilewright.emulator.matrix.mma import PLAIN, MmaOptions, Types, add_products, check_counts
from tilewright.emulator.matrix.tiles import Array, OperandMemo, Registers, matrix_a, matrix_b, operand, rows_of
from tilewright.errors import TilewrightError

_SHAPES = {
    "f16": ("m16n16k16", "m32n8k16", "m8n32k16"), "bf16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "s8": ("m16n16k16", "m32n8k16", "m8n32k16"), "u8": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "tf32": ("m16n16k8",), "f64": ("m8n8k4",), "s4": ("m8n8k32",), "u4": ("m8n8k32",), "b1": ("m8n8k128",),
}  # fmt: skip
_F16_REGISTERS = 8  # of A and of B, whatever the shape: small fragments repeat themselves


@dataclass(frozen=True)
class Span:
    """The memory of a wmma matrix: ``count`` rows of ``row_bytes``, the leading dimension apart.

    Rows are the matrix's rows where it is row-major, else its columns.
    """

    count: int
    row_bytes: int


@cache
def wmma_multiplicand(shape: str, element: str, which: Which) -> Multiplicand:
    """Layout of A or B. Raises TilewrightError for a shape that wmma does not pair with the element."""
    if shape not in _SHAPES.get(element, ()):
        raise TilewrightError("emulator/unknown_matrix", f"wmma {shape} of {element} is not emulated.")
    m, n, k = parse_shape(shape)
    outer = (m if which == "a" else n) // 8
    inner = k * element_bits(element) // 128 if element != "f64" else k // 4
    # B is the second operand of two products side by side; swapped, it is the first one.
    blocks = _in_turn(outer, inner) if which == "b" and not is_swapped(shape) else _halves(outer, inner)
    return Multiplicand(element, blocks, _F16_REGISTERS if element == "f16" else outer * inner)


def _halves(outer: int, inner: int) -> Blocks:
    """Blocks of sixteen rows, one after the other, each as ``mma.sync`` orders it."""
    half = min(outer, 2)
    return tuple(tuple((i // half) * half * inner + j * half + i % half for j in range(inner)) for i in range(outer))


def _in_turn(outer: int, inner: int) -> Blocks:
    """Blocks of eight columns, one after the other."""
    return tuple(tuple(i * inner + j for j in range(inner)) for i in range(outer))


@cache
def wmma_accumulator(shape: str, element: str) -> Accumulator:
    """Layout of C and D; for m8n32k16 of their transposes."""
    m, n, _ = parse_shape(shape)
    if is_swapped(shape):
        m, n = n, m
    return Accumulator(element, rows_first(m // 8, n // 8))


def is_swapped(shape: str) -> bool:
    """Whether n takes the place of m."""
    return shape.startswith("m8n32")


@cache
def wmma_fragment(shape: str, element: str, which: Which) -> Fragment:
    """Where the elements of a lane lie: ``x[i]`` of ``nvcuda::wmma::fragment`` is (rows[lane, i], cols[lane, i])."""
    if which in ("a", "b"):
        return multiplicand_table(wmma_multiplicand(shape, element, which), which)
    return accumulator_table(wmma_accumulator(shape, element), is_swapped(shape))


@cache
def load_offsets(shape: str, element: str, which: Which, row_major: bool) -> tuple[Array, Array]:
    """(slow, fast), int64[32, e] each: element i of a lane is element ``slow * ld + fast`` of the memory."""
    table = wmma_fragment(shape, element, which)
    return (table.rows, table.cols) if row_major else (table.cols, table.rows)


@cache
def span(shape: str, element: str, which: Which, row_major: bool) -> Span:
    """What ``load_rows`` and ``store_rows`` exchange with memory."""
    m, n, k = parse_shape(shape)
    rows, cols = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    slow, fast = (rows, cols) if row_major else (cols, rows)
    return Span(slow, fast * element_bits(element) // 8)


def load_rows(rows: Array, shape: str, element: str, which: Which, row_major: bool) -> tuple[Array, ...]:
    """Registers of a matrix, for ``wmma.load``.

    Args:
        rows: uint8[W, count, row_bytes] of ``span``.

    Returns:
        registers [32 * W]: int32, or float32 (f32) or float64 (f64).
    """
    item = np.dtype(f"V{element_bits(element) // 8}") if element_bits(element) >= 8 else None
    if which in ("a", "b"):
        k_is_fast = row_major == (which == "a")
        layout = wmma_multiplicand(shape, element, which)
        if not k_is_fast:
            rows = _transposed(rows, item)
        return _cut(rows, layout.blocks, layout.registers, np.dtype(np.float64 if element == "f64" else np.int32))
    layout_d = wmma_accumulator(shape, element)
    if row_major == is_swapped(shape):
        rows = _transposed(rows, item)
    return _cut_pairs(rows, layout_d)


def store_rows(registers: Registers, shape: str, element: str, row_major: bool) -> Array:
    """uint8[W, count, row_bytes] of D's registers, for ``wmma.store.d``."""
    layout = wmma_accumulator(shape, element)
    pairs = registers
    if element != "f16":
        pairs = [np.stack(registers[i : i + 2], axis=-1).reshape(-1) for i in range(0, len(registers), 2)]
        pairs = [pair.view(f"V{2 * pair.itemsize}") for pair in pairs]
    rows = rows_of(pairs, layout.blocks)
    if row_major == is_swapped(shape):
        rows = _transposed(rows, np.dtype(f"V{element_bits(element) // 8}"))
    return rows


def _transposed(rows: Array, item: np.dtype[np.void] | None) -> Array:
    if item is None:
        raise TilewrightError(
            "emulator/unknown_matrix", "wmma operands of fewer than 8 bits are row-major A, column-major B."
        )
    items = np.ascontiguousarray(rows).view(item)
    return np.ascontiguousarray(items.transpose(0, 2, 1)).view(np.uint8)


def _cut(rows: Array, blocks: Blocks, registers: int, dtype: np.dtype[np.generic]) -> tuple[Array, ...]:
    """Registers of [W, 8 * outer, bytes]: the inverse of ``rows_of``."""
    warps, lanes_bytes = len(rows), 4 * dtype.itemsize
    items = np.ascontiguousarray(rows).view(f"V{lanes_bytes}").reshape(warps, len(blocks), 8, len(blocks[0]))
    found: dict[int, Array] = {}
    for i, row in enumerate(blocks):
        for j, register in enumerate(row):
            found[register] = np.ascontiguousarray(items[:, i, :, j]).reshape(-1).view(dtype)
    return tuple(found[register % len(found)] for register in range(registers))


def _cut_pairs(rows: Array, layout: Accumulator) -> tuple[Array, ...]:
    """Accumulators of [W, m, bytes]."""
    if layout.element == "f16":
        return _cut(rows, layout.blocks, layout.registers, np.dtype(np.int32))
    dtype = np.dtype({"f32": np.float32, "s32": np.int32, "f64": np.float64}[layout.element])
    pairs = _cut(rows, layout.blocks, layout.registers // 2, np.dtype(f"V{2 * dtype.itemsize}"))
    halves = [pair.view(dtype).reshape(-1, 2) for pair in pairs]
    return tuple(np.ascontiguousarray(half[:, i]) for half in halves for i in range(2))


def wmma_mma(
    shape: str,
    types: Types,
    a_regs: Registers,
    b_regs: Registers,
    c_regs: Registers,
    options: MmaOptions = PLAIN,
    memo: OperandMemo | None = None,
) -> tuple[Array, ...]:
    """D of ``wmma.mma.sync.aligned``: as ``mma``, with the fragments of this module.

    ``types`` are of D, A, B, C. Where the instruction names two, ``f32.f32``, they are D and C, and A and B are f16.
    """
    d_type, a_type, b_type, c_type = types
    a_layout, b_layout = wmma_multiplicand(shape, a_type, "a"), wmma_multiplicand(shape, b_type, "b")
    check_counts(shape, (len(a_regs), len(b_regs)), (a_layout.registers, b_layout.registers))
    if is_swapped(shape):
        a_regs, a_layout, b_regs, b_layout = b_regs, b_layout, a_regs, a_layout
    a, b = operand(memo, matrix_a, a_regs, a_layout), operand(memo, matrix_b, b_regs, b_layout)
    return add_products(a, b, wmma_accumulator(shape, d_type), c_regs, c_type, options)


def to_registers(values: Array) -> tuple[Array, ...]:
    """Registers of the elements of each lane.

    Args:
        values: [W, 32, e] of 8-, 16- or 32-bit elements (or float64).

    Returns:
        registers [32 * W]: int32; float32 and float64 stay what they are.
    """
    lanes = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
    words = lanes if lanes.dtype in (np.float32, np.float64) else lanes.view(np.int32)
    return tuple(np.ascontiguousarray(words[:, i]) for i in range(words.shape[1]))


def from_registers(registers: Registers, dtype: str) -> Array:
    """[W, 32, e] elements of ``dtype`` that lie in registers: the inverse of ``to_registers``."""
    words = np.stack([np.ascontiguousarray(register) for register in registers], axis=-1)
    return words.view(dtype).reshape(-1, 32, len(registers) * words.itemsize // np.dtype(dtype).itemsize)
