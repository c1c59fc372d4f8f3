"""The same bytes as elements of another width."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import TilewrightError
from tilewright.layout.layout import AnyLayout, ComposedLayout, Layout, Swizzle, flat
from tilewright.layout.tuples import IntTuple


def recast(layout: AnyLayout, old_bits: int, new_bits: int) -> AnyLayout:
    """A layout of elements of ``old_bits`` as one of elements of ``new_bits``.

    Raises:
        TilewrightError: ``layout/recast``, where neither width divides the other, or as ``upcast`` and ``downcast`` do.
    """
    if min(old_bits, new_bits) < 1 or (old_bits % new_bits and new_bits % old_bits):
        raise TilewrightError(
            "layout/recast", f"Elements of {old_bits} bits are no whole number of elements of {new_bits} bits."
        )
    return upcast(layout, new_bits // old_bits) if new_bits >= old_bits else downcast(layout, old_bits // new_bits)


def upcast(layout: AnyLayout, count: int) -> AnyLayout:
    """Elements ``count`` times as wide: neighbours (stride below ``count``) fall together.

    Raises:
        TilewrightError: ``layout/recast``, where a stride or a run does not fit the wide elements, where some of them
            would be there in part only (CuTe rounds up), or where a swizzle would tear one.
    """
    _check_count(count)
    if isinstance(layout, ComposedLayout):
        if layout.offset % count:
            raise TilewrightError("layout/recast", f"The offset {layout.offset} is no multiple of {count} elements.")
        inner = upcast(layout.layout, count)
        assert isinstance(inner, Layout)
        return ComposedLayout(_shifted(layout.swizzle, -_log2(count)), layout.offset // count, inner)
    wide = _rebuilt(layout, [_wider(size, step, count, layout) for size, step in flat(layout)])
    if wide.size * count != layout.size:
        raise TilewrightError(
            "layout/recast",
            f"{layout} does not hold whole elements of {count} neighbours: it has {layout.size} elements, not "
            f"{wide.size} x {count}.",
        )
    return wide


def downcast(layout: AnyLayout, count: int) -> AnyLayout:
    """Elements cut into ``count`` narrower ones: the mode of stride 1 becomes longer, other strides grow.

    Raises:
        TilewrightError: ``layout/recast``, where no mode of stride 1, or more than one, could count them.
    """
    _check_count(count)
    if count == 1:
        return layout
    if isinstance(layout, ComposedLayout):
        inner = downcast(layout.layout, count)
        assert isinstance(inner, Layout)
        return ComposedLayout(_shifted(layout.swizzle, _log2(count)), layout.offset * count, inner)
    pairs = flat(layout)
    hosts = [i for i, (size, step) in enumerate(pairs) if step == 1 and size > 1]
    if not hosts:  # a mode of one element may have any stride
        hosts = [i for i, (size, step) in enumerate(pairs) if size == 1 and step <= 1][:1]
    if len(hosts) != 1:
        raise TilewrightError(
            "layout/recast", f"{layout} has {len(hosts)} modes of stride 1; one must count the narrow elements."
        )
    cut = [(size * count, 1) if i == hosts[0] else (size, step * count) for i, (size, step) in enumerate(pairs)]
    return _rebuilt(layout, cut)


def _wider(size: int, step: int, count: int, whole: Layout) -> tuple[int, int]:
    if step % count == 0:
        return size, step // count
    together = count // step if count % step == 0 else 0
    if not together or (size % together and together % size):
        raise TilewrightError(
            "layout/recast", f"{whole}: the mode {size}:{step} does not fall into elements of {count} neighbours."
        )
    return -(-size // together), 1


def _rebuilt(layout: Layout, pairs: Sequence[tuple[int, int]]) -> Layout:
    """The nesting of a layout with other leaves."""
    left = iter(pairs)

    def walk(shape: IntTuple) -> tuple[IntTuple, IntTuple]:
        if not isinstance(shape, tuple):
            return next(left)
        parts = [walk(part) for part in shape]
        return tuple(part[0] for part in parts), tuple(part[1] for part in parts)

    return Layout(*walk(layout.shape))


def _shifted(swizzle: Swizzle, by: int) -> Swizzle:
    if swizzle.base + by < 0:
        raise TilewrightError("layout/recast", f"{swizzle} takes a wide element apart: M must be at least {-by}.")
    return Swizzle(swizzle.bits, swizzle.base + by, swizzle.shift)


def _log2(count: int) -> int:
    if count & (count - 1):
        raise TilewrightError("layout/recast", f"A swizzle moves powers of two; {count} elements in one are none.")
    return count.bit_length() - 1


def _check_count(count: int) -> None:
    if count < 1:
        raise TilewrightError("layout/recast", f"Elements change their width by a factor of 1 or more, not {count}.")
