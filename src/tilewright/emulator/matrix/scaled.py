"""``mma.sync….block_scale``: blocks of A's rows and B's columns carry scales. PTX ISA, "Block Scaling for mma.sync"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.emulator.matrix.elements import byte_table
from tilewright.emulator.matrix.fragments import mma_accumulator, mma_multiplicand
from tilewright.emulator.matrix.mma import MmaOptions, Types, add_products, check_counts, stored_element
from tilewright.emulator.matrix.tiles import Array, Registers, columns_b, k_major, matrix_a, parity_order
from tilewright.errors import TilewrightError

# kind: (scale elements, scales along k); the first number is the default.
_KINDS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "mxf8f6f4": (("ue8m0",), (1,)),
    "mxf4": (("ue8m0",), (2,)),
    "mxf4nvf4": (("ue8m0", "ue4m3"), (4, 2)),
}


@dataclass(frozen=True, eq=False)
class ScaleOperand:
    """``scale-data, {byte-id, thread-id}``.

    Attributes:
        data: int32[32 * W].
        byte_id: first byte that counts: 0–3 for one scale, 0 or 2 for two, 0 for four.
        thread_id: which lanes count. Of A, 0 or 1: lanes 4g + 2 * thread_id and the next hold rows g and g + 8.
            Of B, 0–3: lane 4g + thread_id holds column g.
    """

    data: Array
    byte_id: int = 0
    thread_id: int = 0


def mma_block_scaled(
    shape: str,
    types: Types,
    a_regs: Registers,
    b_regs: Registers,
    c_regs: Registers,
    scales: tuple[ScaleOperand, ScaleOperand],
    kind: str,
    scale_element: str = "ue8m0",
    scale_vec: int = 0,
) -> tuple[Array, ...]:
    """D = (A * scale A) (B * scale B) + C.

    Args:
        shape, types, a_regs, b_regs, c_regs: as ``mma``.
        scales: of A and of B.
        kind: mxf8f6f4, mxf4, mxf4nvf4.
        scale_element: ue8m0 or ue4m3.
        scale_vec: 1, 2 or 4 scales along k; 0: the kind's own.

    Raises:
        TilewrightError: no such instruction, or selectors outside their range.
    """
    d_type, a_type, b_type, c_type = types
    count = _scale_count(kind, scale_element, scale_vec)
    a_layout = mma_multiplicand(shape, stored_element(a_type, kind), "a")
    b_layout = mma_multiplicand(shape, stored_element(b_type, kind), "b")
    check_counts(shape, (len(a_regs), len(b_regs)), (a_layout.registers, b_layout.registers))
    row_scales, col_scales = scale_bytes(scales[0], "a", count), parity_order(scale_bytes(scales[1], "b", count))
    table = byte_table(scale_element)
    a = _scaled(matrix_a(a_regs, a_layout), table[row_scales])
    b = k_major(_scaled(columns_b(b_regs, b_layout), table[col_scales]))
    return add_products(a, b, mma_accumulator(shape, d_type), c_regs, c_type, MmaOptions())


def scale_bytes(operand: ScaleOperand, which: Literal["a", "b"], count: int) -> Array:
    """uint8[W, rows or columns, count] that the selectors name."""
    byte, thread = operand.byte_id, operand.thread_id
    if byte not in range(0, 4, count) or thread not in range(2 if which == "a" else 4):
        raise TilewrightError(
            "emulator/scale_selector", f"{{byte-id-{which}, thread-id-{which}}} cannot be {{{byte}, {thread}}} here."
        )
    lanes = np.ascontiguousarray(operand.data).view(np.uint8).reshape(-1, 8, 4, 4)[..., byte : byte + count]
    if which == "b":
        return np.ascontiguousarray(lanes[:, :, thread])
    halves = lanes[:, :, 2 * thread : 2 * thread + 2].transpose(0, 2, 1, 3)
    return np.ascontiguousarray(halves).reshape(len(lanes), 16, count)


def _scale_count(kind: str, scale_element: str, scale_vec: int) -> int:
    elements, counts = _KINDS.get(kind, ((), ()))
    count = scale_vec or (counts[0] if counts else 0)
    if scale_element not in elements or count not in counts or (scale_element, count) == ("ue4m3", 2):
        raise TilewrightError(
            "emulator/unknown_matrix", f"kind::{kind} with {scale_element} and scale_vec::{count}X is no instruction."
        )
    return count


def _scaled(matrix: Array, scales: Array) -> Array:
    warps, rows, k = matrix.shape
    blocks = matrix.reshape(warps, rows, scales.shape[2], -1) * scales[..., None]
    return blocks.reshape(warps, rows, k)
