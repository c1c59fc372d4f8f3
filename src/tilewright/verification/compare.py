"""Comparisons of arrays, in pieces, so that a result of 4096 x 4096 needs no second copy in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.verification.tolerance import Tolerance

if TYPE_CHECKING:
    import numpy as np

PIECE = 1 << 20  # elements at a time: 8 MiB in float64, about what a core's cache holds


@dataclass(frozen=True)
class Difference:
    """How two arrays differ.

    Attributes:
        count: elements that differ (or that leave the tolerance).
        total: elements compared.
        first: flat index of the first one; -1 without any.
        max_abs: the largest distance between finite elements.
    """

    count: int
    total: int
    first: int
    max_abs: float


def raw_bits(array: np.ndarray) -> np.ndarray:
    """The elements as unsigned integers of their width: equal bits are equal, NaNs and signed zeros included."""
    return array.reshape(-1).view(f"u{array.dtype.itemsize}")


def bitwise(result: np.ndarray, expected: np.ndarray, skip: np.ndarray | None = None) -> Difference:
    """Compare two storages of one dtype bit for bit; elements where ``skip`` is true are left out."""
    import numpy as np

    left, right = raw_bits(result), raw_bits(expected)
    differs = left != right
    if skip is not None:
        differs &= ~skip
    where = np.flatnonzero(differs)
    if where.size == 0:
        return Difference(0, left.size, -1, 0.0)
    with np.errstate(all="ignore"):
        distance = np.abs(result[where].astype(np.float64) - expected[where].astype(np.float64))
    finite = distance[np.isfinite(distance)]
    return Difference(where.size, left.size, int(where[0]), float(finite.max(initial=0.0)))


def within(
    result: np.ndarray, reference: np.ndarray, tolerance: Tolerance, unwritten: np.ndarray | None = None
) -> Difference:
    """Compare a result with a float64 reference of the same shape.

    A NaN in the reference asks for a NaN, or says that the element is not defined: unwritten is then right too (whoever
    accepts that has to say how many there are: `verify.coverage`). An infinity asks for the same one. ``count`` is the
    number of elements out of tolerance (unwritten ones that the reference defines among them); ``max_abs`` is taken
    over the finite, written elements.
    """
    import numpy as np

    count, first, worst = 0, -1, 0.0
    for start, got, need, blank in _pieces(result, reference, unwritten):
        with np.errstate(all="ignore"):
            distance = np.abs(got - need)
            allowed = tolerance.absolute + tolerance.relative * np.abs(need)
            good = distance <= allowed
        finite = np.isfinite(need)
        good = np.where(finite, good, (got == need) | (np.isnan(got) & np.isnan(need)))
        if blank is not None:
            good = np.where(blank, np.isnan(need), good)
        bad = np.flatnonzero(~good)
        if bad.size:
            count += bad.size
            first = start + int(bad[0]) if first < 0 else first
        measured = distance[np.isfinite(distance) & (~blank if blank is not None else True)]
        worst = max(worst, float(measured.max(initial=0.0)))
    return Difference(count, int(result.size), first, worst)


def root_mean_square(values: np.ndarray) -> float:
    """Over the finite elements; 0.0 without any."""
    import numpy as np

    flat = values.reshape(-1)
    total, count = 0.0, 0
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE]
        piece = piece[np.isfinite(piece)]
        total += float(np.dot(piece, piece))
        count += piece.size
    return float(np.sqrt(total / count)) if count else 0.0


def _pieces(
    result: np.ndarray, reference: np.ndarray, unwritten: np.ndarray | None
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray | None]]:
    import numpy as np

    got, need = result.reshape(-1), reference.reshape(-1)
    blank = None if unwritten is None else unwritten.reshape(-1)
    for start in range(0, got.size, PIECE):
        end = start + PIECE
        with np.errstate(invalid="ignore"):  # a wrong result may have signalling NaNs
            piece = got[start:end].astype(np.float64)
        yield start, piece, need[start:end], None if blank is None else blank[start:end]


def place_of(flat: int, shape: tuple[int, ...]) -> str:
    """``[3, 17]`` for the flat row-major index of an element."""
    indices: list[int] = []
    for extent in reversed(shape):
        flat, index = divmod(flat, max(extent, 1))
        indices.append(index)
    return "[" + ", ".join(str(index) for index in reversed(indices)) + "]"
