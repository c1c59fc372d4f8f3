"""The ``.approx`` instructions: ex2, lg2, rcp, sqrt, rsqrt, sin, cos, tanh, div.approx, div.full.

Hardware differs in the last bits between generations, so results here are computed in float64 and rounded once
(correctly rounded but for about one case in 1e8); :class:`Approximation` moves them by some units in the last place,
for kernels that must not depend on those bits. Special values are those of the PTX ISA's tables. Not modelled: the
absolute error of ``sin``/``cos`` of large arguments (here: exact range reduction).

``kind``: "f32" (float32) or one of :data:`.halves.Kind`; f64 forms take and give float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.emulator.arithmetic import floats, halves
from tilewright.emulator.arithmetic.rounding import F32_MIN_NORMAL, Values, nan_canonical, pick

ApproxKind: TypeAlias = Literal["f32", "f16", "bf16", "f16x2", "bf16x2"]


def _apply(kind: ApproxKind, function: Callable[[Values], Values], x: Values, ftz: bool) -> Values:
    if kind == "f32":
        wide = (floats.flush(x) if ftz else x).astype(np.float64)
        result = nan_canonical(function(wide).astype(np.float32))
        return floats.flush(result) if ftz else result
    (elements,), shape = halves.split(kind, x)
    if ftz:
        elements = halves.flush(kind, elements)
    result = halves.narrow_f64(kind, function(halves.widen(kind, elements).astype(np.float64)))
    return halves.join(halves.flush(kind, result) if ftz else result, x, shape)


def _upper_words(function: Callable[[Values], Values], x: Values) -> Values:
    """float64 from the upper words of float64, as an H200 does: lower words are taken for 0, and are 0 in the result,
    subnormals are flushed, and every NaN is 0x7fffffff00000000."""

    def flushed(bits: Values) -> Values:
        bits = bits & ~np.int64(0xFFFFFFFF)
        subnormal = (bits & np.int64(0x7FF0000000000000)) == 0
        return pick(subnormal, bits & np.int64(-(1 << 63)), bits)

    result = function(flushed(x.view(np.int64)).view(np.float64))
    return pick(result != result, np.int64(0x7FFFFFFF00000000), flushed(result.view(np.int64))).view(np.float64)


def ex2(kind: ApproxKind, x: Values, ftz: bool = False) -> Values:
    """``ex2.approx``: 2**x; -inf gives +0, a subnormal gives 1."""
    return _apply(kind, np.exp2, x, ftz)


def lg2(x: Values, ftz: bool = False) -> Values:
    """``lg2.approx.f32``: zeros give -inf (flushed subnormals too), below zero is a NaN."""
    return _apply("f32", np.log2, x, ftz)


def rcp(x: Values, ftz: bool = False) -> Values:
    """``rcp.approx``: f32, or f64 (``rcp.approx.ftz.f64``: see :func:`_upper_words`)."""
    if x.dtype == np.float64:
        return _upper_words(lambda wide: 1.0 / wide, x)
    return _apply("f32", np.reciprocal, x, ftz)


def sqrt(x: Values, ftz: bool = False) -> Values:
    """``sqrt.approx.f32``."""
    return _apply("f32", np.sqrt, x, ftz)


def rsqrt(x: Values, ftz: bool = False) -> Values:
    """``rsqrt.approx``: f32 or f64; -0 gives -inf, below zero is a NaN."""
    if x.dtype == np.float64:
        return _upper_words(lambda wide: 1.0 / np.sqrt(wide), x) if ftz else 1.0 / np.sqrt(x)
    return _apply("f32", lambda wide: 1.0 / np.sqrt(wide), x, ftz)


def sin(x: Values, ftz: bool = False) -> Values:
    """``sin.approx.f32``: the sign of zero is kept; infinities give a NaN."""
    return _apply("f32", np.sin, x, ftz)


def cos(x: Values, ftz: bool = False) -> Values:
    """``cos.approx.f32``."""
    return _apply("f32", np.cos, x, ftz)


def tanh(kind: ApproxKind, x: Values) -> Values:
    """``tanh.approx``."""
    return _apply(kind, np.tanh, x, False)


def div_approx(a: Values, b: Values, ftz: bool = False) -> Values:
    """``div.approx.f32``: ``a * (1 / b)``, the reciprocal being 0 for ``|b| > 2**126``: 0, or a NaN for infinite a."""
    if ftz:
        a, b = floats.flush(a), floats.flush(b)
    # A subnormal's reciprocal may be too large: both are scaled, as on an H200.
    scale = pick(np.abs(b) < F32_MIN_NORMAL, np.float32(2.0**24), np.float32(1))
    a, b = a * scale, b * scale
    inverse = np.float32(1) / b
    huge = np.abs(b) > np.float32(2.0**126)
    inverse = pick(huge, np.copysign(np.float32(0), b), inverse)
    return floats.mul(a, inverse, ftz=ftz)


def div_full(a: Values, b: Values, ftz: bool = False) -> Values:
    """``div.full.f32``: within 2 units in the last place over the full range; here correctly rounded."""
    return floats.div(a, b, ftz=ftz)


def jitter(values: Values, ulps: int, seed: int) -> Values:
    """``values`` (float32, float16, or bfloat16 bits) moved by -ulps..ulps units in the last place.

    The move depends on the value's bits and the seed only: equal inputs stay equal. Zeros, infinities and NaNs stay;
    nothing becomes zero or infinite.
    """
    single = values.dtype == np.float32
    infinity = 0x7F800000 if single else 0x7C00 if values.dtype == np.float16 else 0x7F80
    unsigned: type[Any] = np.uint32 if single else np.uint16
    top = 0x7FFFFFFF if single else 0x7FFF
    bits = values.view(unsigned)
    mixed = bits.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed & 0xFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    move = ((mixed >> np.uint64(33)) % np.uint64(2 * ulps + 1)).astype(np.int64) - np.int64(ulps)
    size = (bits & unsigned(top)).astype(np.int64)
    moved = np.minimum(np.maximum(size + move, np.int64(1)), np.int64(infinity - 1)).astype(unsigned)
    moved = moved | (bits & unsigned(top + 1))
    return pick((size == 0) | (size >= infinity), bits, moved).view(values.dtype)


@dataclass(frozen=True, slots=True)
class Approximation:
    """How far approximate results may lie from the correctly rounded ones.

    Attributes:
        ulps: units in the last place; 0 leaves results alone.
        seed: another seed, other moves.
    """

    ulps: int = 0
    seed: int = 0

    def __call__(self, values: Values) -> Values:
        """The result of an approximate instruction, moved."""
        return jitter(values, self.ulps, self.seed) if self.ulps else values
