"""Warp-level matrix instructions: fragments to and from memory, and products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.chunk import WARP, Active, Array
from tilewright.emulator.machine.generic_memory import GenericMemory
from tilewright.emulator.machine.shared_memory import SharedMemory
from tilewright.emulator.machine.warps import Warps
from tilewright.emulator.matrix import ldmatrix as moves
from tilewright.emulator.matrix import wmma
from tilewright.emulator.matrix.elements import element_bits
from tilewright.emulator.matrix.fragments import Which
from tilewright.emulator.matrix.mma import MmaOptions, Types, mma
from tilewright.emulator.matrix.scaled import ScaleOperand, mma_block_scaled
from tilewright.emulator.matrix.sparse import mma_sp
from tilewright.errors import TilewrightError

PIECE = 16  # bytes: wmma addresses and leading dimensions are multiples of it. PTX ISA, "wmma.load"


@contextmanager
def _known(site: int) -> Iterator[None]:
    """What the matrix room does not know ends the run, with its line, and not the program."""
    try:
        yield
    except TilewrightError as error:
        raise Fault("not_modelled", error.message.rstrip("."), site) from error


class Matrices:
    def __init__(self, warps: Warps, shared: SharedMemory, generic: GenericMemory) -> None:
        self.warps = warps
        self.memories: dict[str, Any] = {"shared": shared, "global": generic.globe, "generic": generic}

    def _spread(self, active: Active, registers: tuple[Any, ...]) -> list[Array]:
        return [active.spread(register) for register in registers]

    # -- products ----------------------------------------------------------------------------------------

    def mma(
        self,
        active: Active,
        shape: str,
        types: Types,
        a: tuple[Any, ...],
        b: tuple[Any, ...],
        c: tuple[Any, ...],
        options: MmaOptions,
        site: int,
    ) -> tuple[Array, ...]:
        self.warps.whole(active, site, "mma.sync")
        a, b, c = (tuple(self._spread(active, x)) for x in (a, b, c))
        with _known(site):
            return mma(shape, types, a, b, c, options)

    def mma_sparse(
        self,
        active: Active,
        shape: str,
        types: Types,
        a: tuple[Any, ...],
        b: tuple[Any, ...],
        c: tuple[Any, ...],
        metadata: Any,
        selector: int,
        options: MmaOptions,
        site: int,
    ) -> tuple[Array, ...]:
        """``selector``: which lanes of each group of four hold the metadata."""
        self.warps.whole(active, site, "mma.sp")
        a, b, c = (tuple(self._spread(active, x)) for x in (a, b, c))
        with _known(site):
            return mma_sp(shape, types, a, b, c, active.spread(metadata), int(selector), options)

    def mma_scaled(
        self,
        active: Active,
        shape: str,
        types: Types,
        a: tuple[Any, ...],
        b: tuple[Any, ...],
        c: tuple[Any, ...],
        scales: tuple[tuple[Any, int, int], tuple[Any, int, int]],
        kind: str,
        scale_element: str,
        scale_vec: int,
        site: int,
    ) -> tuple[Array, ...]:
        """``scales``: (data, byte id, thread id) of A and of B."""
        self.warps.whole(active, site, "mma.sync")
        of_a, of_b = (ScaleOperand(active.spread(data), byte, thread) for data, byte, thread in scales)
        a, b, c = (tuple(self._spread(active, x)) for x in (a, b, c))
        with _known(site):
            return mma_block_scaled(shape, types, a, b, c, (of_a, of_b), kind, scale_element, scale_vec)

    def wmma_mma(
        self,
        active: Active,
        shape: str,
        types: Types,
        a: tuple[Any, ...],
        b: tuple[Any, ...],
        c: tuple[Any, ...],
        options: MmaOptions,
        site: int,
    ) -> tuple[Array, ...]:
        self.warps.whole(active, site, "wmma.mma")
        a, b, c = (tuple(self._spread(active, x)) for x in (a, b, c))
        with _known(site):
            return wmma.wmma_mma(shape, types, a, b, c, options)

    # -- fragments and memory ----------------------------------------------------------------------------

    def wmma_load(
        self,
        active: Active,
        space: str,
        shape: str,
        element: str,
        which: Which,
        row_major: bool,
        address: Any,
        stride: Any,
        site: int,
    ) -> tuple[Array, ...]:
        """``stride``: elements between rows (columns, where column-major)."""
        self.warps.whole(active, site, "wmma.load")
        span = wmma.span(shape, element, which, row_major)
        part, pieces = self._pieces(active, address, stride, span, element, site)
        rows = self.memories[space].load_rows(part, pieces, min(PIECE, span.row_bytes), site)
        return wmma.load_rows(rows.reshape(-1, span.count, span.row_bytes), shape, element, which, row_major)

    def wmma_store(
        self,
        active: Active,
        space: str,
        shape: str,
        element: str,
        row_major: bool,
        address: Any,
        stride: Any,
        registers: tuple[Any, ...],
        site: int,
    ) -> None:
        self.warps.whole(active, site, "wmma.store")
        span = wmma.span(shape, element, "d", row_major)
        part, pieces = self._pieces(active, address, stride, span, element, site)
        rows = wmma.store_rows(self._spread(active, registers), shape, element, row_major)
        self.memories[space].store_rows(part, pieces, rows.reshape(-1, min(PIECE, span.row_bytes)), site)

    def _pieces(
        self, active: Active, address: Any, stride: Any, span: wmma.Span, element: str, site: int
    ) -> tuple[Active, Array]:
        """(a thread for each piece of each warp's matrix, the pieces' addresses). Pieces are of 16 bytes, or whole rows
        where these are of 8."""
        first = active.spread(address)[::WARP].astype(np.int64)
        bits = element_bits(element)
        step = active.spread(stride)[::WARP].astype(np.int64) * bits // 8
        if (step % PIECE).any() or (first % PIECE).any():
            at = int(np.flatnonzero((step % PIECE) | (first % PIECE))[0])
            what = f"wmma at an address of {int(first[at]) % PIECE} modulo 16 with rows {int(step[at])} bytes apart"
            raise Fault("misaligned", f"{what}; both must be multiples of 16", site)
        rows = first[:, None] + np.arange(span.count) * step[:, None]
        pieces = rows[:, :, None] + np.arange(0, span.row_bytes, min(PIECE, span.row_bytes))
        # A piece is read by the lanes that share it: spread pieces over the lanes as the hardware's phases do.
        per_warp = pieces.shape[1] * pieces.shape[2]
        lanes = np.arange(per_warp) * WARP // per_warp if per_warp < WARP else np.arange(per_warp) % WARP
        threads = active.threads[::WARP][:, None] + lanes
        return Active(active.chunk, threads.reshape(-1)), pieces.reshape(-1)

    # -- ldmatrix ----------------------------------------------------------------------------------------

    def _rows(self, active: Active, address: Any, number: int) -> tuple[Active, Array]:
        """(the lanes that give addresses, their addresses): 8 per matrix."""
        chosen = active.spread(address).reshape(-1, WARP)[:, : 8 * number]
        threads = active.threads.reshape(-1, WARP)[:, : 8 * number]
        return Active(active.chunk, np.ascontiguousarray(threads).reshape(-1)), chosen.reshape(-1).astype(np.int64)

    def ldmatrix(self, active: Active, address: Any, number: int, transposed: bool, site: int) -> tuple[Array, ...]:
        self.warps.whole(active, site, "ldmatrix")
        part, addresses = self._rows(active, address, number)
        rows = self.memories["shared"].load_rows(part, addresses, 16, site)
        return moves.ldmatrix(rows.reshape(-1, 8 * number, 16), number, transposed)

    def stmatrix(self, active: Active, address: Any, registers: tuple[Any, ...], transposed: bool, site: int) -> None:
        self.warps.whole(active, site, "stmatrix")
        part, addresses = self._rows(active, address, len(registers))
        rows = moves.stmatrix(self._spread(active, registers), len(registers), transposed)
        self.memories["shared"].store_rows(part, addresses, rows.reshape(-1, 16), site)

    def movmatrix(self, active: Active, register: Any, site: int) -> Array:
        self.warps.whole(active, site, "movmatrix")
        return moves.movmatrix(active.spread(register))
