"""``mma.sync``: D = A B + C of a warp, as PTX ISA, "Warp-level Matrix Instructions: mma"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.emulator.matrix.fragments import Accumulator, mma_accumulator, mma_multiplicand
from tilewright.emulator.matrix.tiles import (
    Array,
    OperandMemo,
    Registers,
    accumulate,
    matrix_a,
    matrix_b,
    operand,
    product,
)
from tilewright.errors import TilewrightError

Types = tuple[str, str, str, str]


@dataclass(frozen=True)
class MmaOptions:
    """Modifiers that change the arithmetic.

    Attributes:
        satfinite: clamp s32 sums instead of wrapping.
        kind: ``f8f6f4``, ``mxf8f6f4``, ``mxf4``, ``mxf4nvf4`` without ``kind::``, or empty.
        bit_op: of ``.b1`` operands, before the count of ones.
    """

    satfinite: bool = False
    kind: str = ""
    bit_op: Literal["", "xor", "and"] = ""


PLAIN = MmaOptions()


def mma(
    shape: str,
    types: Types,
    a_regs: Registers,
    b_regs: Registers,
    c_regs: Registers,
    options: MmaOptions = PLAIN,
    memo: OperandMemo | None = None,
) -> tuple[Array, ...]:
    """D of ``mma.sync.aligned.<shape>.row.col``.

    Args:
        shape: ``m16n8k16``.
        types: of D, A, B, C, as in the instruction: ``("f32", "f16", "f16", "f32")``.
        a_regs, b_regs, c_regs: each register of W whole warps, [32 * W], lane-major: int32 bits of b32 registers (C and
            D of f16 pack two halves in one), float32, int32 or float64 of single accumulators and f64 operands.
        memo: keeps A and B for the next instruction that takes the same registers.

    Returns:
        D's registers, of C's form. Integers are exact and wrap. Floats: products and sum in float64, rounded once.

    Raises:
        TilewrightError: the ISA has no such instruction, or it is not emulated.
    """
    d_type, a_type, b_type, c_type = types
    a_layout = mma_multiplicand(shape, stored_element(a_type, options.kind), "a")
    b_layout = mma_multiplicand(shape, stored_element(b_type, options.kind), "b")
    check_counts(shape, (len(a_regs), len(b_regs)), (a_layout.registers, b_layout.registers))
    a, b = operand(memo, matrix_a, a_regs, a_layout), operand(memo, matrix_b, b_regs, b_layout)
    return add_products(a, b, mma_accumulator(shape, d_type), c_regs, c_type, options)


def add_products(
    a: Array, b: Array, layout: Accumulator, c_regs: Registers, c_type: str, options: MmaOptions
) -> tuple[Array, ...]:
    """D's registers from the numbers of A, [W, m, k], and of B, [W, k, n] in parity order."""
    sums = product(a, b)
    if options.bit_op == "xor":
        # ones of (a xor b) = ones of a + ones of b - 2 * ones of (a and b)
        ones_a, ones_b = a.sum(axis=2, keepdims=True), b.sum(axis=1, keepdims=True)
        sums = (ones_a + ones_b).astype(np.int32) - 2 * sums
    return accumulate(sums, layout, c_regs, c_type, options.satfinite)


def stored_element(element: str, kind: str) -> str:
    """How an element lies in registers: the kinds that mix widths give each element a byte."""
    return "e2m1_in_byte" if element == "e2m1" and kind in ("f8f6f4", "mxf8f6f4") else element


def check_counts(shape: str, found: tuple[int, int], needed: tuple[int, int]) -> None:
    """Raises TilewrightError where operands have another number of registers than their layout."""
    if found != needed:
        raise TilewrightError(
            "emulator/matrix_registers",
            f"{shape} takes {needed[0]} and {needed[1]} registers of A and B, not {found[0]} and {found[1]}.",
        )
