"""``ldmatrix``, ``stmatrix``, ``movmatrix``: 8 × 8 matrices of 16-bit elements, spread over a warp.

PTX ISA, "Warp-level matrix load instruction: ldmatrix": lane 4g + t holds elements 2t and 2t + 1 of row g, or with
``.trans`` of column g. The engine fetches and writes the rows: row r of matrix j belongs to the address of lane 8j + r.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.matrix.tiles import Registers
from tilewright.errors import TilewrightError

Array = NDArray[Any]

_PACKED_BITS = {"b6x16_p32": 6, "b4x16_p64": 4}


def ldmatrix(rows: Array, num: int, transposed: bool, element: str = "b16") -> tuple[Array, ...]:
    """Registers of ``ldmatrix.m8n8.x<num>``.

    Args:
        rows: uint8[W, 8 * num, 16], one 16-byte row per address.
        num: 1, 2 or 4 matrices.
        transposed: ``.trans``.
        element: b16; or b6x16_p32 or b4x16_p64 of m8n16, whose rows are sixteen 6- or 4-bit elements and padding, and
            come out as bytes with the bits at the low end.

    Returns:
        ``num`` int32[32 * W].

    Raises:
        TilewrightError: another element (m16n16), or ``.trans`` of one that has none.
    """
    if element in _PACKED_BITS and not transposed:
        rows = _widened(rows, _PACKED_BITS[element])
    elif element != "b16":
        raise TilewrightError("emulator/unknown_matrix", f"This ldmatrix of {element} is not emulated.")
    warps = len(rows)
    halves = np.ascontiguousarray(rows).view(np.uint16).reshape(warps, num, 8, 8)
    if transposed:
        halves = halves.transpose(0, 1, 3, 2)
    return tuple(np.ascontiguousarray(halves[:, j]).reshape(-1).view(np.int32) for j in range(num))


def _widened(rows: Array, bits: int) -> Array:
    """A byte for each of the sixteen elements of each row."""
    used = np.unpackbits(np.ascontiguousarray(rows)[..., : 2 * bits], axis=-1, bitorder="little")
    elements = used.reshape(*rows.shape[:-1], 16, bits)
    return np.packbits(elements, axis=-1, bitorder="little").reshape(rows.shape)


def stmatrix(registers: Registers, num: int, transposed: bool) -> Array:
    """uint8[W, 8 * num, 16]: the rows that ``stmatrix.m8n8.x<num>.b16`` writes."""
    halves = np.stack([np.ascontiguousarray(r).view(np.uint16).reshape(-1, 8, 8) for r in registers[:num]], axis=1)
    if transposed:
        halves = np.ascontiguousarray(halves.transpose(0, 1, 3, 2))
    return halves.view(np.uint8).reshape(len(halves), 8 * num, 16)


def movmatrix(register: Array) -> Array:
    """Register of ``movmatrix.sync.aligned.m8n8.trans.b16``: the 8 × 8 matrix transposed. int32[32 * W]."""
    halves = np.ascontiguousarray(register).view(np.uint16).reshape(-1, 8, 8)
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(-1).view(np.int32)
