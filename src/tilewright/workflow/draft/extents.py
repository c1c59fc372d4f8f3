"""Extents of arrays in terms of sizes: from how far a run used them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.workflow.draft.sizes import BATCH

MOST_FACTORS = 4
MOST_RATIO = 4096
# A read may stop short of the end (a halo, a last row that is not needed), but not by much.
SLACK = 0.1


@dataclass(frozen=True)
class Shape:
    """Expressions, outermost first. ``note``: where the product is no plain product of sizes, why it was taken."""

    extents: tuple[str, ...]
    note: str = ""


def shape_of(
    ends: Sequence[tuple[int, Mapping[str, int]]], constants: Mapping[str, int], strides: tuple[str, ...]
) -> Shape | None:
    """A product of sizes that every run ended at; with a constant of the file, or a number, where it takes one.

    Args:
        ends: of each run, one beyond the furthest element that was used, and the sizes.
        constants: of the file. strides: sizes that index expressions of the array multiply with: they come last.
    """
    if ends[0][0] <= 0:
        return Shape(("1",), "never used")
    factors = list(_factors(tuple(ends[0][1])))
    values = {names: [math.prod(sizes[n] for n in names) for _, sizes in ends] for names in factors}
    used = [end for end, _ in ends]
    exact = [names for names in factors if values[names] == used]
    if exact:
        return Shape(_ordered(exact[0], strides))
    for factor, value in sorted(constants.items(), key=lambda c: -c[1]):
        if 1 < value <= MOST_RATIO and all(end % value == 0 for end in used):
            rest = [end // value for end in used]
            found = [() if rest == [1] * len(used) else None, *(n for n in factors if values[n] == rest)]
            names = next((n for n in found if n is not None), None)
            if names is not None:
                return Shape((*_ordered(names, strides), factor))
    near = [n for n in factors if all(0 <= v - e <= SLACK * v for v, e in zip(values[n], used, strict=True))]
    if near:
        names = min(near, key=lambda n: values[n])
        return Shape(_ordered(names, strides), f"{used[0]:,} of {values[names][0]:,} elements were used")
    return _with_number(values, used, strides)


def _with_number(
    values: Mapping[tuple[str, ...], Sequence[int]], used: Sequence[int], strides: tuple[str, ...]
) -> Shape | None:
    """The largest product that every end is the same multiple of."""
    ratios: list[tuple[int, tuple[str, ...]]] = []
    for names, products in values.items():
        ratio = used[0] // products[0] if products[0] else 0
        if 1 < ratio <= MOST_RATIO and [p * ratio for p in products] == list(used):
            ratios.append((products[0], names))
    if not ratios:
        return None
    value, names = max(ratios)
    number = str(used[0] // value)
    return Shape((*_ordered(names, strides), number), f"the factor {number} is what the runs used")


def _factors(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Combinations of sizes: fewest first; each size once before any is squared."""
    found = [
        chosen
        for count in range(1, min(MOST_FACTORS, len(names) + 1) + 1)
        for chosen in itertools.combinations_with_replacement(names, count)
    ]
    return sorted(found, key=lambda chosen: (len(chosen), len(chosen) - len(set(chosen))))


def _ordered(names: tuple[str, ...], strides: tuple[str, ...]) -> tuple[str, ...]:
    """Batches outermost, what rows are multiplied with innermost."""
    return tuple(sorted(names, key=lambda name: (name in strides, not BATCH.fullmatch(name))))


def strides_of(array: str, body: str, sizes: tuple[str, ...]) -> tuple[str, ...]:
    """Sizes that an index, or a bump, of an array multiplies with: ``A[row * K + k]``, ``A += y * K``.

    A local that the index names stands for what it is declared as.
    """
    texts = re.findall(rf"\b{re.escape(array)}\s*(?:\[([^\];]*)\]|\+=?([^;]*);)", body)
    joined = " ".join(a or b for a, b in texts)
    for _ in range(2):
        named = dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b", joined))
        held = [re.search(rf"\b{name}\s*=\s*([^;=]*);", body) for name in named if name not in sizes]
        joined = " ".join([joined, *(h[1] for h in held if h is not None and h[1] not in joined)])
    return tuple(s for s in sizes if re.search(rf"\*\s*{re.escape(s)}\b|\b{re.escape(s)}\s*\*", joined))
