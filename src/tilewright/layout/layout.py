"""Layouts: functions from coordinates to offsets, as CuTe writes them: shape, stride, and swizzles on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilewright.errors import TilewrightError
from tilewright.layout.tuples import (
    IntTuple,
    column_major,
    congruent,
    coordinate_of,
    depth,
    flatten,
    index_of,
    leaves,
    modes,
    product,
    written,
)


@dataclass(frozen=True)
class Layout:
    """A shape and strides of the same nesting: coordinate (c0, c1, …) lies at c0·d0 + c1·d1 + …

    The domain is both the coordinates of the shape and the integers from 0 to ``size - 1`` that count through them, the
    first mode fastest.

    Attributes:
        shape: positive integers, nested at will. stride: integers from 0 on, nested in the same way.

    Raises:
        TilewrightError: ``layout/not_a_layout``, where they are not.
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        if not congruent(self.shape, self.stride):
            raise _bad(f"The shape {written(self.shape)} and the stride {written(self.stride)} do not nest alike.")
        for whole in (self.shape, self.stride):
            if not all(type(leaf) is int for leaf in leaves(whole)) or _has_empty(whole):
                raise _bad(f"{whole!r} is no nested tuple of integers; an empty tuple is none either.")
        if any(leaf < 1 for leaf in leaves(self.shape)):
            raise _bad(f"The shape {written(self.shape)} has a mode of less than 1.")
        if any(leaf < 0 for leaf in leaves(self.stride)):
            raise _bad(f"The stride {written(self.stride)} has a negative mode; such layouts are not covered.")

    def __call__(self, *coordinate: IntTuple) -> int:
        """The offset of a coordinate, or of an index; one argument per mode, or one in all."""
        return index_of(coordinate[0] if len(coordinate) == 1 else coordinate, self.shape, self.stride)

    def __getitem__(self, mode: int) -> Layout:
        """One mode as a layout."""
        return Layout(modes(self.shape)[mode], modes(self.stride)[mode])

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((s - 1) * d for s, d in zip(leaves(self.shape), leaves(self.stride), strict=True))

    @property
    def rank(self) -> int:
        return len(modes(self.shape))

    @property
    def depth(self) -> int:
        return depth(self.shape)

    def coordinate(self, index: int) -> IntTuple:
        """The index-th coordinate of the shape. Raises TilewrightError outside of 0 … size - 1."""
        if not 0 <= index < self.size:
            raise TilewrightError("layout/coordinate", f"{self} has the indices 0 to {self.size - 1}, not {index}.")
        return coordinate_of(index, self.shape)

    def offsets(self) -> list[int]:
        """All offsets, by index. They are built mode by mode, which is quicker than asking for each."""
        values = [0]
        for size, step in zip(leaves(self.shape), leaves(self.stride), strict=True):
            values = [value + i * step for i in range(size) for value in values]
        return values

    def __str__(self) -> str:
        return f"{written(self.shape)}:{written(self.stride)}"


@dataclass(frozen=True)
class Swizzle:
    """``Sw<B,M,S>``: of an offset's bits, B from M + S on are XORed into those from M on (S < 0: the other way).

    Attributes:
        bits: B, how many. base: M, so that blocks of 2^M stay whole. shift: S, of at least B either way.

    Raises:
        TilewrightError: ``layout/not_a_swizzle``: with ``abs(shift) < bits`` it would not be its own inverse.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise TilewrightError(
                "layout/not_a_swizzle", f"{self} needs B and M of 0 or more, and S of at least B (or at most -B)."
            )

    def __call__(self, offset: int) -> int:
        taken = offset & (((1 << self.bits) - 1) << (self.base + max(0, self.shift)))
        return offset ^ (taken >> self.shift if self.shift >= 0 else taken << -self.shift)

    @property
    def period(self) -> int:
        """Offsets below a multiple of this stay below it."""
        return 1 << (self.bits + self.base + abs(self.shift)) if self.bits else 1

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True)
class ComposedLayout:
    """``Sw<B,M,S> o offset o layout``: the layout first, the offset added, the swizzle last."""

    swizzle: Swizzle
    offset: int
    layout: Layout

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise _bad(f"The offset of a composed layout is 0 or more, not {self.offset}.")

    def __call__(self, *coordinate: IntTuple) -> int:
        return self.swizzle(self.offset + self.layout(*coordinate))

    def __getitem__(self, mode: int) -> ComposedLayout:
        """One mode; the others stay at 0."""
        return ComposedLayout(self.swizzle, self.offset, self.layout[mode])

    @property
    def shape(self) -> IntTuple:
        return self.layout.shape

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + max(self.offsets())

    @property
    def rank(self) -> int:
        return self.layout.rank

    @property
    def depth(self) -> int:
        return self.layout.depth

    def coordinate(self, index: int) -> IntTuple:
        return self.layout.coordinate(index)

    def offsets(self) -> list[int]:
        """All offsets, by index."""
        return [self.swizzle(self.offset + value) for value in self.layout.offsets()]

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.offset} o {self.layout}"


AnyLayout: TypeAlias = Layout | ComposedLayout


def compact(shape: IntTuple) -> Layout:
    """The layout of a shape whose offsets count up, the first mode fastest: ``(2,4)`` to ``(2,4):(1,2)``."""
    return Layout(shape, column_major(shape))


def flat(layout: Layout) -> tuple[tuple[int, int], ...]:
    """(size, stride) of each leaf."""
    return tuple(zip(flatten(layout.shape), flatten(layout.stride), strict=True))


def from_flat(pairs: list[tuple[int, int]]) -> Layout:
    """A layout of (size, stride) pairs: one mode plain, several as a tuple, none as ``1:0``."""
    if not pairs:
        return Layout(1, 0)
    if len(pairs) == 1:
        return Layout(*pairs[0])
    return Layout(tuple(size for size, _ in pairs), tuple(step for _, step in pairs))


def bundle(*layouts: Layout) -> Layout:
    """Each layout as one mode (CuTe's ``make_layout``)."""
    return Layout(tuple(part.shape for part in layouts), tuple(part.stride for part in layouts))


def _has_empty(value: IntTuple) -> bool:
    return isinstance(value, tuple) and (not value or any(_has_empty(part) for part in value))


def _bad(message: str) -> TilewrightError:
    return TilewrightError("layout/not_a_layout", message, {}, "Write for example ((2,2),4):((1,4),2).")
