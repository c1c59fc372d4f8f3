"""add, sub, mul, fma, div, rcp, sqrt of f32 and f64 in the four rounding modes (PTX ISA, "Floating Point
Instructions"), and the sign instructions abs, neg, copysign.

Operands are float32 or float64 arrays or NumPy scalars, all of one dtype; so is the result. Options:
``mode`` "rn" (default), "rz", "rm", "rp"; ``ftz`` flushes subnormal float32 operands and results to a zero of the
same sign (as an H200 does, judged of the result rounded to 24 bits, whatever its exponent: what rounds up to 2**-126
only for want of bits is flushed too); ``sat`` clamps to [+0, 1], NaN to +0. Every float32 NaN that is computed is
0x7fffffff; float64 keeps the payload the host gives. Callers hold ``np.errstate(all="ignore")``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from tilewright.emulator.arithmetic.rounding import (
    F32_MIN_NORMAL,
    Mode,
    Values,
    fraction_to_f64,
    nan_canonical,
    narrow,
    pick,
    step,
    to_odd,
    two_product,
    two_sum,
)

# A float64 is a tie between two float32 when its low 29 bits are these.
_LOW_BITS = np.int64(0x1FFFFFFF)
_TIE = np.int64(0x10000000)
_F32_TINY = 2.0**-126
_SCALE = 2.0**64
_SPLIT_MAX = 2.0**990
_PRODUCT_MIN, _PRODUCT_MAX = 2.0**-960, 2.0**1020


def flush(x: Values) -> Values:
    """``.ftz``: subnormal float32 to a zero of the same sign; other dtypes are returned as they are."""
    if x.dtype != np.float32:
        return x
    small = np.abs(x) < F32_MIN_NORMAL
    return pick(small, np.copysign(np.float32(0), x), x) if small.any() else x


def _flush_tiny(result: Values, exact: Callable[[], Values], mode: Mode) -> Values:
    """``.ftz`` of float32 results that are the smallest normal number, but not when rounded to all of 24 bits.

    Args:
        exact: gives the result in float64, exact or rounded to odd.
    """
    if result.dtype != np.float32:
        return result
    smallest = np.abs(result) == F32_MIN_NORMAL
    if not smallest.any():
        return result
    rounded = narrow(exact() * _SCALE, np.float32, mode)  # normal, where it matters
    return pick(
        smallest & (np.abs(rounded) < np.float32(_F32_TINY * _SCALE)), np.copysign(np.float32(0), result), result
    )


def saturate(x: Values) -> Values:
    """``.sat``: clamped to [+0, 1]; NaN and -0 become +0."""
    one = x.dtype.type(1)
    return pick(x > 0, np.minimum(x, one), x.dtype.type(0))


def _finish(result: Values, ftz: bool, sat: bool) -> Values:
    result = nan_canonical(result)
    if ftz:
        result = flush(result)
    return saturate(result) if sat else result


def add(a: Values, b: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False) -> Values:
    """``a + b``."""
    if ftz:
        a, b = flush(a), flush(b)
    if mode == "rn":
        result = a + b
    elif a.dtype == np.float32:
        result = narrow(_exact_sum(a.astype(np.float64), b.astype(np.float64), mode), np.float32, mode)
    else:
        total, error = two_sum(a, b)
        huge = (np.abs(total) >= _PRODUCT_MAX) & np.isfinite(a) & np.isfinite(b)
        result = _repair(_minus_zero(step(total, error, mode), a, b, mode), huge, _fraction_add, (a, b), mode)
    return _finish(result, ftz, sat)


def sub(a: Values, b: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False) -> Values:
    """``a - b``."""
    if mode == "rn":
        if ftz:
            a, b = flush(a), flush(b)
        return _finish(a - b, ftz, sat)
    return add(a, -b, mode, ftz, sat)


def mul(a: Values, b: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False) -> Values:
    """``a * b``."""
    if ftz:
        a, b = flush(a), flush(b)
    if mode == "rn":
        result = a * b
    elif a.dtype == np.float32:
        result = narrow(a.astype(np.float64) * b.astype(np.float64), np.float32, mode)
    else:
        product, error = two_product(a, b)
        result = _repair(step(product, error, mode), _extreme(a, b, product), _fraction_mul, (a, b), mode)
    if ftz:
        result = _flush_tiny(result, lambda: a.astype(np.float64) * b.astype(np.float64), mode)
    return _finish(result, ftz, sat)


def fma(a: Values, b: Values, c: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False) -> Values:
    """``a * b + c`` with one rounding. Also ``mad.f32``/``mad.f64``, which are fma on every target of today."""
    if ftz:
        a, b, c = flush(a), flush(b), flush(c)
    if a.dtype == np.float64:
        result = _fma_f64(a, b, c, mode)
    elif mode == "rn":
        result = _fma_f32_nearest(a, b, c)
    else:
        product = a.astype(np.float64) * b.astype(np.float64)
        result = narrow(_exact_sum(product, c.astype(np.float64), mode), np.float32, mode)
    if ftz:
        result = _flush_tiny(
            result, lambda: to_odd(*two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))), mode
        )
    return _finish(result, ftz, sat)


def div(a: Values, b: Values, mode: Mode = "rn", ftz: bool = False) -> Values:
    """``a / b``, IEEE (``div.rn`` and the like). For .approx and .full see :mod:`.approx`."""
    if ftz:
        a, b = flush(a), flush(b)
    if mode == "rn":
        result = a / b
    elif a.dtype == np.float32:
        # A quotient of 24-bit numbers is at least 2**-49 (relative) away from a boundary that it does not hit.
        result = narrow(a.astype(np.float64) / b.astype(np.float64), np.float32, mode)
    else:
        quotient = a / b
        product, error = two_product(quotient, b)
        remainder = ((a - product) - error) * np.sign(b)
        extreme = _extreme(quotient, b, a) | ((quotient == 0) & (a != 0) & np.isfinite(b))
        extreme = (extreme | np.isinf(quotient)) & np.isfinite(a) & np.isfinite(b) & (b != 0) & (a != 0)
        result = _repair(step(quotient, remainder, mode), extreme, _fraction_div, (a, b), mode)
    if ftz:
        result = _flush_tiny(result, lambda: a.astype(np.float64) / b.astype(np.float64), mode)
    return _finish(result, ftz, False)


def rcp(a: Values, mode: Mode = "rn", ftz: bool = False) -> Values:
    """``1 / a``, IEEE."""
    return div(a.dtype.type(1), a, mode, ftz)


def sqrt(a: Values, mode: Mode = "rn", ftz: bool = False) -> Values:
    """The square root, IEEE: -0 stays -0, below zero is a NaN."""
    if ftz:
        a = flush(a)
    if mode == "rn":
        result = np.sqrt(a)
    elif a.dtype == np.float32:
        result = narrow(np.sqrt(a.astype(np.float64)), np.float32, mode)
    else:
        root = np.sqrt(a)
        # Powers of two bring the square to where its error term is exact.
        up = pick(a < _PRODUCT_MIN, 2.0**200, pick(a >= 2.0**900, 2.0**-200, 1.0))
        square, error = two_product(root * up, root * up)
        result = step(root, (a * up * up - square) - error, mode)
    return _finish(result, ftz, False)


def absolute(a: Values, ftz: bool = False) -> Values:
    """``abs``: the sign bit cleared; a NaN keeps its payload."""
    return np.abs(flush(a) if ftz else a)


def negate(a: Values, ftz: bool = False) -> Values:
    """``neg``: the sign bit flipped; a NaN keeps its payload."""
    return np.negative(flush(a) if ftz else a)


def copysign(a: Values, b: Values) -> Values:
    """``copysign d, a, b``: the sign of ``a`` on the value of ``b`` (PTX's order, not C's)."""
    return np.copysign(b, a)


def f32x2(function: Callable[..., Values], *operands: Values, mode: Mode = "rn", ftz: bool = False) -> Values:
    """``add/sub/mul/fma.f32x2``: ``function`` on both halves of 64-bit operands; the result is int64."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
    pairs = [np.broadcast_to(x, shape or (1,)).copy().view(np.float32) for x in operands]
    packed = function(*pairs, mode=mode, ftz=ftz).view(np.int64)
    return packed if shape else packed[0]


