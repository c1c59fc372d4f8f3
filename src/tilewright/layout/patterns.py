"""How a tile in shared memory is written and read: the requests of whole warps, as (row, byte of the row).

========================  ==========================================================================================
``rows16`` (8, 4, 2)      the threads of a block take vectors of 16 bytes along the rows, one row after another:
                          cooperative copies, ``cp.async``
``cols16`` (8, 4, 2, 1)   the lanes of a warp go down a column, each with a vector of so many bytes
``ldmatrix``              eight rows of 16 bytes for each matrix (``.trans`` and ``stmatrix`` have the same addresses)
``mma.SHAPE.TYPE.a``      the lanes load their fragment register by register, without ldmatrix (``.b``, ``.c``, too);
                          with ``.t`` behind, element by element from the transposed tile (a row-major B: k rows)
========================  ==========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.errors import TilewrightError
from tilewright.layout.atoms import REGISTER_BITS, Operand, atom
from tilewright.layout.banks import shared_memory

Place: TypeAlias = tuple[int, int]
Request: TypeAlias = tuple[Place | None, ...]


@dataclass(frozen=True)
class Tile:
    """Rows of elements, one after another in shared memory.

    Raises:
        TilewrightError: ``layout/tile``, where it has no elements, or elements of other than 1, 2, 4, 8 or 16 bytes, or
            more bytes than a block's shared memory.
    """

    rows: int
    cols: int
    element_bytes: int

    def __post_init__(self) -> None:
        if min(self.rows, self.cols) < 1 or self.element_bytes not in shared_memory()["widths_bytes"]:
            raise TilewrightError(
                "layout/tile",
                f"A tile has rows and columns of elements of 1, 2, 4, 8 or 16 bytes; have {self.rows} x {self.cols} of "
                f"{self.element_bytes}.",
            )
        if self.bytes > shared_memory()["largest_bytes"]:
            raise TilewrightError(
                "layout/tile",
                f"{self.rows} x {self.cols} elements of {self.element_bytes} bytes are {self.bytes}; a block has "
                f"{shared_memory()['largest_bytes']} bytes of shared memory at most.",
            )

    @property
    def row_bytes(self) -> int:
        return self.cols * self.element_bytes

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class Pattern:
    """All requests that a pattern makes in a tile.

    Attributes:
        width_bytes: of each lane's access.
        requests: of one warp each: (row, byte of the row) of each lane; None for a lane that takes no part.
        is_load: an ordinary load; False of writes and of matrices.
    """

    name: str
    width_bytes: int
    requests: tuple[Request, ...]
    is_load: bool = True


def pattern(name: str, tile: Tile, is_write: bool = False) -> Pattern:
    """The requests of a named pattern. ``is_write``: the tile is written so; ldmatrix and stmatrix have no choice.

    Raises:
        TilewrightError: ``layout/unknown_pattern``, or ``layout/pattern_does_not_fit``: a vector that does not divide
            the rows, a matrix or a fragment that does not divide the tile.
    """
    by_vector = re.fullmatch(r"(rows|cols)(\d+)", name)
    if by_vector is not None and int(by_vector[2]) in shared_memory()["widths_bytes"]:
        width = int(by_vector[2])
        _need(tile.row_bytes % width == 0, name, tile, f"rows of a multiple of {width} bytes")
        down = by_vector[1] == "cols"
        requests = _in_warps(_down(tile, width) if down else _along(tile, width))
        return Pattern(name, width, tuple(requests), not is_write)
    if re.fullmatch(r"(ldmatrix|stmatrix)(\.x[124])?(\.trans)?", name):
        return _by_matrices(name, tile)
    fragment = re.fullmatch(r"(mma\.\w+\.\w+)\.([abc])(\.t)?", name)
    if fragment is not None:
        operand, transposed = atom(fragment[1]).operands[fragment[2]], fragment[3] is not None
        return replace(_by_fragment(name, operand, fragment[2], transposed, tile), is_load=not is_write)
    raise TilewrightError(
        "layout/unknown_pattern",
        f"{name!r} is no access pattern.",
        {},
        "Take rows16, rows8, rows4, cols4, cols2, …, ldmatrix, stmatrix, or a fragment such as mma.m16n8k16.f16.a.",
    )


def _along(tile: Tile, width: int) -> Iterator[list[Place]]:
    """Vectors of the whole tile in one run: a row's end goes on in the next row."""
    yield [(row, byte) for row in range(tile.rows) for byte in range(0, tile.row_bytes, width)]


def _down(tile: Tile, width: int) -> Iterator[list[Place]]:
    for byte in range(0, tile.row_bytes, width):
        yield [(row, byte) for row in range(tile.rows)]


def _in_warps(runs: Iterator[list[Place]]) -> Iterator[Request]:
    lanes = int(shared_memory()["warp_lanes"])
    for run in runs:
        for start in range(0, len(run), lanes):
            part: list[Place | None] = list(run[start : start + lanes])
            yield tuple(part + [None] * (lanes - len(part)))


def _by_matrices(name: str, tile: Tile) -> Pattern:
    """One request for each matrix: the rows of one are a phase of their own, in whatever order x4 has them."""
    move = atom(f"{name.split('.')[0]}.x1")
    rows, width = move.operands["d"].rows, move.operands["d"].cols * move.operands["d"].bits // 8
    _need(
        tile.rows % rows == 0 and tile.row_bytes % width == 0, name, tile, f"matrices of {rows} rows by {width} bytes"
    )
    none: tuple[None, ...] = (None,) * (int(shared_memory()["warp_lanes"]) - rows)
    requests = [
        (*((row + i, byte) for i in range(rows)), *none)
        for row in range(0, tile.rows, rows)
        for byte in range(0, tile.row_bytes, width)
    ]
    return Pattern(name, width, tuple(requests), is_load=False)


def _by_fragment(name: str, operand: Operand, which: str, transposed: bool, tile: Tile) -> Pattern:
    """Registers one after another; elements that share one, or the two of a row of c, come together."""
    rows, cols = (operand.cols, operand.rows) if transposed else (operand.rows, operand.cols)
    fits = tile.element_bytes * 8 == operand.bits and tile.rows % rows == 0 and tile.cols % cols == 0
    _need(fits, name, tile, f"{rows} x {cols} elements of {operand.bits} bits")
    together = 1 if transposed else 2 if which == "c" else max(1, REGISTER_BITS // operand.bits)
    places, threads = operand.layout.offsets(), operand.layout[0].size
    requests: list[Request] = []
    for top in range(0, tile.rows, rows):
        for left in range(0, tile.cols, cols):
            for value in range(0, len(places) // threads, together):
                at = [
                    divmod(places[lane + threads * value], operand.rows)[:: 1 if transposed else -1]
                    for lane in range(threads)
                ]
                requests.append(tuple((top + row, (left + col) * tile.element_bytes) for row, col in at))
    return Pattern(name, tile.element_bytes * together, tuple(requests))


def _need(holds: bool, name: str, tile: Tile, needed: str) -> None:
    if not holds:
        raise TilewrightError(
            "layout/pattern_does_not_fit",
            f"{name} needs {needed}; the tile is {tile.rows} x {tile.cols} elements of {tile.element_bytes} bytes.",
        )
