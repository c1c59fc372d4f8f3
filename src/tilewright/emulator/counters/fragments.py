"""How ``wmma.load`` and ``wmma.store`` reach memory: PTX leaves it open, machine code does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tilewright.emulator.matrix import wmma
from tilewright.emulator.matrix.elements import element_bits
from tilewright.emulator.matrix.fragments import Which
from tilewright.ptx.module import Instruction

IntArray = npt.NDArray[np.int64]
PIECE_BYTES = 16
_SHAPE = re.compile(r"m\d+n\d+k\d+")


@dataclass(frozen=True)
class Transfer:
    """One wmma load or store. Of the machine code that ptxas makes for sm_75 and up:

    A and B in shared memory whose elements along k are neighbours, or that have 16-bit elements, go through LDSM: eight
    rows of 16 bytes at a time. All else is loaded and stored lane by lane, a lane's neighbours together: the pairs of
    a row-major accumulator, four bytes of A in global memory, single bytes of a row-major int8 B. Of 16-bit elements
    lanes load pairs even across k, which registers then exchange (MOVM).
    """

    shape: str
    element: str
    which: Which
    row_major: bool

    @property
    def by_rows(self) -> bool:
        """In shared memory, it goes through LDSM."""
        if self.which not in ("a", "b"):
            return False
        bits = element_bits(self.element)
        return bits == 16 or (bits <= 32 and self.row_major == (self.which == "a"))

    @property
    def pieces(self) -> int:
        """Of 16 bytes, or whole rows of 8, of the whole matrix."""
        span = wmma.span(self.shape, self.element, self.which, self.row_major)
        return span.count * max(span.row_bytes // PIECE_BYTES, 1)

    def accesses(self, pieces: IntArray, is_shared: bool) -> Iterator[tuple[IntArray, IntArray, int]]:
        """(lanes int64[n], addresses int64[W, n], bytes) of each access of a warp.

        Args:
            pieces: int64[W, p], addresses of the matrix's pieces, row by row.
        """
        span = wmma.span(self.shape, self.element, self.which, self.row_major)
        rows = pieces.reshape(len(pieces), span.count, -1)
        if is_shared and self.by_rows:
            # A matrix of 8 rows is a phase of its own: the pieces of 8 rows follow one another.
            ordered = rows.transpose(0, 2, 1).reshape(len(pieces), -1)
            for start in range(0, ordered.shape[1], 32):
                part = ordered[:, start : start + 32]
                yield np.arange(part.shape[1]), part, PIECE_BYTES
            return
        for slow, fast_bytes, size in _lane_accesses(self):
            yield np.arange(32), rows[:, slow, 0] + fast_bytes, size


def transfer_of(instruction: Instruction) -> Transfer | None:
    """Of a ``wmma.load`` or ``wmma.store``; None for everything else."""
    modifiers = instruction.modifiers
    if instruction.opcode != "wmma" or modifiers[0] not in ("load", "store"):
        return None
    shape = next(m for m in modifiers if _SHAPE.fullmatch(m))
    which: Which = "a" if modifiers[1] == "a" else "b" if modifiers[1] == "b" else "d"
    return Transfer(shape, modifiers[-1], which, "row" in modifiers)


@cache
def _lane_accesses(transfer: Transfer) -> tuple[tuple[IntArray, IntArray, int], ...]:
    """(row of the memory int64[32], bytes into it int64[32], bytes) of each access of a lane."""
    bits = element_bits(transfer.element)
    if transfer.which in ("a", "b") and bits == 16:
        return tuple(_pairs(transfer))
    slow, fast = wmma.load_offsets(transfer.shape, transfer.element, transfer.which, transfer.row_major)
    out: list[tuple[IntArray, IntArray, int]] = []
    at = 0
    while at < slow.shape[1]:
        count = 1
        while _are_neighbours(slow, fast, at, 2 * count, bits):
            count *= 2
        out.append((slow[:, at], fast[:, at] * bits // 8, max(count * bits // 8, 1)))
        at += count
    return tuple(out)


def _pairs(transfer: Transfer) -> Iterator[tuple[IntArray, IntArray, int]]:
    """Lane 4g + t loads elements 2t, 2t + 1 of row g of each block of 8 x 8 elements."""
    span = wmma.span(transfer.shape, transfer.element, transfer.which, transfer.row_major)
    lanes = np.arange(32)
    for row in range(0, span.count, 8):
        for start in range(0, span.row_bytes, PIECE_BYTES):
            yield row + lanes // 4, start + lanes % 4 * 4, 4


def _are_neighbours(slow: IntArray, fast: IntArray, at: int, count: int, bits: int) -> bool:
    """``count`` elements from ``at`` on lie side by side in every lane, at a multiple of their size."""
    if at + count > slow.shape[1] or count * bits > 8 * PIECE_BYTES:
        return False
    run = fast[:, at : at + count]
    is_one_row = (slow[:, at : at + count] == slow[:, at : at + 1]).all()
    return bool(is_one_row and not (run[:, 0] % count).any() and (run == run[:, :1] + np.arange(count)).all())
