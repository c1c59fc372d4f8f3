"""Coalesce, filter, composition, complement and inverses. What has no layout as its answer is refused.

The rules are those of CuTe ("CuTe Layout Algebra" in the documentation of CUTLASS). Where CuTe's own conditions would
let a wrong layout pass, the condition here is the exact one; each function says which.
"""

from __future__ import annotations

from typing import TypeAlias

from tilewright.errors import TilewrightError
from tilewright.layout.layout import AnyLayout, ComposedLayout, Layout, Swizzle, bundle, flat, from_flat
from tilewright.layout.tuples import IntTuple, written

# By mode: a layout or a size for each mode, None to leave it as it is, nested as the modes nest.
Tiler: TypeAlias = "Layout | int | tuple[Tiler, ...] | None"
Profile: TypeAlias = IntTuple


def coalesce(layout: Layout, profile: Profile | None = None) -> Layout:
    """The same function of the index with as few modes as possible.

    Args:
        profile: a tuple keeps that many modes apart, and coalesces inside each; its integers mean nothing.

    Raises:
        TilewrightError: ``layout/rank``, where the profile has more modes than the layout.
    """
    if isinstance(profile, tuple):
        _check_rank(layout, len(profile), "profile")
        kept = [layout[i] for i in range(len(profile), layout.rank)]
        return bundle(*(coalesce(layout[i], part) for i, part in enumerate(profile)), *kept)
    return from_flat(_merged(flat(layout)))


def _merged(pairs: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for size, step in pairs:
        if size == 1:
            continue
        if merged and merged[-1][0] * merged[-1][1] == step:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, step))
    return merged


def filter_zeros(layout: Layout, profile: Profile | None = None) -> Layout:
    """CuTe's ``filter``: modes of stride 0 or size 1 removed, the rest coalesced. The offsets are the same set.

    Args:
        profile: as of ``coalesce``.
    """
    if isinstance(profile, tuple):
        _check_rank(layout, len(profile), "profile")
        kept = [layout[i] for i in range(len(profile), layout.rank)]
        return bundle(*(filter_zeros(layout[i], part) for i, part in enumerate(profile)), *kept)
    return from_flat(_merged(tuple((size, step) for size, step in flat(layout) if step != 0)))


def composition(a: AnyLayout | Swizzle, b: Tiler) -> AnyLayout:
    """A ∘ B: a layout R of B's shape with R(c) = A(B(c)) for every coordinate c of B.

    Args:
        a: read past its size as its last mode (modes of size 1 at the end apart) continues; so B may be larger than A.
            Of a swizzle, the result is ``Sw o 0 o B``.
        b: a layout or a size; a tuple composes by mode, None leaves a mode as it is.

    Raises:
        TilewrightError: ``layout/stride_divisibility``, ``layout/shape_divisibility``: a mode of B crosses a mode of A
            at an uneven place. ``layout/carries``: two modes of B add up to more than one mode of A holds, so that
            A(x + y) is not A(x) + A(y); CuTe does not look for that, and gives another function.
    """
    if isinstance(a, Swizzle):
        if not isinstance(b, Layout):
            raise TilewrightError("layout/rank", f"The swizzle {a} has no modes to compose by: give one layout.")
        return ComposedLayout(a, 0, b)
    if isinstance(a, ComposedLayout):
        return ComposedLayout(a.swizzle, a.offset, compose(a.layout, b))
    return compose(a, b)


def compose(a: Layout, b: Tiler) -> Layout:
    """``composition`` of plain layouts."""
    if b is None:
        return a
    if isinstance(b, tuple):
        _check_rank(a, len(b), "tiler")
        kept = [a[i] for i in range(len(b), a.rank)]
        return bundle(*(compose(a[i], part) for i, part in enumerate(b)), *kept)
    inner = Layout(b, 1) if isinstance(b, int) else b
    digits = _merged(flat(a)) or [(1, 0)]
    room = [size - 1 for size, _ in digits[:-1]]
    return _composed(digits, inner, room, f"{a} o {inner}")


def _composed(digits: list[tuple[int, int]], b: Layout, room: list[int], what: str) -> Layout:
    if isinstance(b.shape, tuple):
        return bundle(*(_composed(digits, b[i], room, what) for i in range(b.rank)))
    size, step = flat(b)[0]
    return from_flat(_along(digits, size, step, room, what)) if size > 1 else Layout(1, 0)