def _exact_sum(a: Values, b: Values, mode: Mode) -> Values:
    total, error = two_sum(a, b)
    return _minus_zero(to_odd(total, error), a, b, mode)


def _minus_zero(total: Values, a: Values, b: Values, mode: Mode) -> Values:
    """Rounding down, a sum that cancels exactly is -0."""
    if mode != "rm":
        return total
    return pick((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, total)


def _fma_f32_nearest(a: Values, b: Values, c: Values) -> Values:
    # Casts apart from the arithmetic: NumPy's casting inner loops are slower, with scalars by far.
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: 48 bits
    total = product + c.astype(np.float64)
    result = total.astype(np.float32)
    # The second rounding only errs on a tie of the first one, and where float32 has fewer bits than 24.
    hazard = (total.view(np.int64) & _LOW_BITS) == _TIE
    small = np.abs(result) <= F32_MIN_NORMAL
    if small.any():
        hazard = hazard | (small & (total != 0))
    if not hazard.any():
        return result
    if np.ndim(total) == 0:
        return to_odd(*two_sum(product, c.astype(np.float64))).astype(np.float32)
    where = np.flatnonzero(hazard)
    some_product, some_c = (np.broadcast_to(x, total.shape)[where].astype(np.float64) for x in (product, c))
    result[where] = to_odd(*two_sum(some_product, some_c)).astype(np.float32)
    return result


def _fma_f64(a: Values, b: Values, c: Values, mode: Mode) -> Values:
    product, low = two_product(a, b)
    # Boldo and Melquiond: the small parts are summed to odd, so that the last addition rounds correctly.
    high_u, low_u = two_sum(c, low)
    high, low_t = two_sum(product, high_u)
    tail, tail_error = two_sum(low_t, low_u)
    odd = to_odd(tail, tail_error)
    result, remainder = two_sum(high, odd)
    # Where the tail is inexact it is far below the high part, and this sum is inexact too: no second remainder.
    result = step(result, remainder, mode)
    # An exact zero: its sign is that of product and addend, which the error terms have lost.
    zero = (result == 0) & (product + c == 0)
    if zero.any():
        result = pick(zero, _minus_zero(product + c, product, c, mode), result)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    # Splitting a huge operand overflows even when the other one is zero.
    huge = (np.abs(a) >= _SPLIT_MAX) | (np.abs(b) >= _SPLIT_MAX) | (np.abs(c) >= _PRODUCT_MAX)
    extreme = finite & (_extreme(a, b, product) | huge)
    if not finite.all():
        plain = pick(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c)
        result = pick(finite, result, plain)
    return _repair(result, extreme, _fraction_fma, (a, b, c), mode)


def _extreme(a: Values, b: Values, product: Values) -> Values:
    """Where the error-free transforms do not hold, among finite operands that are not zero."""
    size = np.abs(product)
    outside = (size < _PRODUCT_MIN) | (size >= _PRODUCT_MAX) | (np.abs(a) >= _SPLIT_MAX) | (np.abs(b) >= _SPLIT_MAX)
    return outside & np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)


