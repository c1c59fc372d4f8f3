"""Nested tuples of integers: the shapes, strides and coordinates of layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tilewright.errors import TilewrightError

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"


def leaves(value: IntTuple) -> Iterator[int]:
    """The integers of a nested tuple, from left to right."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def flatten(value: IntTuple) -> tuple[int, ...]:
    """All integers in one tuple; ``5`` becomes ``(5,)``."""
    return tuple(leaves(value))


def product(value: IntTuple) -> int:
    """The product of all integers; of ``()``, 1."""
    result = 1
    for leaf in leaves(value):
        result *= leaf
    return result


def modes(value: IntTuple) -> tuple[IntTuple, ...]:
    """The parts at the top; an integer is its own one mode."""
    return value if isinstance(value, tuple) else (value,)


def depth(value: IntTuple) -> int:
    """How deep the tuple nests: 0 of an integer."""
    return 1 + max((depth(part) for part in value), default=0) if isinstance(value, tuple) else 0


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Both nest in the same way."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(congruent(x, y) for x, y in zip(a, b, strict=True))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def column_major(shape: IntTuple, first: int = 1) -> IntTuple:
    """The compact strides of a shape, the first mode fastest: ``(2,(3,4))`` to ``(1,(2,6))``."""
    if not isinstance(shape, tuple):
        return first
    strides = []
    for part in shape:
        strides.append(column_major(part, first))
        first *= product(part)
    return tuple(strides)


def index_of(coordinate: IntTuple, shape: IntTuple, stride: IntTuple) -> int:
    """The value at a coordinate (CuTe's ``crd2idx``).

    Args:
        coordinate: nests like the shape, or less deep: an integer counts through the modes that it stands for, the
            first fastest. The last of these modes is not bounded, so that an index past the end continues it.

    Raises:
        TilewrightError: ``layout/coordinate``, where it nests deeper than the shape, or has another number of modes.
    """
    if isinstance(coordinate, tuple):
        if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(coordinate) != len(shape):
            raise _no_coordinate(coordinate, shape)
        return sum(index_of(c, s, d) for c, s, d in zip(coordinate, shape, stride, strict=True))
    if not isinstance(shape, tuple) or not isinstance(stride, tuple):
        assert not isinstance(stride, tuple)
        return coordinate * stride
    total = 0
    for part, step in zip(shape[:-1], stride[:-1], strict=True):
        coordinate, here = divmod(coordinate, product(part))
        total += index_of(here, part, step)
    return total + index_of(coordinate, shape[-1], stride[-1])


def within(coordinate: IntTuple, shape: IntTuple) -> bool:
    """Whether a coordinate, nested like the shape or less deep, is one of its places. Deeper ones are `index_of`'s."""
    if isinstance(coordinate, tuple):
        parts = zip(coordinate, modes(shape), strict=False)
        return all(within(part, mode) for part, mode in parts)
    return 0 <= coordinate < product(shape)


def coordinate_of(index: int, shape: IntTuple) -> IntTuple:
    """The coordinate that is the index-th of a shape, the first mode fastest (CuTe's ``idx2crd``). 0 <= index."""
    if not isinstance(shape, tuple):
        return index % shape
    parts = []
    for part in shape:
        index, here = divmod(index, product(part))
        parts.append(coordinate_of(here, part))
    return tuple(parts)


def written(value: IntTuple) -> str:
    """``((2,2),4)``: without spaces, as CuTe prints it."""
    if isinstance(value, tuple):
        return f"({','.join(written(part) for part in value)})"
    return str(value)


def _no_coordinate(coordinate: IntTuple, shape: IntTuple) -> TilewrightError:
    return TilewrightError(
        "layout/coordinate",
        f"{written(coordinate)} is no coordinate of the shape {written(shape)}: need as many modes, or fewer levels.",
    )
