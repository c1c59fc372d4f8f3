"""Between registers of many warps and stacks of matrices. Only block moves: sixteen bytes of four lanes at a time.

A product may run over its rows, columns and k in any order, so the matrices keep the order that is cheapest to build:
columns of B stand as (block, parity, pair), which makes the four accumulators that neighbouring lanes hold contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.matrix.elements import INTEGERS, decode
from tilewright.emulator.matrix.fragments import Accumulator, Blocks, Multiplicand

Array = NDArray[Any]
Registers = Sequence[Array]

_INT32_MAX = 2**31 - 1
_PIECE_BYTES = 2**20  # what is moved and then added at once stays in the cache


def quads(register: Array) -> Array:
    """A register of W warps as [W, 8] items that each hold the four lanes of a group."""
    whole = np.ascontiguousarray(register)
    return whole.view(f"V{4 * whole.itemsize}").reshape(-1, 8)


def rows_of(registers: Registers, blocks: Blocks) -> Array:
    """[W, 8 * outer, bytes] of a multiplicand: a row of A, or a column of B, is contiguous along k."""
    parts = [[quads(registers[register]) for register in row] for row in blocks]
    first = parts[0][0]
    out = np.empty((len(first), len(blocks), 8, len(blocks[0])), first.dtype)
    for i, row in enumerate(parts):
        for j, part in enumerate(row):
            out[:, i, :, j] = part
    return out.view(np.uint8).reshape(len(first), 8 * len(blocks), -1)


def matrix_a(registers: Registers, layout: Multiplicand) -> Array:
    """Numbers of A: [W, m, k]."""
    return decode(rows_of(registers, layout.blocks), layout.element)


def columns_b(registers: Registers, layout: Multiplicand) -> Array:
    """Numbers of B, transposed, columns in the order of the module's docstring: [W, n, k]."""
    return decode(parity_order(rows_of(registers, layout.blocks)), layout.element)


def matrix_b(registers: Registers, layout: Multiplicand) -> Array:
    """Numbers of B: [W, k, n], columns in the order of the module's docstring."""
    return k_major(columns_b(registers, layout))


def k_major(columns: Array) -> Array:
    """[W, k, n] of [W, n, k]. Small products of row-major matrices take half the time, which is more than the copy."""
    return np.ascontiguousarray(columns.transpose(0, 2, 1))


class OperandMemo:
    """Multiplicands that were built lately: a tile of A meets several of B.

    For an engine that never writes into the array of a register (a new value is a new array): registers are told apart
    by identity. It holds on to them, so an identity is not used twice.

    Args:
        entries: matrices kept, the last used.
    """

    def __init__(self, entries: int = 16) -> None:
        self._entries = entries
        self._held: dict[tuple[object, ...], tuple[Registers, Array]] = {}

    def get(
        self, build: Callable[[Registers, Multiplicand], Array], registers: Registers, layout: Multiplicand
    ) -> Array:
        """``build(registers, layout)``, built or remembered; not to be written to."""
        key = (build, layout, *map(id, registers))
        entry = self._held.pop(key, None) or (tuple(registers), build(registers, layout))
        self._held[key] = entry
        if len(self._held) > self._entries:
            del self._held[next(iter(self._held))]
        return entry[1]


def operand(
    memo: OperandMemo | None,
    build: Callable[[Registers, Multiplicand], Array],
    registers: Registers,
    layout: Multiplicand,
) -> Array:
    """``build(registers, layout)``, through the memo where there is one."""
    return build(registers, layout) if memo is None else memo.get(build, registers, layout)


def parity_order(columns: Array) -> Array:
    """Rows (block, pair, parity) of [W, n, bytes] put into the order (block, parity, pair)."""
    warps, count, size = columns.shape
    items = columns.view(f"V{size}").reshape(warps, count // 8, 4, 2)
    return np.ascontiguousarray(items.transpose(0, 1, 3, 2)).view(np.uint8).reshape(warps, count, size)


def product(a: Array, b: Array) -> Array:
    """[W, m, n] of [W, m, k] and [W, k, n]. Integers (float32) come out exact as int32, the rest as float64.

    Each matrix is multiplied alone, so the order of the sum does not depend on how many there are.
    """
    if a.dtype != b.dtype:
        a, b = a.astype(np.float64), b.astype(np.float64)
    out: Array = np.matmul(a, b)
    return out.astype(np.int32) if out.dtype == np.float32 else out


def spread(matrix: Array, blocks: Blocks) -> Iterator[tuple[int, Array]]:
    """Accumulators of [W, m, n] with columns in parity order: each pair's number and its two registers, [2, 32 * W]."""
    warps = len(matrix)
    rows, cols = len(blocks), len(blocks[0])
    items = matrix.view(f"V{4 * matrix.itemsize}").reshape(warps, rows, 8, cols, 2)
    step = max(1, _PIECE_BYTES * cols // max(1, matrix.nbytes))
    for first in range(0, cols, step):
        piece = items[:, :, :, first : first + step]
        out = np.empty((rows, piece.shape[3], 2, warps, 8), items.dtype)
        out[...] = piece.transpose(1, 3, 4, 0, 2)
        pairs = out.view(matrix.dtype).reshape(rows, piece.shape[3], 2, -1)
        for i in range(rows):
            for j in range(piece.shape[3]):
                yield blocks[i][first + j], pairs[i, j]


def accumulate(
    matrix: Array, layout: Accumulator, c_regs: Registers, c_element: str, saturate: bool = False
) -> tuple[Array, ...]:
    """Registers of D = matrix + C, rounded once.

    Args:
        matrix: [W, m, n] with columns in parity order, int32 or float64; not needed afterwards.
        layout: of D; C lies in the same blocks.
        c_regs: of C; of ``c_element``.
        saturate: clamp integers to 32 bits instead of wrapping.
    """
    finished: dict[int, list[Array]] = {}
    for number, pair in spread(matrix, layout.blocks):
        finished[number] = _finish(pair, _addends(c_regs, number, c_element), layout.element, saturate)
    return tuple(register for number in range(len(finished)) for register in finished[number])


def _addends(c_regs: Registers, number: int, element: str) -> tuple[Array, Array]:
    """Both elements of a pair of C."""
    if element == "f16":
        halves = np.ascontiguousarray(c_regs[number]).view(np.float16).reshape(-1, 2)
        return halves[:, 0], halves[:, 1]
    dtype = {"f32": np.float32, "s32": np.int32, "f64": np.float64}[element]
    return c_regs[2 * number].view(dtype), c_regs[2 * number + 1].view(dtype)


def _finish(pair: Array, addends: tuple[Array, Array], element: str, saturate: bool) -> list[Array]:
    if element == "f16":
        halves = np.empty((pair.shape[1], 2), np.float16)
        for i in range(2):
            np.add(pair[i], addends[i], out=halves[:, i], dtype=np.float64, casting="same_kind")
        return [halves.view(np.int32).reshape(-1)]
    if element in INTEGERS and saturate:
        wide = [pair[i].astype(np.int64) + addends[i] for i in range(2)]
        return [np.clip(sums, -_INT32_MAX - 1, _INT32_MAX).astype(np.int32) for sums in wide]
    if element == "f32":  # the sum of a float64 and a float32 is a float64
        return [(pair[i] + addends[i]).astype(np.float32) for i in range(2)]
    return [np.add(pair[i], addends[i], out=pair[i]) for i in range(2)]
