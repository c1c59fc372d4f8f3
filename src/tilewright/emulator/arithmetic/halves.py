"""Half precision: f16, bf16 and their packed pairs (PTX ISA, "Half Precision Floating Point Instructions").

``kind`` says what operands are: "f16": float16; "bf16": uint16 bits; "f16x2", "bf16x2": two of them in 32 bits, the
first in the low half. Results have the dtype of the first operand. Every operation rounds once, to nearest even.
Every NaN that is computed is 0x7fff. ``ftz`` flushes subnormal operands and results, ``sat`` clamps to [+0, 1],
``relu`` makes negative results (and -0) +0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from tilewright.emulator.arithmetic import compare as comparisons
from tilewright.emulator.arithmetic.rounding import (
    Values,
    bf16_from_f32,
    bf16_from_f64,
    bf16_to_f32,
    nan_canonical,
    pick,
    to_odd,
    two_sum,
)

Kind: TypeAlias = Literal["f16", "bf16", "f16x2", "bf16x2"]
_ONE = {True: np.uint16(0x3F80), False: np.uint16(0x3C00)}
_SIGN = np.uint16(0x8000)
_SIZE = np.uint16(0x7FFF)


def is_bf16(kind: Kind) -> bool:
    """Whether the elements are bfloat16."""
    return kind.startswith("bf16")


def split(kind: Kind, *operands: Values) -> tuple[tuple[Values, ...], tuple[int, ...] | None]:
    """(The operands as element arrays, for :func:`join`): float16 or uint16 elements. Packed operands of shape
    (n,) become (2 n,), low half first; their common shape is returned with them."""
    if not kind.endswith("x2"):
        return operands, None
    shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
    dtype = np.uint16 if is_bf16(kind) else np.float16
    spread = (np.ascontiguousarray(np.broadcast_to(x, shape or (1,))) for x in operands)
    return tuple(x.view(dtype) for x in spread), shape


def join(elements: Values, like: Values, shape: tuple[int, ...] | None) -> Values:
    """The inverse of :func:`split`; ``like`` gives the dtype of packed results."""
    if shape is None:
        return elements
    packed = elements.view(like.dtype)
    return packed if shape else packed[0]


def widen(kind: Kind, x: Values) -> Values:
    """Elements (float16, or bfloat16 bits) as float32, exact."""
    return bf16_to_f32(x) if is_bf16(kind) else x.astype(np.float32)


def narrow_f32(kind: Kind, x: Values) -> Values:
    """float32 rounded to elements."""
    return bf16_from_f32(x) if is_bf16(kind) else nan_canonical(x.astype(np.float16))


def narrow_f64(kind: Kind, x: Values) -> Values:
    """float64 (exact, or rounded to odd) rounded once to elements."""
    return bf16_from_f64(x) if is_bf16(kind) else nan_canonical(x.astype(np.float16))


def flush(kind: Kind, x: Values) -> Values:
    """Elements with subnormal ones made zeros of the same sign."""
    bits = x.view(np.uint16)
    small = (bits & _SIZE) < np.uint16(0x0080 if is_bf16(kind) else 0x0400)
    return pick(small, bits & _SIGN, bits).view(x.dtype) if small.any() else x


def clamp(kind: Kind, x: Values, sat: bool, relu: bool) -> Values:
    """Elements after ``.sat`` ([+0, 1], NaN to +0) or ``.relu`` (negative to +0, NaN kept)."""
    if not (sat or relu):
        return x
    bits = x.view(np.uint16)
    is_nan = (bits & _SIZE) > np.uint16(0x7F80 if is_bf16(kind) else 0x7C00)
    below = (bits >= _SIGN) & ~is_nan
    if sat:
        # Positive halves are ordered as their bits are.
        bits = pick(is_nan | below, np.uint16(0), np.minimum(bits, _ONE[is_bf16(kind)]))
    else:
        bits = pick(below, np.uint16(0), bits)
    return bits.view(x.dtype)


def _arithmetic(
    kind: Kind,
    function: Callable[..., Values],
    operands: tuple[Values, ...],
    ftz: bool,
    sat: bool = False,
    relu: bool = False,
) -> Values:
    elements, shape = split(kind, *operands)
    if ftz:
        elements = tuple(flush(kind, x) for x in elements)
    result = function(kind, *(widen(kind, x) for x in elements))
    return join(clamp(kind, flush(kind, result) if ftz else result, sat, relu), operands[0], shape)


def add(kind: Kind, a: Values, b: Values, ftz: bool = False, sat: bool = False) -> Values:
    """``add``. float32 has more than twice the bits of a half, so that rounding its sum again is harmless."""
    return _arithmetic(kind, lambda k, x, y: narrow_f32(k, x + y), (a, b), ftz, sat)


def sub(kind: Kind, a: Values, b: Values, ftz: bool = False, sat: bool = False) -> Values:
    """``sub``."""
    return _arithmetic(kind, lambda k, x, y: narrow_f32(k, x - y), (a, b), ftz, sat)


def mul(kind: Kind, a: Values, b: Values, ftz: bool = False, sat: bool = False) -> Values:
    """``mul``."""
    return _arithmetic(kind, _mul, (a, b), ftz, sat)


def fma(
    kind: Kind, a: Values, b: Values, c: Values, ftz: bool = False, sat: bool = False, relu: bool = False
) -> Values:
    """``fma.rn{.ftz}{.sat,.relu}``."""
    return _arithmetic(kind, _fma, (a, b, c), ftz, sat, relu)


def _mul(kind: Kind, x: Values, y: Values) -> Values:
    # Exact, but for bfloat16 products below 2**-134, half the smallest bfloat16: 0 either way.
    return narrow_f32(kind, x * y)


def _fma(kind: Kind, x: Values, y: Values, z: Values) -> Values:
    # Exact: 22 bits of float16 fit float32; bfloat16's 16 do too, but not its range.
    product = x.astype(np.float64) * y.astype(np.float64) if is_bf16(kind) else (x * y).astype(np.float64)
    total = product + z.astype(np.float64)
    if not is_bf16(kind):
        # Where this sum is inexact, product and addend are so far apart that it cannot be a tie of two float16.
        return nan_canonical(total.astype(np.float16))
    near = total.astype(np.float32)
    result = bf16_from_f32(near)
    # Rounding is monotone: only a float32 that is itself a tie can have come from either side of it.
    tie = (near.view(np.uint32) & np.uint32(0xFFFF)) == np.uint32(0x8000)
    if not tie.any():
        return result
    if np.ndim(total) == 0:
        return bf16_from_f64(to_odd(*two_sum(product, z.astype(np.float64))))
    where = np.flatnonzero(tie)
    some = (np.broadcast_to(x, total.shape)[where].astype(np.float64) for x in (product, z))
    result[where] = bf16_from_f64(to_odd(*two_sum(*some)))
    return result


def minimum(kind: Kind, *operands: Values, ftz: bool = False, nan: bool = False, xorsign: bool = False) -> Values:
    """``min{.ftz}{.NaN}{.xorsign.abs}``, as :func:`.compare.minimum`."""
    return _arithmetic(
        kind, lambda k, *x: narrow_f32(k, comparisons.minimum(*x, nan=nan, xorsign=xorsign)), operands, ftz
    )


def maximum(kind: Kind, *operands: Values, ftz: bool = False, nan: bool = False, xorsign: bool = False) -> Values:
    """``max{.ftz}{.NaN}{.xorsign.abs}``."""
    return _arithmetic(
        kind, lambda k, *x: narrow_f32(k, comparisons.maximum(*x, nan=nan, xorsign=xorsign)), operands, ftz
    )


def absolute(kind: Kind, a: Values, ftz: bool = False) -> Values:
    """``abs``: sign bits cleared. A NaN keeps its payload, but is 0x7fff in packed halves, as on an H200."""
    return _bitwise(kind, lambda bits: bits & _SIZE, a, ftz)


def negate(kind: Kind, a: Values, ftz: bool = False) -> Values:
    """``neg``: sign bits flipped; NaNs as for :func:`absolute`."""
    return _bitwise(kind, lambda bits: bits ^ _SIGN, a, ftz)


def _bitwise(kind: Kind, function: Callable[[Values], Values], a: Values, ftz: bool) -> Values:
    (x,), shape = split(kind, a)
    if ftz:
        x = flush(kind, x)
    bits = x.view(np.uint16)
    result = function(bits)
    if shape is not None:
        result = pick((bits & _SIZE) > np.uint16(0x7F80 if is_bf16(kind) else 0x7C00), _SIZE, result)
    return join(result.view(x.dtype), a, shape)


def compare(op: str, kind: Kind, a: Values, b: Values, ftz: bool = False) -> Values:
    """``setp``: bool for single halves; for packed ones the pair (low, high)."""
    (x, y), shape = split(kind, a, b)
    if ftz:
        x, y = flush(kind, x), flush(kind, y)
    result = comparisons.compare(op, widen(kind, x), widen(kind, y))
    if shape is None:
        return result
    return (result[0::2], result[1::2]) if shape else (result[0], result[1])


def set_halves(op: str, kind: Kind, a: Values, b: Values, ftz: bool = False) -> Values:
    """``set.op.f16x2`` and its like, destination of the source's kind: 1.0 or 0 in every element."""
    (x, y), shape = split(kind, a, b)
    if ftz:
        x, y = flush(kind, x), flush(kind, y)
    true = comparisons.compare(op, widen(kind, x), widen(kind, y))
    return join(pick(true, _ONE[is_bf16(kind)], np.uint16(0)).view(x.dtype), a, shape)


def pack(low: Values, high: Values) -> Values:
    """Two halves (float16 or 16-bit integers) in an int32, ``low`` in bits 15..0."""
    bits = low.view(np.uint16).astype(np.uint32) | (high.view(np.uint16).astype(np.uint32) << np.uint32(16))
    return bits.view(np.int32)


def unpack(packed: Values, dtype: type[np.float16] | type[np.uint16] = np.float16) -> tuple[Values, Values]:
    """(low, high) halves of a 32-bit operand, as float16 or as bits."""
    bits = packed.view(np.uint32)
    return bits.astype(np.uint16).view(dtype), (bits >> np.uint32(16)).astype(np.uint16).view(dtype)
