"""Rounding that NumPy does not offer: to odd, directed, and to bfloat16.

The one idea: a result kept in float64 *rounded to odd* (inexact: the last bit is 1) still knows on which side
of every narrower boundary it lies, so that a second rounding, in any mode, is the correct one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

# An array or a NumPy scalar. Operators on the union of the two are not typed usefully by NumPy's stubs.
Values: TypeAlias = Any
Mode: TypeAlias = Literal["rn", "rz", "rm", "rp"]

F32_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
F16_NAN = np.uint16(0x7FFF).view(np.float16)
BF16_NAN = np.uint16(0x7FFF)
F32_MIN_NORMAL = np.float32(2.0**-126)

_INFINITY = {"rz": 0.0, "rm": -math.inf, "rp": math.inf}


def pick(mask: Values, yes: Values, no: Values) -> Values:
    """``np.where`` that gives a NumPy scalar for scalars."""
    result: Values = np.where(mask, yes, no)
    return result[()]


def nan_canonical(x: Values) -> Values:
    """``x`` with every NaN replaced by the GPU's: 0x7fffffff (f32), 0x7fff (float16). float64 is left alone:
    its payloads are kept (PTX ISA, "Floating Point Instructions")."""
    if x.dtype == np.float64:
        return x
    wrong = x != x
    if not wrong.any():
        return x
    return pick(wrong, F32_NAN if x.dtype == np.float32 else F16_NAN, x)


def two_sum(a: Values, b: Values) -> tuple[Values, Values]:
    """float64 ``(s, e)``: ``s = fl(a + b)``, ``s + e == a + b`` exactly, barring overflow (Knuth)."""
    s = a + b
    of_b = s - a
    return s, (a - (s - of_b)) + (b - of_b)


def two_product(a: Values, b: Values) -> tuple[Values, Values]:
    """float64 ``(p, e)`` with ``p + e == a * b`` exactly (Dekker, Veltkamp), for ``|a|, |b| < 2**996`` and a
    product that is zero or between 2**-960 and 2**1020."""
    p = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Values) -> tuple[Values, Values]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def to_odd(s: Values, error: Values) -> Values:
    """The float64 ``s`` (nearest to ``s + error``) rounded to odd instead. NaN errors count as none."""
    bits = s.view(np.int64)
    need = ((bits & 1) == 0) & ((error > 0) | (error < 0))
    if not need.any():
        return s
    return pick(need, bits + pick((error > 0) == (s > 0), np.int64(1), np.int64(-1)), bits).view(np.float64)


def step(z: Values, remainder: Values, mode: Mode) -> Values:
    """``z``, the nearest, moved to what ``mode`` asks for; only the sign of ``remainder = exact - z`` counts."""
    if mode == "rn":
        return z
    if mode == "rz":
        wrong = ((remainder < 0) & (z > 0)) | ((remainder > 0) & (z < 0))
    else:
        wrong = remainder < 0 if mode == "rm" else remainder > 0
    if not wrong.any():
        return z
    return pick(wrong, np.nextafter(z, z.dtype.type(_INFINITY[mode])), z)


def narrow(x: Values, dtype: type[np.floating[Any]], mode: Mode = "rn") -> Values:
    """float64 ``x`` (exact, or rounded to odd) to float32 or float16 in the rounding mode; NaN stays a NaN."""
    nearest = x.astype(dtype)
    if mode == "rn":
        return nearest
    back = nearest.astype(np.float64)
    # A comparison, not a difference: inf - 1e300 has the right sign, but inf - inf is a NaN.
    sign = (x > back).astype(np.int8) - (x < back).astype(np.int8)
    return step(nearest, sign, mode)


def bf16_from_f32(x: Values, mode: Mode = "rn") -> Values:
    """float32 to bfloat16 bits (uint16); every NaN becomes 0x7fff."""
    bits = x.view(np.uint32)
    if mode == "rn":
        rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    else:
        rounded = bits >> np.uint32(16)
        if mode != "rz":
            away = (bits >> np.uint32(31)) == np.uint32(1 if mode == "rm" else 0)
            rounded = rounded + (away & ((bits & np.uint32(0xFFFF)) != 0)).astype(np.uint32)
    rounded = rounded.astype(np.uint16)
    is_nan = x != x
    return pick(is_nan, BF16_NAN, rounded) if is_nan.any() else rounded


def bf16_from_f64(x: Values, mode: Mode = "rn") -> Values:
    """float64 (exact, or rounded to odd) to bfloat16 bits without double rounding."""
    toward_zero = narrow(x, np.float32, "rz")
    inexact = (toward_zero.astype(np.float64) != x).astype(np.uint32)
    return bf16_from_f32((toward_zero.view(np.uint32) | inexact).view(np.float32), mode)


def bf16_to_f32(bits: Values) -> Values:
    """bfloat16 bits (16-bit integers) to float32, exact."""
    return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def fraction_to_f64(x: Fraction, mode: Mode) -> float:
    """The float64 for a fraction that is not zero, with overflow and subnormals: the slow, sure way."""
    sign = 1.0 if x > 0 else -1.0
    try:
        z = math.copysign(x.numerator / x.denominator, sign)
    except OverflowError:
        z = sign * math.inf
    remainder = -sign if math.isinf(z) else float((x > Fraction(z)) - (x < Fraction(z)))
    toward_zero = mode == "rz" and remainder * sign < 0
    if toward_zero or (mode == "rm" and remainder < 0) or (mode == "rp" and remainder > 0):
        return math.copysign(math.nextafter(z, _INFINITY[mode]), sign)
    return z
