"""Who holds which element: register layouts of matrix fragments.

Every ``mma.sync`` layout of PTX ISA ("Matrix Fragments for mma.m…") is one rule. A register holds ``p`` neighbours
along k: of an 8 × 4p block, lane 4g + t holds row g and columns tp … tp + p - 1; the registers run through the blocks,
rows first. Accumulators hold, of an 8 × 8 block, row g and columns 2t, 2t + 1. So a layout says which register holds
which block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.matrix.elements import element_bits
from tilewright.errors import TilewrightError

Which = Literal["a", "b", "c", "d"]
Blocks = tuple[tuple[int, ...], ...]

# k that PTX ISA allows, by (m and n, element).
_DENSE_K = {
    ("m16n8", "f16"): (8, 16), ("m16n8", "bf16"): (8, 16), ("m16n8", "tf32"): (4, 8), ("m16n8", "f64"): (4, 8, 16),
    ("m16n8", "s8"): (16, 32), ("m16n8", "u8"): (16, 32), ("m16n8", "s4"): (32, 64), ("m16n8", "u4"): (32, 64),
    ("m16n8", "e4m3"): (16, 32), ("m16n8", "e5m2"): (16, 32), ("m16n8", "e3m2"): (32,), ("m16n8", "e2m3"): (32,),
    ("m16n8", "e2m1_in_byte"): (32,), ("m16n8", "e2m1"): (64,), ("m16n8", "b1"): (128, 256),
    ("m8n8", "f64"): (4,), ("m8n8", "s8"): (16,), ("m8n8", "u8"): (16,), ("m8n8", "s4"): (32,), ("m8n8", "u4"): (32,),
    ("m8n8", "b1"): (128,),
}  # fmt: skip
_SPARSE_K = {
    "f16": (16, 32), "bf16": (16, 32), "tf32": (8, 16), "s8": (32, 64), "u8": (32, 64),
    "s4": (64, 128), "u4": (64, 128), "e2m1": (128,),
    "e4m3": (64,), "e5m2": (64,), "e3m2": (64,), "e2m3": (64,), "e2m1_in_byte": (64,),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Fragment:
    """Where each lane's elements lie in the matrix.

    Attributes:
        rows, cols: int64[32, e]; element i of a lane is bits ``i * element_bits`` and up of its registers, in order.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    element_bits: int


@dataclass(frozen=True)
class Multiplicand:
    """Registers of A or B as blocks of 8 × 4p elements: 8 rows of A (columns of B), 4p along k.

    Attributes:
        blocks: ``blocks[outer][k]`` is the register that holds the block.
        registers: how many there are; more than the blocks where the fragment repeats itself (wmma, f16).
    """

    element: str
    blocks: Blocks
    registers: int


@dataclass(frozen=True)
class Accumulator:
    """Registers of C and D as blocks of 8 × 8: ``blocks[row][column]`` is the number of the pair of neighbours.

    A pair is two registers, or one that packs two halves (f16).
    """

    element: str
    blocks: Blocks

    @property
    def registers(self) -> int:
        return len(self.blocks) * len(self.blocks[0]) * (1 if self.element == "f16" else 2)


@cache
def parse_shape(shape: str) -> tuple[int, int, int]:
    """``m16n8k16`` as (16, 8, 16). Raises TilewrightError where it is not of that form."""
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    if found is None:
        raise TilewrightError("emulator/unknown_matrix", f"{shape!r} is no matrix shape.")
    m, n, k = (int(part) for part in found.groups())
    return m, n, k


def rows_first(outer: int, inner: int) -> Blocks:
    """Registers 0, 1, … run down the outer blocks, then on to the next inner block."""
    return tuple(tuple(j * outer + i for j in range(inner)) for i in range(outer))


