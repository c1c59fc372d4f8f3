"""Which memory accesses of one thread the assembler makes into one: PTX is not machine code.

Counting the scalar accesses of PTX one by one would count four times the requests of a ``float4`` that the compiler
has taken apart. The rule is narrow on purpose: where it is not plain that two accesses merge, they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

WIDEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Step:
    """What one instruction of a basic block does to memory.

    Attributes:
        kind: ``load``, ``store``; ``fence`` for whatever nothing moves across (barriers, atomics, calls, asynchronous
            copies, volatile accesses); ``other`` for the rest.
        space: ``global``, ``shared``, ``generic``, …. base: register or symbol of the address.
        offset: constant, in bytes. size_bytes: of the access, all elements of a vector together.
        base_alignment: power of two that all of the base's values are multiples of; 1 where it is not known.
        guard: the predicate with its sign, or empty.
        defines: registers that the instruction writes.
    """

    kind: Literal["load", "store", "fence", "other"]
    space: str = ""
    base: str = ""
    offset: int = 0
    size_bytes: int = 0
    base_alignment: int = 1
    guard: str = ""
    defines: tuple[str, ...] = ()


def merge(block: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Groups of accesses that become one, as indices into ``block``, by their offsets; single accesses are groups too.

    Accesses merge if they are of one kind, space, base, guard and size, tile an aligned range of up to 16 bytes, and
    nothing stands between them that could see or make a difference: a fence, a change of the base or of the guard; a
    store to the space between loads; another access to it, elsewhere, between stores. Generic addresses may be any
    space.
    """
    groups: list[tuple[int, ...]] = []
    for family in _families(block):
        groups.extend(_tile(family, block))
    return tuple(sorted(groups, key=min))


def _families(block: Sequence[Step]) -> Iterator[list[int]]:
    """Accesses that nothing separates, of one base, size and so on."""
    still_open: dict[tuple[str, str, str, str, int], list[int]] = {}
    for position, step in enumerate(block):
        key = (step.kind, step.space, step.base, step.guard, step.size_bytes)
        for other in [other for other in still_open if other != key and _separates(step, other)]:
            yield still_open.pop(other)
        if step.kind in ("load", "store"):
            still_open.setdefault(key, []).append(position)
        for other in [other for other in still_open if _changes(step, other)]:
            yield still_open.pop(other)
    yield from still_open.values()


def _separates(step: Step, key: tuple[str, str, str, str, int]) -> bool:
    """Nothing of the family ``key`` moves across ``step``."""
    kind, space = key[:2]
    if step.kind == "fence":
        return True
    may_meet = step.space == space or "generic" in (step.space, space)
    return may_meet and (step.kind == "store" or (step.kind == "load" and kind == "store"))


def _changes(step: Step, key: tuple[str, str, str, str, int]) -> bool:
    return key[2] in step.defines or (bool(key[3]) and key[3].lstrip("!@") in step.defines)


def _tile(family: list[int], block: Sequence[Step]) -> Iterator[tuple[int, ...]]:
    """The widest aligned powers of two that the family's accesses tile without gap or repetition."""
    by_offset: dict[int, int] = {}
    for position in family:
        if block[position].offset in by_offset:
            yield (position,)  # the same bytes again: which one survives is not for us to say
        else:
            by_offset[block[position].offset] = position
    size = block[family[0]].size_bytes
    alignment = min(block[position].base_alignment for position in family)
    left = sorted(by_offset)
    while left:
        start = left[0]
        width = WIDEST_BYTES
        while width > size and not (
            width <= alignment and start % width == 0 and all(o in by_offset for o in range(start, start + width, size))
        ):
            width //= 2
        members = range(start, start + max(width, size), size) if size else (start,)
        yield tuple(by_offset.pop(offset) for offset in members)
        left = sorted(by_offset)
