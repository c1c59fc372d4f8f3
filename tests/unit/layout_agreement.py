"""Each operation of the algebra on random layouts, ours against the published one, and what a theorem says of both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from layout_oracle import Random, ours, published, settled, theirs

from tilewright.errors import TilewrightError
from tilewright.layout import algebra, tiling
from tilewright.layout.layout import Layout, bundle, from_flat
from tilewright.layout.tuples import index_of

Arguments = tuple[Any, ...]
Operation = Callable[..., Any]


class Verdict(Enum):
    """Of a case in which the two do not give the same layout."""

    THEIRS_WRONG = "the published one is wrong by the theorem; ours is right, or a refusal"
    THEIRS_STOPS = "the published one stops with an error; ours is right"
    BOTH_REFUSE = "neither has an answer"
    OURS_LONGER = "both are right, and ours goes further"


@dataclass
class Tally:
    """Of one operation: ``wrong`` are cases that no theorem excuses, as text."""

    layouts: int = 0
    same: int = 0
    differences: Counter[Verdict] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.layouts += other.layouts
        self.same += other.same
        self.differences += other.differences
        self.wrong += other.wrong


@dataclass(frozen=True)
class Case:
    """An operation: its arguments at random, both implementations, and whether a result is right."""

    arguments: Callable[[Random], Arguments]
    ours: Operation
    theirs: Callable[[Any], Operation]
    is_right: Callable[..., bool]


def extended(layout: Layout, index: int) -> int:
    """A's value, past its size too: as its last mode that counts goes on."""
    whole = algebra.coalesce(layout)
    return index_of(index, whole.shape, whole.stride)


def is_coalesced(layout: Layout, result: Layout) -> bool:
    return result.offsets() == layout.offsets() and result.depth <= 1


def is_filtered(layout: Layout, result: Layout) -> bool:
    return set(result.offsets()) == set(layout.offsets()) and (result == Layout(1, 0) or 0 not in _strides(result))


def is_composed(a: Layout, b: Layout, result: Layout) -> bool:
    """R(c) = A(B(c)) at every coordinate of B, so mode by mode of the top."""
    if isinstance(b.shape, tuple) and [result[i].size for i in range(result.rank)] != [
        b[i].size for i in range(b.rank)
    ]:
        return False
    return result.offsets() == [extended(a, value) for value in b.offsets()]


