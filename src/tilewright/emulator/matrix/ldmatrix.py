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


def ldmatrix(rows: Array, num: int, transposed: bool, element: str = "b16") -> tuple[Array, ...]:
    """Registers of ``ldmatrix.m8n8.x<num>``.

    Args:
        rows: uint8[W, 8 * num, 16], one 16-byte row per address.
        num: 1, 2 or 4 matrices.
        transposed: ``.trans``.
        element: b16; other elements belong to shapes that are not emulated.

    Returns:
        ``num`` int32[32 * W].

    Raises:
        TilewrightError: another element.
    """
    if element != "b16":
        raise TilewrightError("emulator/unknown_matrix", f"ldmatrix of {element} is not emulated.")
    warps = len(rows)
    halves = np.ascontiguousarray(rows).view(np.uint16).reshape(warps, num, 8, 8)
    if transposed:
        halves = halves.transpose(0, 1, 3, 2)
    return tuple(np.ascontiguousarray(halves[:, j]).reshape(-1).view(np.int32) for j in range(num))


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