@cache
def mma_multiplicand(shape: str, element: str, which: Which) -> Multiplicand:
    """Layout of A or B of ``mma.sync``. Raises TilewrightError for a shape that the element does not have."""
    m, n, k = parse_shape(shape)
    if k not in _DENSE_K.get((f"m{m}n{n}", element), ()):
        hint = "The legacy f16 shape of sm_70 is not emulated." if (shape, element) == ("m8n8k4", "f16") else ""
        raise TilewrightError("emulator/unknown_matrix", f"mma {shape} of {element} is not emulated.", hint=hint)
    return _multiplicand(element, m if which == "a" else n, k)


@cache
def sparse_multiplicand(shape: str, element: str, which: Which) -> Multiplicand:
    """Layout of A, which holds half of k, or B of ``mma.sp``. Raises TilewrightError as ``mma_multiplicand`` does."""
    m, n, k = parse_shape(shape)
    if (m, n) != (16, 8) or k not in _SPARSE_K.get(element, ()):
        raise TilewrightError("emulator/unknown_matrix", f"mma.sp {shape} of {element} is not emulated.")
    return _multiplicand(element, m, k // 2) if which == "a" else _multiplicand(element, n, k)


def _multiplicand(element: str, outer: int, k: int) -> Multiplicand:
    k_blocks = k // 4 if element == "f64" else k * element_bits(element) // 128
    return Multiplicand(element, rows_first(outer // 8, k_blocks), outer // 8 * k_blocks)


@cache
def mma_accumulator(shape: str, element: str) -> Accumulator:
    """Layout of C and D of ``mma.sync``."""
    m, n, _ = parse_shape(shape)
    return Accumulator(element, rows_first(m // 8, n // 8))


@cache
def fragment(shape: str, element: str, which: Which) -> Fragment:
    """Layout of an operand of ``mma.sync.aligned.<shape>``, as tables.

    Args:
        element: of the operand; of C and D: f32, f16, s32, f64. ``e2m1_in_byte`` is e2m1 of kind::f8f6f4.
        which: a, b, c or d.
    """
    if which in ("a", "b"):
        return multiplicand_table(mma_multiplicand(shape, element, which), which)
    return accumulator_table(mma_accumulator(shape, element))


def multiplicand_table(layout: Multiplicand, which: Which) -> Fragment:
    """Tables of a layout of A or B."""
    bits = element_bits(layout.element)
    per_register = max(1, 32 // bits)
    places = {register: (i, j) for i, row in enumerate(layout.blocks) for j, register in enumerate(row)}
    order = [places[register % len(places)] for register in range(layout.registers)]
    lane = np.arange(32)[:, None, None]
    outer_block, k_block = (np.array(part)[None, :, None] for part in zip(*order, strict=True))
    element = np.arange(per_register)[None, None, :]
    outer = (lane >> 2) + 8 * outer_block + 0 * element
    along_k = (lane & 3) * per_register + element + 4 * per_register * k_block
    rows, cols = (outer, along_k) if which == "a" else (along_k, outer)
    return _frozen(rows, cols, bits)


def accumulator_table(layout: Accumulator, swapped: bool = False) -> Fragment:
    """Tables of a layout of C and D; ``swapped`` exchanges rows and columns."""
    places = {pair: (i, j) for i, row in enumerate(layout.blocks) for j, pair in enumerate(row)}
    lane = np.arange(32)[:, None, None]
    row_block, col_block = (
        np.array(part)[None, :, None] for part in zip(*(places[p] for p in sorted(places)), strict=True)
    )
    pair = np.arange(2)[None, None, :]
    rows, cols = (lane >> 2) + 8 * row_block + 0 * pair, (lane & 3) * 2 + pair + 8 * col_block
    return _frozen(*((cols, rows) if swapped else (rows, cols)), element_bits(layout.element))


def _frozen(rows: NDArray[Any], cols: NDArray[Any], bits: int) -> Fragment:
    tables = [np.ascontiguousarray(table.reshape(32, -1), dtype=np.int64) for table in (rows, cols)]
    for table in tables:
        table.flags.writeable = False
    return Fragment(tables[0], tables[1], bits)
