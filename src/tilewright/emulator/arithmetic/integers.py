"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Arithmetic").

Operands are arrays or NumPy scalars of the instruction's type (``s32`` int32, ``u16`` uint16, …), all of one dtype
unless said otherwise; the result has that dtype and wraps around. Packed ``s16x2``/``u16x2`` operands are 32-bit
integers. Carries are bool. Plain wrap-around add, sub, mul.lo need no function here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.arithmetic.rounding import Values, pick

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_WIDER = {"i1": np.int16, "u1": np.uint16, "i2": np.int32, "u2": np.uint32, "i4": np.int64, "u4": np.uint64}


def unsigned(x: Values) -> Values:
    """The bits of ``x`` as the unsigned type of its width."""
    return x.view(_UNSIGNED[x.dtype.itemsize])


def mul_wide(a: Values, b: Values) -> Values:
    """``mul.wide``: the whole product, twice as wide (16- and 32-bit operands)."""
    wide = _WIDER[a.dtype.str[1:]]
    return np.multiply(a, b, dtype=wide)


def mul_hi(a: Values, b: Values) -> Values:
    """``mul.hi``: the upper half of the product (16, 32, 64 bits, signed or unsigned)."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = mul_wide(a, b)
        return (wide >> wide.dtype.type(bits)).astype(a.dtype)
    high = _mul_hi_u64(unsigned(a), unsigned(b))
    if a.dtype.kind == "u":
        return high
    return high.view(np.int64) - pick(a < 0, b, np.int64(0)) - pick(b < 0, a, np.int64(0))


def _mul_hi_u64(a: Values, b: Values) -> Values:
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    cross = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (cross >> half)


def _mul24(a: Values, b: Values) -> Values:
    """The 48-bit product of the low 24 bits, in 64 bits of the same signedness."""
    shift = a.dtype.type(8)
    return np.multiply((a << shift) >> shift, (b << shift) >> shift, dtype=_WIDER[a.dtype.str[1:]])


def mul24_lo(a: Values, b: Values) -> Values:
    """``mul24.lo``: bits 31..0 of the product of two 24-bit values (s32, u32; upper 8 bits are ignored)."""
    return _mul24(a, b).astype(a.dtype)


def mul24_hi(a: Values, b: Values) -> Values:
    """``mul24.hi``: bits 47..16."""
    wide = _mul24(a, b)
    return (wide >> wide.dtype.type(16)).astype(a.dtype)


def mad24_lo(a: Values, b: Values, c: Values) -> Values:
    """``mad24.lo``."""
    return mul24_lo(a, b) + c


def mad24_hi(a: Values, b: Values, c: Values, sat: bool = False) -> Values:
    """``mad24.hi{.sat}``; ``sat`` for s32 only."""
    return add_sat(mul24_hi(a, b), c) if sat else mul24_hi(a, b) + c


def mad_hi(a: Values, b: Values, c: Values, sat: bool = False) -> Values:
    """``mad.hi{.sat}``; ``sat`` for s32 only."""
    return add_sat(mul_hi(a, b), c) if sat else mul_hi(a, b) + c


def add_sat(a: Values, b: Values) -> Values:
    """``add.sat.s32``: clamped to the type's range (signed types up to 32 bits)."""
    return _clamp(a.astype(np.int64) + b, a.dtype)


def sub_sat(a: Values, b: Values) -> Values:
    """``sub.sat.s32``."""
    return _clamp(a.astype(np.int64) - b, a.dtype)


def _clamp(wide: Values, dtype: np.dtype[Any]) -> Values:
    info = np.iinfo(dtype)
    return np.minimum(np.maximum(wide, np.int64(info.min)), np.int64(info.max)).astype(dtype)


