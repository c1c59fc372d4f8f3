"""Broken implementations of the algebra: each is wrong in one way, and the comparison must notice all of them."""

from __future__ import annotations

from typing import Any

from tilewright.layout import algebra
from tilewright.layout.algebra import complement, compose
from tilewright.layout.layout import Layout, bundle, flat, from_flat


def merges_equal_strides(layout: Layout) -> Layout:
    merged: list[tuple[int, int]] = []
    for size, step in flat(layout):
        if merged and merged[-1][1] == step:
            merged[-1] = (merged[-1][0] * size, step)
        elif size > 1:
            merged.append((size, step))
    return from_flat(merged)


def keeps_zero_strides(layout: Layout) -> Layout:
    return algebra.coalesce(layout)


def composes_without_carries(a: Layout, b: Layout) -> Layout:
    """What the conditions of CuTe let pass: modes of B, one by one."""
    if isinstance(b.shape, tuple):
        return bundle(*(composes_without_carries(a, b[i]) for i in range(b.rank)))
    return compose(a, b)


def composes_by_rounding(a: Layout, b: Layout) -> Layout:
    """Sizes and strides that do not divide are cut off."""
    if isinstance(b.shape, tuple):
        return bundle(*(composes_by_rounding(a, b[i]) for i in range(b.rank)))
    found: list[tuple[int, int]] = []
    (size, step), digits = flat(b)[0], flat(algebra.coalesce(a))
    for radix, stride in digits[:-1]:
        here = min(max(1, radix // max(1, step)), size)
        if here > 1:
            found.append((here, step * stride))
        size, step = size // here, -(-step // radix)
    return from_flat([*found, (size, step * digits[-1][1])])


def composes_the_other_way(a: Layout, b: Layout) -> Layout:
    return compose(b, a)


def complements_unsorted(layout: Layout, cosize: int) -> Layout:
    missing, reached = [], 1
    for size, step in flat(layout):
        if size > 1 and step:
            missing.append((max(1, step // reached), reached))
            reached = size * step
    return algebra.coalesce(from_flat([*missing, (-(-cosize // reached), reached)]))


def complements_uneven(layout: Layout, cosize: int) -> Layout:
    missing, reached = [], 1
    for step, size in sorted((step, size) for size, step in flat(layout) if size > 1 and step):
        missing.append((max(1, step // reached), reached))
        reached = size * step
    return algebra.coalesce(from_flat([*missing, (-(-cosize // reached), reached)]))


def complements_rounding_down(layout: Layout, cosize: int) -> Layout:
    found = complement(layout, cosize)
    span = max((size * step for size, step in flat(layout) if size > 1), default=1)
    return found if cosize % span == 0 else complement(layout, max(1, cosize - span))


def inverts_in_order(layout: Layout) -> Layout:
    """Takes the modes in their own order, not by stride."""
    found, reached, passed = [], 1, 1
    for size, step in flat(layout):
        if step == reached:
            found.append((size, passed))
            reached = size * step
        passed *= size
    return algebra.coalesce(from_flat(found))


def inverts_to_positions(layout: Layout) -> Layout:
    """Strides count the modes as sorted, not as they stand."""
    inverse = algebra.right_inverse(layout)
    return Layout(inverse.shape, Layout(inverse.shape, inverse.stride).stride) if inverse.rank > 2 else Layout(
        inverse.size, 1
    )  # fmt: skip


def divides_with_a_short_rest(a: Layout, b: Layout) -> Layout:
    return compose(a, bundle(b, complement(b, max(1, a.size // 2))))


def divides_rest_first(a: Layout, b: Layout) -> Layout:
    return compose(a, bundle(complement(b, a.size), b))


def repeats_by_size(a: Layout, b: Layout) -> Layout:
    """The complement as far as the copies' size, not their cosize."""
    return bundle(a, compose(complement(a, a.size * b.size), b)) if b.size > 1 else bundle(a, b)


def repeats_without_complement(a: Layout, b: Layout) -> Layout:
    return bundle(a, Layout(b.shape, _scaled(b.stride, a.size)))


def _scaled(value: Any, factor: int) -> Any:
    return tuple(_scaled(part, factor) for part in value) if isinstance(value, tuple) else value * factor


MUTANTS: dict[str, tuple[str, Any]] = {
    function.__name__: (operation, function)
    for operation, functions in {
        "coalesce": (merges_equal_strides,),
        "filter": (keeps_zero_strides,),
        "composition": (composes_without_carries, composes_by_rounding, composes_the_other_way),
        "complement": (complements_unsorted, complements_uneven, complements_rounding_down),
        "right_inverse": (inverts_in_order, inverts_to_positions),
        "left_inverse": (algebra.right_inverse,),
        "logical_divide": (divides_with_a_short_rest, divides_rest_first),
        "logical_product": (repeats_by_size, repeats_without_complement),
    }.items()
    for function in functions
}
