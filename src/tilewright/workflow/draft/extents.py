"""Extents of arrays in terms of sizes: from how far a run used them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_FACTORS = 4
MOST_RATIO = 4096
# A read may stop short of the end (a halo, a last row that is not needed), but not by much.
SLACK = 0.1


@dataclass(frozen=True)
class Shape:
    """Expressions, outermost first. ``note``: where the product is no plain product of sizes, why it was taken."""

    extents: tuple[str, ...]
    note: str = ""


def shape_of(end: int, sizes: Mapping[str, int], constants: Mapping[str, int], strides: tuple[str, ...]) -> Shape | None:
    """A product of sizes that is ``end``, with a constant of the file where it takes one, with a number as a last resort.

    Args:
        end: one beyond the furthest element that was used.
        sizes, constants: name → value in that run.
        strides: sizes that index expressions of the array multiply with: they come last.
    """
    if end <= 0:
        return Shape(("1",), "never used")
    products = list(_products(sizes))
    exact = [names for names, value in products if value == end]
    if exact:
        return Shape(_ordered(exact[0], strides))
    for factor, value in sorted(constants.items(), key=lambda c: -c[1]):
        if 1 < value <= MOST_RATIO and end % value == 0:
            found = next((names for names, product in products if product * value == end), None)
            if found is not None:
                return Shape((*_ordered(found, strides), factor))
    near = [(value, names) for names, value in products if 0 < value - end <= SLACK * value]
    if near:
        value, names = min(near, key=lambda pair: pair[0])
        return Shape(_ordered(names, strides), f"{end:,} of {value:,} elements were used")
    ratios = [(value, names) for names, value in products if end % value == 0 and 1 < end // value <= MOST_RATIO]
    if ratios:
        value, names = max(ratios)
        return Shape((*_ordered(names, strides), str(end // value)), f"the factor {end // value} is what a run used")
    return None


def _products(sizes: Mapping[str, int]) -> list[tuple[tuple[str, ...], int]]:
    """Fewest factors first; each size once before any is squared."""
    names = list(sizes)
    found: list[tuple[tuple[str, ...], int]] = []
    for count in range(1, min(MOST_FACTORS, len(names) + 1) + 1):
        for chosen in itertools.combinations_with_replacement(names, count):
            found.append((chosen, math.prod(sizes[n] for n in chosen)))
    return sorted(found, key=lambda item: (len(item[0]), len(item[0]) - len(set(item[0]))))


def _ordered(names: tuple[str, ...], strides: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: name in strides))


def strides_of(array: str, body: str, sizes: tuple[str, ...]) -> tuple[str, ...]:
    """Sizes that are multiplied with something in an index, or a bump, of an array: ``A[row * K + k]``, ``A += y * K``."""
    texts = re.findall(rf"\b{re.escape(array)}\s*(?:\[([^\];]*)\]|\+=?([^;]*);)", body)
    joined = " ".join(a or b for a, b in texts)
    return tuple(s for s in sizes if re.search(rf"\*\s*{re.escape(s)}\b|\b{re.escape(s)}\s*\*", joined))
