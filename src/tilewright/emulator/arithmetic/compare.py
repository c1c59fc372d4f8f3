"""Comparisons, selections, minima and maxima (PTX ISA, "Comparison and Selection Instructions", min, max, testp).

Floats here are float32, float64 and float16; bfloat16 and packed halves have their own functions in :mod:`.halves`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.emulator.arithmetic.floats import flush
from tilewright.emulator.arithmetic.integers import unsigned
from tilewright.emulator.arithmetic.rounding import Values, nan_canonical, pick

TestOp: TypeAlias = Literal["finite", "infinite", "number", "notanumber", "normal", "subnormal"]

# Ordered comparisons are false with a NaN, unordered ones (…u) are true.
COMPARISONS: MappingProxyType[str, Callable[[Values, Values], Values]] = MappingProxyType(
    {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: (a < b) | (a > b),
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "lo": lambda a, b: unsigned(a) < unsigned(b),
        "ls": lambda a, b: unsigned(a) <= unsigned(b),
        "hi": lambda a, b: unsigned(a) > unsigned(b),
        "hs": lambda a, b: unsigned(a) >= unsigned(b),
        "equ": lambda a, b: ~((a < b) | (a > b)),
        "neu": lambda a, b: a != b,
        "ltu": lambda a, b: ~(a >= b),
        "leu": lambda a, b: ~(a > b),
        "gtu": lambda a, b: ~(a <= b),
        "geu": lambda a, b: ~(a < b),
        "num": lambda a, b: (a == a) & (b == b),
        "nan": lambda a, b: (a != a) | (b != b),
    }
)


def compare(op: str, a: Values, b: Values, ftz: bool = False) -> Values:
    """``setp.op`` without the combination with a predicate: bool. ``op``: a key of :data:`COMPARISONS`."""
    if ftz:
        a, b = flush(a), flush(b)
    if op == "ne" and a.dtype.kind != "f":
        return a != b
    return COMPARISONS[op](a, b)


def set_value(condition: Values, dtype: type[np.generic[Any]]) -> Values:
    """``set``: what a true or false result is written as: 1.0 for floats, all ones for integers, else 0."""
    true = dtype(1.0) if issubclass(dtype, np.floating) else np.int32(-1).astype(dtype)
    return pick(condition, true, dtype(0))


def slct(a: Values, b: Values, c: Values, ftz: bool = False) -> Values:
    """``slct``: ``a`` where ``c >= 0`` (-0 included, a NaN not), else ``b``; ``c`` is int32 or float32."""
    return pick((flush(c) if ftz else c) >= 0, a, b)


def testp(op: TestOp, a: Values) -> Values:
    """``testp.op``: bool; zeros count as normal."""
    size = np.abs(a)
    smallest = np.finfo(a.dtype).tiny
    tests: dict[str, Callable[[], Values]] = {
        "finite": lambda: np.isfinite(a),
        "infinite": lambda: np.isinf(a),
        "number": lambda: a == a,
        "notanumber": lambda: a != a,
        "normal": lambda: np.isfinite(a) & ((size >= smallest) | (size == 0)),
        "subnormal": lambda: (size < smallest) & (size > 0),
    }
    return tests[op]()


def minimum(
    *operands: Values, ftz: bool = False, nan: bool = False, xorsign: bool = False, absolute: bool = False
) -> Values:
    """``min{.ftz}{.NaN}{.xorsign}{.abs}`` of floats; two operands, or three (PTX 8.8). -0 < +0.

    A NaN operand loses against a number, unless ``nan``: then the result is the canonical NaN. ``xorsign`` (always with
    ``.abs``) gives the result the product's sign.
    """
    return _extremum(np.minimum, operands, False, ftz, nan, xorsign, absolute)


def maximum(
    *operands: Values, ftz: bool = False, nan: bool = False, xorsign: bool = False, absolute: bool = False
) -> Values:
    """``max``, as :func:`minimum`."""
    return _extremum(np.maximum, operands, True, ftz, nan, xorsign, absolute)


def _extremum(
    function: Callable[[Values, Values], Values],
    operands: tuple[Values, ...],
    largest: bool,
    ftz: bool,
    nan: bool,
    xorsign: bool,
    absolute: bool,
) -> Values:
    values = [flush(x) for x in operands] if ftz else list(operands)
    negative = np.signbit(values[0]) ^ np.signbit(values[1]) if xorsign else np.False_
    if absolute or xorsign:
        values = [np.abs(x) for x in values]
    result = values[0]
    for value in values[1:]:
        result = _extremum_of_two(function, result, value, largest, nan)
    if xorsign:
        result = pick(negative & (result == result), -result, result)
    return nan_canonical(result)


def _extremum_of_two(
    function: Callable[[Values, Values], Values], a: Values, b: Values, largest: bool, nan: bool
) -> Values:
    result = function(a, b)  # carries NaN on
    # Equal operands differ at most in the sign of zero, which NumPy does not order.
    zeros = (a == 0) & (b == 0)
    if zeros.any():
        minus = np.signbit(a) & np.signbit(b) if largest else np.signbit(a) | np.signbit(b)
        result = pick(zeros, pick(minus, a.dtype.type(-0.0), a.dtype.type(0.0)), result)
    unordered = result != result
    if not nan and unordered.any():
        result = pick(unordered, pick(a == a, a, b), result)
    return result