def _repair(
    result: Values,
    where: Values,
    exact: Callable[..., float],
    operands: tuple[Values, ...],
    mode: Mode,
) -> Values:
    """Recomputes the elements ``where`` one by one with fractions: extreme exponents only."""
    if not where.any():
        return result
    shape = np.shape(result)
    fixed = np.array(result).reshape(-1)
    flat = [np.broadcast_to(x, shape).reshape(-1) for x in operands]
    for index in np.flatnonzero(where):
        fixed[index] = exact(*(float(x[index]) for x in flat), mode=mode)
    return fixed.reshape(shape)[()]


def _fraction_fma(a: float, b: float, c: float, mode: Mode) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return fraction_to_f64(exact, mode)
    negative = np.signbit(a) ^ np.signbit(b)
    if negative == np.signbit(c):
        return -0.0 if negative else 0.0
    return -0.0 if mode == "rm" else 0.0


def _fraction_add(a: float, b: float, mode: Mode) -> float:
    return _fraction_fma(a, 1.0, b, mode)


def _fraction_mul(a: float, b: float, mode: Mode) -> float:
    return fraction_to_f64(Fraction(a) * Fraction(b), mode)


def _fraction_div(a: float, b: float, mode: Mode) -> float:
    return fraction_to_f64(Fraction(a) / Fraction(b), mode)
