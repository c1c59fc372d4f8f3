"""What :mod:`tilewright.kloop.rows` yields: the rows that one copy moves, and the box that they are."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kloop.kernel import Refusal


@dataclass(frozen=True)
class Box:
    """A tile that is a box of a row-major matrix, as a tensor map describes it.

    Attributes:
        pointer: the parameter that the matrix begins at.
        element_bytes: of the matrix.
        width, height: elements of the box; ``width`` reaches over the padding of a shared row.
        columns, rows: extents of the matrix in elements: expressions over the kernel's parameters.
        pitch: elements from one row to the next: likewise.
        x, y: the box's first column and row, as C++ at the place of the copies.
        needs: conditions over the parameters, for the host. checks: conditions for the kernel, as C++.
    """

    pointer: str
    element_bytes: int
    width: int
    height: int
    columns: str
    rows: str
    pitch: str
    x: str
    y: str
    needs: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowMap:
    """The rows that one copy (or copy loop) moves into a staged array. Texts hold ``row_text.ROW`` for the row.

    Attributes:
        array, name: the staged array.
        line: of the copy.
        count: rows. row_bytes: of each, the same in global and in shared memory.
        first_bytes, pitch_bytes: where row 0 begins in the array, and how far row 1 lies behind it.
        target, source: the address of a row in shared and in global memory, as C++.
        inside: conditions under which every element is copied as it is, none filled, as C++.
        box: the rows as a box of a matrix, or why they are none.
    """

    array: int
    name: str
    line: int
    count: int
    row_bytes: int
    first_bytes: int
    pitch_bytes: int
    target: str
    source: str
    inside: tuple[str, ...]
    box: Box | Refusal

    @property
    def end_bytes(self) -> int:
        """Where the last row ends in the array."""
        return self.first_bytes + (self.count - 1) * self.pitch_bytes + self.row_bytes

    @property
    def total_bytes(self) -> int:
        return self.count * self.row_bytes
