"""Integers of all threads of a block at once, computed as C++ does: what ``constants`` is for one value.

An array holds one number a thread; what overflows a signed type, divides by zero or shifts too far has no value, for
none of the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.source.c_types import IntKind, common
from tilewright.source.constants import INT

Numbers = NDArray[np.int64]
_SAFE = float(1 << 62)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


@dataclass(frozen=True)
class Lanes:
    """One integer a thread, and its type."""

    numbers: Numbers
    kind: IntKind


@dataclass(frozen=True)
class Spot:
    """An address inside a shared array, one byte offset a thread; ``step``: bytes of what the pointer points to."""

    array: int
    offsets: Numbers
    step: int | None


def wrapped(numbers: Numbers, kind: IntKind) -> Numbers | None:
    """The numbers as the type holds them; None where that does not fit what is computed with here."""
    if kind.bits >= 64:
        # Numbers of 64 bits stay far from their ends here, or they have no value; a negative one wraps to such an end.
        return None if kind.unsigned and bool((numbers < 0).any()) else numbers
    if kind.bits == 1:
        truth: Numbers = (numbers != 0).astype(np.int64)
        return truth
    low: Numbers = numbers & np.int64((1 << kind.bits) - 1)
    if kind.unsigned:
        return low
    signed: Numbers = low - ((low >> np.int64(kind.bits - 1)) << np.int64(kind.bits))
    return signed


def fitted(numbers: Numbers, kind: IntKind) -> Lanes | None:
    """The result of arithmetic: unsigned types wrap, signed ones must not overflow."""
    held = wrapped(numbers, kind)
    if held is None or (not kind.unsigned and not np.array_equal(held, numbers)):
        return None
    return Lanes(held, kind)


def converted(value: Lanes, kind: IntKind) -> Lanes | None:
    held = wrapped(value.numbers, kind)
    return None if held is None else Lanes(held, kind)


def binary(op: str, left: Lanes, right: Lanes) -> Lanes | None:
    if op in ("<<", ">>"):
        kind = left.kind.promoted()
        if bool(((right.numbers < 0) | (right.numbers >= min(kind.bits, 62))).any()):
            return None
        if op == ">>":
            return fitted(left.numbers >> right.numbers, kind)
        if float(np.abs(left.numbers).max(initial=0)) * 2.0 ** float(right.numbers.max(initial=0)) >= _SAFE:
            return None
        return fitted(left.numbers << right.numbers, kind)
    if op in ("&&", "||"):
        one, two = left.numbers != 0, right.numbers != 0
        return Lanes((one & two if op == "&&" else one | two).astype(np.int64), INT)
    kind = common(left.kind, right.kind)
    a, b = wrapped(left.numbers, kind), wrapped(right.numbers, kind)
    if a is None or b is None:
        return None
    if op in _COMPARE:
        return Lanes(_COMPARE[op](a, b).astype(np.int64), INT)
    return _arithmetic(op, a, b, kind)


def _arithmetic(op: str, a: Numbers, b: Numbers, kind: IntKind) -> Lanes | None:
    large, small = float(np.abs(a).max(initial=0)), float(np.abs(b).max(initial=0))
    match op:
        case "+" | "-":
            if large + small >= _SAFE:
                return None
            return fitted(a + b if op == "+" else a - b, kind)
        case "*":
            return None if large * small >= _SAFE else fitted(a * b, kind)
        case "/" | "%":
            if bool((b == 0).any()):
                return None
            quotient = np.abs(a) // np.abs(b) * np.where((a < 0) == (b < 0), 1, -1)  # towards zero
            return fitted(quotient if op == "/" else a - b * quotient, kind)
        case "&":
            return fitted(a & b, kind)
        case "|":
            return fitted(a | b, kind)
        case "^":
            return fitted(a ^ b, kind)
    return None


def unary(op: str, value: Lanes) -> Lanes | None:
    kind = value.kind.promoted()
    match op:
        case "-":
            return fitted(-value.numbers, kind)
        case "+":
            return Lanes(value.numbers, kind)
        case "!":
            return Lanes((value.numbers == 0).astype(np.int64), INT)
        case "~":
            return fitted(~value.numbers, kind) if not kind.unsigned or kind.bits < 64 else None
    return None