def div(a: Values, b: Values) -> Values:
    """``div``: truncated. By zero: all ones, as GPUs give (PTX leaves it open); INT_MIN / -1 is INT_MIN."""
    zero = b == 0
    quotient = _quotient(a, b, zero)
    return pick(zero, a.dtype.type(0) + ~a.dtype.type(0), quotient) if zero.any() else quotient


def rem(a: Values, b: Values) -> Values:
    """``rem``: the sign of the dividend; by zero: all ones, as an H200 gives (PTX leaves it open)."""
    zero = b == 0
    remainder = a - _quotient(a, b, zero) * b
    return pick(zero, a.dtype.type(0) + ~a.dtype.type(0), remainder) if zero.any() else remainder


def _quotient(a: Values, b: Values, zero: Values) -> Values:
    if a.dtype.kind == "u":
        return a // (pick(zero, b.dtype.type(1), b) if zero.any() else b)
    size_a, size_b = unsigned(np.abs(a)), unsigned(np.abs(b))
    size = (size_a // (pick(zero, size_b.dtype.type(1), size_b) if zero.any() else size_b)).view(a.dtype)
    return pick((a ^ b) < 0, -size, size)


def _count(count: Values, like: Values) -> Values:
    """A shift count (32 bits, unsigned) in the dtype of the shifted value, clamped where that is narrower.
    NumPy itself defines shifts by the width and more: zero, or copies of the sign."""
    count = np.uint32(count) if isinstance(count, int) else unsigned(count)
    if like.dtype.itemsize < 4:
        count = np.minimum(count, count.dtype.type(like.dtype.itemsize * 8))
    return count.astype(like.dtype)


def shl(x: Values, count: Values) -> Values:
    """``shl``: ``count`` is u32 of any shape; counts of the width and more give 0."""
    return x << _count(count, x)


def shr(x: Values, count: Values) -> Values:
    """``shr``: arithmetic for signed dtypes; counts of the width and more give 0 or the sign fill."""
    return x >> _count(count, x)


def shf_l(a: Values, b: Values, c: Values, wrap: bool = True) -> Values:
    """``shf.l.{wrap,clamp}.b32``: the upper 32 bits of ``{b, a} << c`` (``b`` is the upper word)."""
    return ((_concat(a, b) << _funnel_count(c, wrap)) >> np.uint64(32)).astype(np.uint32).view(a.dtype)


def shf_r(a: Values, b: Values, c: Values, wrap: bool = True) -> Values:
    """``shf.r.{wrap,clamp}.b32``: the lower 32 bits of ``{b, a} >> c``."""
    return (_concat(a, b) >> _funnel_count(c, wrap)).astype(np.uint32).view(a.dtype)


def _concat(low: Values, high: Values) -> Values:
    return unsigned(low).astype(np.uint64) | (unsigned(high).astype(np.uint64) << np.uint64(32))


def _funnel_count(count: Values, wrap: bool) -> Values:
    count = np.uint32(count) if isinstance(count, int) else unsigned(count)
    return (count & np.uint32(31) if wrap else np.minimum(count, np.uint32(32))).astype(np.uint64)


def absolute(a: Values) -> Values:
    """``abs`` (signed): INT_MIN stays."""
    return np.abs(a)


def negate(a: Values) -> Values:
    """``neg`` (signed): INT_MIN stays."""
    return np.negative(a)


def sad(a: Values, b: Values, c: Values) -> Values:
    """``sad``: ``c + |a - b|``."""
    return c + (np.maximum(a, b) - np.minimum(a, b))


def minimum(a: Values, b: Values, relu: bool = False) -> Values:
    """``min{.relu}``: ``relu`` (s32) clamps below at 0."""
    result = np.minimum(a, b)
    return np.maximum(result, result.dtype.type(0)) if relu else result


def maximum(a: Values, b: Values, relu: bool = False) -> Values:
    """``max{.relu}``."""
    result = np.maximum(a, b)
    return np.maximum(result, result.dtype.type(0)) if relu else result


def _x2(function: Callable[..., Values], a: Values, b: Values, half: type[np.integer[Any]], **options: bool) -> Values:
    """``function`` on both 16-bit halves of 32-bit operands."""
    high = np.uint32(16)
    a_bits, b_bits = unsigned(a), unsigned(b)
    parts = [
        function(*((x >> shift).astype(np.uint16).view(half) for x in (a_bits, b_bits)), **options)
        for shift in (np.uint32(0), high)
    ]
    low_part, high_part = (unsigned(part).astype(np.uint32) for part in parts)
    return (low_part | (high_part << high)).view(a.dtype)


def add_x2(a: Values, b: Values) -> Values:
    """``add.{u16x2,s16x2}``."""
    return _x2(np.add, a, b, np.uint16)


def min_x2(a: Values, b: Values, signed: bool, relu: bool = False) -> Values:
    """``min{.relu}.s16x2`` or ``min.u16x2``."""
    return _x2(minimum, a, b, np.int16 if signed else np.uint16, relu=relu)


def max_x2(a: Values, b: Values, signed: bool, relu: bool = False) -> Values:
    """``max{.relu}.s16x2`` or ``max.u16x2``."""
    return _x2(maximum, a, b, np.int16 if signed else np.uint16, relu=relu)


def add_cc(a: Values, b: Values, carry: Values = np.False_) -> tuple[Values, Values]:
    """``add.cc``, ``addc{.cc}``: (sum with carry-in, carry-out)."""
    x, y = unsigned(a), unsigned(b)
    partial = x + y
    total = partial + carry.astype(x.dtype)
    return total.view(a.dtype), (partial < x) | (total < partial)


def sub_cc(a: Values, b: Values, borrow: Values = np.False_) -> tuple[Values, Values]:
    """``sub.cc``, ``subc{.cc}``: (``a - (b + borrow)``, borrow-out)."""
    x, y = unsigned(a), unsigned(b)
    partial = x - y
    total = partial - borrow.astype(x.dtype)
    return total.view(a.dtype), (x < y) | (partial < total)


def mad_lo_cc(a: Values, b: Values, c: Values, carry: Values = np.False_) -> tuple[Values, Values]:
    """``mad.lo.cc``, ``madc.lo{.cc}``: (result, carry-out of the addition)."""
    return add_cc(a * b, c, carry)


def mad_hi_cc(a: Values, b: Values, c: Values, carry: Values = np.False_) -> tuple[Values, Values]:
    """``mad.hi.cc``, ``madc.hi{.cc}``."""
    return add_cc(mul_hi(a, b), c, carry)


def _part(x: Values, index: int, bits: int, signed: bool) -> Values:
    """Part ``index`` of ``bits`` bits of a 32-bit word, extended to int32 or uint32."""
    if signed:
        return (x.view(np.int32) << np.int32(32 - bits * (index + 1))) >> np.int32(32 - bits)
    word = unsigned(x) >> np.uint32(bits * index)
    return (word & np.uint32((1 << bits) - 1)).view(np.int32)


def dp4a(a: Values, b: Values, c: Values, a_signed: bool, b_signed: bool) -> Values:
    """``dp4a.{atype}.{btype}``: ``c`` plus the four byte products; the dtype of ``c`` (int32 or uint32)."""
    total = c.view(np.int32)
    for index in range(4):
        total = total + _part(a, index, 8, a_signed) * _part(b, index, 8, b_signed)
    return total.view(c.dtype)


def dp2a(a: Values, b: Values, c: Values, a_signed: bool, b_signed: bool, high: bool) -> Values:
    """``dp2a.{lo,hi}.{atype}.{btype}``: ``c`` plus two products of halves of ``a`` and bytes of ``b``."""
    total = c.view(np.int32)
    for index in range(2):
        total = total + _part(a, index, 16, a_signed) * _part(b, index + (2 if high else 0), 8, b_signed)
    return total.view(c.dtype)