def _along(digits: list[tuple[int, int]], size: int, step: int, room: list[int], what: str) -> list[tuple[int, int]]:
    """One mode of B, as modes through A's digits (mixed radix). ``room`` is what the digits still can take up.

    A sum of B's modes has A's value of the sum exactly when no digit overflows: A is coalesced, so that a carry always
    changes the value. Hence the check is neither too strict nor too weak.
    """
    found: list[tuple[int, int]] = []
    for i, (radix, stride) in enumerate(digits[:-1]):
        if size == 1:
            break
        if (size - 1) * step < radix:  # all of it inside this digit
            _take(room, i, (size - 1) * step, what)
            return [*found, (size, step * stride)]
        if step % radix == 0:
            step //= radix
            continue
        if radix % step:
            raise TilewrightError(
                "layout/stride_divisibility",
                f"{what}: a mode of stride {step} meets a mode of size {radix}, and neither divides the other.",
            )
        here = radix // step
        if size % here:
            raise TilewrightError(
                "layout/shape_divisibility",
                f"{what}: a mode of size {size} meets {here} places of a mode of size {radix}, which do not divide it.",
            )
        _take(room, i, (here - 1) * step, what)
        found.append((here, step * stride))
        size, step = size // here, 1
    if size > 1:
        found.append((size, step * digits[-1][1]))
    return found


def _take(room: list[int], digit: int, most: int, what: str) -> None:
    room[digit] -= most
    if room[digit] < 0:
        raise TilewrightError(
            "layout/carries",
            f"{what}: modes of the right side add up to more than a mode of the left side holds, so no layout has that "
            "function.",
        )


def complement(layout: Layout, cosize: int = 1) -> Layout:
    """What is missing: A* such that (A, A*) reaches each of 0, 1, … once, and A* ascends.

    Args:
        layout: modes of stride 0 count as size 1.
        cosize: how far to go; the result is the first that gets there, so it may go beyond.

    Raises:
        TilewrightError: ``layout/no_complement``, where two coordinates share an offset or where a gap is no multiple
            of what lies before it. CuTe checks less, and gives layouts that leave gaps or have modes of size 0.
    """
    if cosize < 1:
        raise TilewrightError("layout/no_complement", f"A complement needs a size of 1 or more, not {cosize}.")
    missing, reached = [], 1
    for step, size in sorted((step, size) for size, step in flat(layout) if size > 1 and step):
        if step % reached:
            raise TilewrightError(
                "layout/no_complement",
                f"{layout} has no complement: its mode {size}:{step} does not start at a multiple of {reached}, where "
                "the modes of smaller stride end.",
            )
        missing.append((step // reached, reached))
        reached = size * step
    missing.append((-(-cosize // reached), reached))
    return from_flat(_merged(tuple(missing)))


def right_inverse(layout: Layout) -> Layout:
    """R with A(R(i)) = i for all i below its size, as far as A's modes go on without a gap from 0.

    Modes of stride 0, and those that repeat offsets already there, are passed over: where modes overlap, R is a right
    inverse, but there may be a longer one.
    """
    found, reached, places = [], 1, []
    passed = 1
    for size, step in flat(layout):
        places.append((step, size, passed))
        passed *= size
    for step, size, place in sorted(places):
        if size == 1 or step < reached:
            continue
        if step > reached:
            break
        found.append((size, place))
        reached = size * step
    return from_flat(_merged(tuple(found)))


def left_inverse(layout: Layout) -> Layout:
    """L with L(A(c)) = c for every index c of A.

    Raises:
        TilewrightError: ``layout/not_injective``, where two indices share an offset; ``layout/no_complement``, where
            the gaps between the offsets are uneven.
    """
    if any(size > 1 and step == 0 for size, step in flat(layout)):
        raise TilewrightError("layout/not_injective", f"{layout} has a mode of stride 0, so no left inverse.")
    return right_inverse(bundle(layout, complement(layout)))


def _check_rank(layout: Layout, needed: int, what: str) -> None:
    if needed > layout.rank:
        raise TilewrightError(
            "layout/rank",
            f"The {what} has {needed} modes; the shape {written(layout.shape)} has {layout.rank}.",
        )