def is_complement(layout: Layout, cosize: int, result: Layout) -> bool:
    """(A, A*) reaches 0, 1, … each once; A* ascends; and it is the first that gets to the cosize."""
    own = [(size, step) for size, step in algebra.flat(layout) if size > 1 and step]
    span = max((size * step for size, step in own), default=1)
    assert result.size * layout.size <= 10**6, "no random case is so large"
    values, both = result.offsets(), sorted(bundle(from_flat(own), result).offsets())
    return both == list(range(-(-cosize // span) * span)) and values == sorted(set(values))


def is_right_inverse(layout: Layout, result: Layout) -> bool:
    offsets = layout.offsets()
    return [offsets[i] if i < len(offsets) else -1 for i in result.offsets()] == list(range(result.size))


def is_left_inverse(layout: Layout, result: Layout) -> bool:
    values = result.offsets()
    return [values[i] if i < len(values) else -1 for i in layout.offsets()] == list(range(layout.size))


def is_divided(a: Layout, b: Layout, result: Layout, implementation: Any = None) -> bool:
    """A ∘ (B, B*), with B* a complement that is one."""
    rest = _complement_by(implementation, b, a.size)
    return rest is not None and is_composed(a, bundle(b, rest), result)


def is_product(a: Layout, b: Layout, result: Layout, implementation: Any = None) -> bool:
    """(A, A* ∘ B), with A* a complement that is one."""
    rest = _complement_by(implementation, a, a.size * b.cosize)
    return rest is not None and settled(result[0]) == settled(a) and is_composed(rest, b, result[1])


def _complement_by(implementation: Any, layout: Layout, cosize: int) -> Layout | None:
    """The complement as the implementation under judgement has it, if it is right."""
    try:
        found = (
            algebra.complement(layout, cosize)
            if implementation is None
            else ours(implementation.complement(theirs(layout), cosize))
        )
    except (TilewrightError, AssertionError, ZeroDivisionError):
        return None
    return found if is_complement(layout, cosize, found) else None


def _by_mode(split: Callable[..., bool], operation: str, gather: Callable[[list[Layout], list[Layout]], Layout]) -> Any:
    """A divide or product by mode is right where each mode's logical one is, and they are gathered so."""

    def is_right(a: Layout, tiler: tuple[Layout, ...], result: Layout, implementation: Any = None) -> bool:
        parts, rests = [], []
        for i, tile in enumerate(tiler):
            part = (
                getattr(tiling, operation)(a[i], tile)
                if implementation is None
                else ours(getattr(implementation, operation)(theirs(a[i]), theirs(tile)))
            )
            if not split(a[i], tile, part, implementation):
                return False
            parts.append(part[0])
            rests.append(part[1])
        rests += [a[i] for i in range(len(tiler), a.rank)]
        return settled(gather(parts, rests)) == settled(result)

    return is_right


def _zipped(parts: list[Layout], rests: list[Layout]) -> Layout:
    return bundle(bundle(*parts), bundle(*rests))


def _tiled(parts: list[Layout], rests: list[Layout]) -> Layout:
    return bundle(bundle(*parts), *rests)


def _strides(layout: Layout) -> list[int]:
    return [step for _, step in algebra.flat(layout)]


def _with_tiler(r: Random) -> Arguments:
    a = r.layout()
    return a, r.inside(a.size)


def _with_tilers(r: Random) -> Arguments:
    """By mode: of a layout of several modes, a tiler for some of them."""
    a = r.layout()
    while a.rank < 2:
        a = r.layout()
    count = r.random.randint(1, a.rank)
    return a, tuple(r.inside(a[i].size) for i in range(count))


def _to_compose(r: Random) -> Arguments:
    a = r.layout()
    return a, r.layout(2) if r.random.random() < 0.3 else r.inside(a.size)


def _composed_by_mode(a: Layout, tiler: tuple[Layout, ...], result: Layout) -> bool:
    kept = all(settled(result[i]) == settled(a[i]) for i in range(len(tiler), a.rank))
    return kept and all(is_composed(a[i], tile, result[i]) for i, tile in enumerate(tiler))


def _coalesced_by_mode(layout: Layout, profile: tuple[int, ...], result: Layout) -> bool:
    return result.rank == len(profile) and all(is_coalesced(layout[i], result[i]) for i in range(layout.rank))


def _profiled(r: Random) -> Arguments:
    layout = r.layout()
    while layout.rank < 2:
        layout = r.layout()
    return layout, (1,) * layout.rank


def _translated(value: Any) -> Any:
    if isinstance(value, Layout):
        return theirs(value)
    return tuple(_translated(part) for part in value) if isinstance(value, tuple) else value


def _divide(form: str) -> Operation:
    return lambda a, b: tiling.divide(a, b, form)


def _product(form: str) -> Operation:
    return lambda a, b: tiling.product(a, b, form)


divided_zipped = _by_mode(is_divided, "logical_divide", _zipped)
OPERATIONS: dict[str, Case] = {
    "coalesce": Case(lambda r: (r.layout(),), algebra.coalesce, lambda p: p.coalesce, is_coalesced),
    "coalesce_by_mode": Case(_profiled, algebra.coalesce, lambda p: p.coalesce, _coalesced_by_mode),
    "filter": Case(lambda r: (r.layout(),), algebra.filter_zeros, lambda p: p.filter, is_filtered),
    "composition": Case(_to_compose, algebra.compose, lambda p: p.composition, is_composed),
    "composition_by_mode": Case(_with_tilers, algebra.compose, lambda p: p.composition, _composed_by_mode),
    "complement": Case(
        lambda r: ((a := r.layout()), r.random.choice((1, a.size, a.cosize, 24, 96))),
        algebra.complement, lambda p: p.complement, is_complement),
    "right_inverse": Case(lambda r: (r.layout(),), algebra.right_inverse, lambda p: p.right_inverse, is_right_inverse),
    "left_inverse": Case(lambda r: (r.layout(),), algebra.left_inverse, lambda p: p.left_inverse, is_left_inverse),
    "logical_divide": Case(_with_tiler, _divide("logical"), lambda p: p.logical_divide, is_divided),
    "zipped_divide": Case(_with_tilers, _divide("zipped"), lambda p: p.zipped_divide, divided_zipped),
    "tiled_divide": Case(
        _with_tilers, _divide("tiled"), lambda p: p.tiled_divide, _by_mode(is_divided, "logical_divide", _tiled)),
    "logical_product": Case(
        lambda r: (r.layout(3), r.inside(16)), _product("logical"), lambda p: p.logical_product, is_product),
    "zipped_product": Case(
        _with_tilers, _product("zipped"), lambda p: p.zipped_product, _by_mode(is_product, "logical_product", _zipped)),
    "tiled_product": Case(
        _with_tilers, _product("tiled"), lambda p: p.tiled_product, _by_mode(is_product, "logical_product", _tiled)),
}  # fmt: skip


def compare(operation: str, seed: int, implementation: Operation | None = None) -> Tally:
    """One random case. ``implementation`` stands in for ours."""
    case = OPERATIONS[operation]
    arguments = case.arguments(Random(random.Random(f"{operation} {seed}").getrandbits(64)))
    tally = Tally(layouts=1)
    own = _tried(implementation or case.ours, arguments, TilewrightError)
    other = _tried(
        lambda *a: ours(case.theirs(published())(*map(_translated, a))), arguments,
        (AssertionError, ZeroDivisionError, TilewrightError, IndexError),
    )  # fmt: skip
    right = own is not None and case.is_right(*arguments, own)
    name = f"{operation}{tuple(map(str, arguments))} seed {seed}: ours {own}, theirs {other}"
    if own is not None and not right:
        tally.wrong.append(f"ours is wrong: {name}")
    elif own is None and other is None:
        tally.differences[Verdict.BOTH_REFUSE] += 1
    elif own is not None and other is None:
        tally.differences[Verdict.THEIRS_STOPS] += 1
    elif own is not None and settled(own) == settled(other):
        tally.same += 1
    elif not _theirs_is_right(case, arguments, other):
        tally.differences[Verdict.THEIRS_WRONG] += 1
    elif operation == "right_inverse" and own is not None and own.size > other.size:
        tally.differences[Verdict.OURS_LONGER] += 1
    else:
        tally.wrong.append(f"theirs is right: {name}")
    return tally


def _theirs_is_right(case: Case, arguments: Arguments, other: Layout) -> bool:
    judged_by = (published(),) if case.is_right.__code__.co_argcount > len(arguments) + 1 else ()
    return case.is_right(*arguments, other, *judged_by)


def _tried(operation: Operation, arguments: Arguments, refusals: Any) -> Layout | None:
    try:
        return operation(*arguments)
    except refusals:
        return None


def run_all(count: int, seed: int, operations: Iterable[str] = tuple(OPERATIONS)) -> dict[str, Tally]:
    """``count`` random layouts for each operation."""
    found = {}
    for operation in operations:
        found[operation] = Tally()
        for i in range(count):
            found[operation].add(compare(operation, seed * 10**9 + i))
    return found
