"""``wgmma.mma_async``: D = A B + D of a warpgroup. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate".

The four warps of a group hold sixteen rows each: of a warp, A's registers are those of ``mma.m16n8k…`` and D is
n / 8 accumulators of m16n8, side by side. The engine reads matrices out of shared memory; this room does arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from tilewright.emulator.matrix.elements import element_bits
from tilewright.emulator.matrix.fragments import (
    Accumulator,
    Fragment,
    Multiplicand,
    accumulator_table,
    multiplicand_table,
    rows_first,
)
from tilewright.emulator.matrix.tiles import Array, Registers, accumulate, matrix_a
from tilewright.errors import TilewrightError

_K_BYTES = 32  # of every wgmma
_ELEMENTS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")


@cache
def wgmma_accumulator(n: int, element: str) -> Accumulator:
    """Layout of D within one warp: 16 × n. Raises TilewrightError for an n that the ISA does not have."""
    if n % 8 or not 8 <= n <= 256:
        raise TilewrightError("emulator/unknown_matrix", f"wgmma has no n of {n}.")
    return Accumulator(element, rows_first(2, n // 8))


@cache
def wgmma_multiplicand(element: str) -> Multiplicand:
    """Layout of A's four registers within one warp: 16 × k."""
    if element not in _ELEMENTS:
        raise TilewrightError("emulator/unknown_matrix", f"wgmma of {element} is not emulated.")
    return Multiplicand(element, rows_first(2, 2), 4)


def wgmma_k(element: str) -> int:
    """k of the instruction: 32 bytes."""
    return _K_BYTES * 8 // element_bits(element)


@cache
def wgmma_fragment(n: int, element: str, which: str) -> Fragment:
    """Tables of ``d`` or of ``a`` in registers, of warp 0; warp w of the group adds 16 w to the rows."""
    if which == "a":
        return multiplicand_table(wgmma_multiplicand(element), "a")
    return accumulator_table(wgmma_accumulator(n, element))


def wgmma(
    n: int,
    types: tuple[str, str, str],
    d_regs: Registers,
    a: Array | Sequence[Array],
    b: Array,
    scale_d: bool | Array = True,
    negate_a: bool = False,
    negate_b: bool = False,
    saturate: bool = False,
) -> tuple[Array, ...]:
    """D's registers of ``wgmma.mma_async.m64n<n>``, of G warpgroups.

    Args:
        types: of D, A, B.
        d_regs: each [128 * G]: float32, int32 (s32, or two halves of f16); not read where ``scale_d`` is False.
        a: numbers float[G, 64, k] as ``elements.decode`` gives them, or four int32[128 * G] registers.
        b: numbers float[G, n, k], so B transposed.
        scale_d: False: D = A B. An array holds one value per thread.
        negate_a, negate_b: imm-scale-a or -b of -1.
        saturate: ``.satfinite`` of s32.

    Returns:
        as many registers as D has. Floats: products and sum in float64, rounded once; integers exact.
    """
    d_type, a_type, _ = types
    layout = wgmma_accumulator(n, d_type)
    numbers = a if isinstance(a, np.ndarray) else matrix_a(a, wgmma_multiplicand(a_type))
    groups = len(b)
    numbers = numbers.reshape(groups, 64, -1)
    columns = b.reshape(groups, n // 8, 4, 2, -1).transpose(0, 1, 3, 2, 4).reshape(groups, n, -1)
    if numbers.dtype != columns.dtype:
        numbers, columns = numbers.astype(np.float64), columns.astype(np.float64)
    sums = np.matmul(numbers, columns.transpose(0, 2, 1)).reshape(4 * groups, 16, n)
    if negate_a != negate_b:
        np.negative(sums, out=sums)
    if d_type == "s32":
        sums = sums.astype(np.int32)
    return accumulate(sums, layout, _kept(d_regs, scale_d, layout, 128 * groups), d_type, saturate)


def _kept(d_regs: Registers, scale_d: bool | Array, layout: Accumulator, threads: int) -> Registers:
    """D where it counts, zero where it does not; so a NaN in an unused accumulator does no harm."""
    if np.all(scale_d):
        return d_regs
    if not np.any(scale_d):
        zero = np.zeros(threads, np.float32 if layout.element == "f32" else np.int32)
        return [zero] * layout.registers
    return [np.where(scale_d, register, np.zeros_like(register)) for register in d_regs]
