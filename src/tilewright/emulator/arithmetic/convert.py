"""``cvt`` between integers, f16, bf16, f32, f64, and the packed forms (PTX ISA, "cvt", "cvt.pack").

bfloat16 sources: widen them first (:func:`bf16_to_f32`), exact. The formats of 8 bits and less are in :mod:`.small`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.emulator.arithmetic import floats, halves
from tilewright.emulator.arithmetic.rounding import (
    Mode,
    Values,
    bf16_from_f32,
    bf16_from_f64,
    bf16_to_f32,
    nan_canonical,
    narrow,
    pick,
)

__all__ = [
    "bf16_to_f32",
    "cvt_pack",
    "float_to_int",
    "int_to_bf16",
    "int_to_float",
    "int_to_int",
    "pack_bf16x2",
    "pack_f16x2",
    "round_integral",
    "to_bf16",
    "to_f16",
    "to_f32",
    "to_f64",
    "to_tf32",
]

IntRounding: TypeAlias = Literal["rni", "rzi", "rmi", "rpi"]
Integer: TypeAlias = type[np.integer[Any]]

_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_BF16_MAX = np.float32(np.uint32(0x7F7F0000).view(np.float32))
_F16_MAX = 65504.0
_INFINITY_BITS = np.uint32(0x7F800000)


def int_to_int(x: Values, dtype: Integer, sat: bool = False) -> Values:
    """Integer to integer: extended by the source's type or truncated; ``sat`` clamps to the destination instead."""
    if not sat:
        return x.astype(dtype)
    source, target = np.iinfo(x.dtype), np.iinfo(dtype)
    low, high = max(source.min, target.min), min(source.max, target.max)
    return np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)).astype(dtype)


def round_integral(x: Values, rounding: IntRounding, ftz: bool = False, sat: bool = False) -> Values:
    """``cvt.rni.f32.f32`` and its like: to an integral value of the same type (float16, float32, float64)."""
    if ftz:
        x = floats.flush(x)
    result = nan_canonical(_INTEGRAL[rounding](x))
    return floats.saturate(result) if sat else result


def float_to_int(x: Values, dtype: Integer, rounding: IntRounding = "rzi", ftz: bool = False) -> Values:
    """Float (float16, float32, float64) to integer, clamped. A NaN gives 0; from f64, or to 64 bits, it gives the
    highest bit alone."""
    from_f64 = x.dtype == np.float64
    wide = _INTEGRAL[rounding]((floats.flush(x) if ftz else x).astype(np.float64))
    info = np.iinfo(dtype)
    nan_value = np.uint64(1 << (info.bits - 1)) if from_f64 or info.bits == 64 else np.uint64(0)
    # float(info.max) of 64-bit types is 2**63 or 2**64: reaching it is already too large.
    high, low = wide >= float(info.max), wide <= float(info.min)
    inside = pick(high | low | (wide != wide), 0.0, wide).astype(dtype)
    result = pick(high, dtype(info.max), pick(low, dtype(info.min), inside))
    is_nan = wide != wide
    return pick(is_nan, nan_value.astype(dtype), result) if is_nan.any() else result


def _odd_f64(x: Values) -> Values:
    """Integers as float64: exact below 2**53 in size, rounded to odd above."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    negative = x < 0
    size = pick(negative, -x, x).view(np.uint64)
    low = np.uint64(0x7FF)
    sticky = ((size & low) != 0).astype(np.uint64) << np.uint64(11)
    size = pick(size < np.uint64(1 << 53), size, (size & ~low) | sticky).astype(np.float64)
    return pick(negative, -size, size)


def int_to_float(x: Values, dtype: type[np.floating[Any]], mode: Mode = "rn", sat: bool = False) -> Values:
    """Integer to float16, float32 or float64 with one rounding. (``.ftz`` changes nothing: no result is subnormal.)"""
    if dtype is np.float64:
        result = _int_to_f64(x, mode)
    elif mode == "rn" and dtype is np.float32:
        result = x.astype(np.float32)
    else:
        result = narrow(_odd_f64(x), dtype, mode)
    return floats.saturate(result) if sat else result


def _int_to_f64(x: Values, mode: Mode) -> Values:
    nearest = x.astype(np.float64)
    if mode == "rn" or x.dtype.itemsize < 8:
        return nearest
    top = 2.0**64 if x.dtype.kind == "u" else 2.0**63
    over = nearest >= top
    back = pick(over, 0.0, nearest).astype(x.dtype)
    above, below = over | (back > x), ~over & (back < x)
    wrong = {
        "rz": (above & (nearest > 0)) | (below & (nearest < 0)),
        "rm": above,
        "rp": below,
    }[mode]
    return pick(wrong, np.nextafter(nearest, {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]), nearest)


def int_to_bf16(x: Values, mode: Mode = "rn") -> Values:
    """Integer to bfloat16 bits."""
    return bf16_from_f64(_odd_f64(x), mode)


def to_f64(x: Values, ftz: bool = False, sat: bool = False) -> Values:
    """float16, float32 to float64, exact; a NaN's payload is the host's."""
    result = (floats.flush(x) if ftz else x).astype(np.float64)
    return floats.saturate(result) if sat else result


def to_f32(x: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False) -> Values:
    """float16, float64 (or float32) to float32."""
    if x.dtype == np.float64:
        result = narrow(x, np.float32, mode)
    else:
        result = (floats.flush(x) if ftz else x).astype(np.float32)
    result = nan_canonical(result)
    if ftz:
        result = floats.flush(result)
    return floats.saturate(result) if sat else result


def to_f16(
    x: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False, relu: bool = False, satfinite: bool = False
) -> Values:
    """float32, float64 (or integral widths of them) to float16 with one rounding; NaN 0x7fff."""
    if ftz:
        x = floats.flush(x)
    if satfinite:
        x = np.minimum(np.maximum(x, x.dtype.type(-_F16_MAX)), x.dtype.type(_F16_MAX))
    result = x.astype(np.float16) if mode == "rn" else narrow(x.astype(np.float64), np.float16, mode)
    return halves.clamp("f16", nan_canonical(result), sat, relu)


def to_bf16(
    x: Values, mode: Mode = "rn", ftz: bool = False, sat: bool = False, relu: bool = False, satfinite: bool = False
) -> Values:
    """float16, float32, float64 to bfloat16 bits with one rounding; NaN 0x7fff."""
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    if ftz:
        x = floats.flush(x)
    if satfinite:
        top = x.dtype.type(_BF16_MAX)
        x = np.minimum(np.maximum(x, -top), top)
    result = bf16_from_f32(x, mode) if x.dtype == np.float32 else bf16_from_f64(x, mode)
    return halves.clamp("bf16", result, sat, relu)


def pack_f16x2(a: Values, b: Values, mode: Mode = "rn", relu: bool = False, satfinite: bool = False) -> Values:
    """``cvt.*.f16x2.f32 d, a, b``: int32, ``a`` in the UPPER half."""
    return halves.pack(*(to_f16(x, mode, relu=relu, satfinite=satfinite) for x in (b, a)))


def pack_bf16x2(a: Values, b: Values, mode: Mode = "rn", relu: bool = False, satfinite: bool = False) -> Values:
    """``cvt.*.bf16x2.f32 d, a, b``: int32, ``a`` in the UPPER half."""
    return halves.pack(*(to_bf16(x, mode, relu=relu, satfinite=satfinite) for x in (b, a)))


def to_tf32(x: Values, mode: Literal["rn", "rna", "rz"] = "rna", relu: bool = False, satfinite: bool = False) -> Values:
    """``cvt.{rn,rna,rz}.tf32.f32``: float32 whose low 13 bits are 0.

    A NaN becomes 0x7fffe000. As on an H200, ``rna`` only cuts its bits off, which leaves another NaN or an infinity,
    and saturating goes to the next smaller tf32, in bits, from an infinity and from what is left of a NaN.
    """
    bits = x.view(np.uint32)
    keep = np.uint32(0xFFFFE000)
    size = np.uint32(0x7FFFFFFF)
    if mode == "rna":
        rounded = pick((bits & size) < _INFINITY_BITS, bits + np.uint32(0x1000), bits) & keep
        if satfinite:
            rounded = rounded - ((rounded & size) >= _INFINITY_BITS).astype(np.uint32) * np.uint32(0x2000)
        return rounded.view(np.float32)
    half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)) if mode == "rn" else np.uint32(0)
    rounded = (bits + half) & keep
    if satfinite:
        infinite = (rounded & size) == _INFINITY_BITS
        rounded = pick(infinite, (rounded & np.uint32(0x80000000)) | np.uint32(0x7F7FE000), rounded)
    if relu:
        rounded = pick(rounded >= np.uint32(0x80000000), np.uint32(0), rounded)
    return pick(x != x, np.uint32(0x7FFFE000), rounded).view(np.float32)


def cvt_pack(a: Values, b: Values, c: Values | None, bits: int, signed: bool) -> Values:
    """``cvt.pack.sat.{s,u}{2,4,8,16}.s32{.b32}``: ``a`` above ``b``, both clamped to ``bits``; ``c``, for widths
    below 16, above them, its upper bits lost. int32."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    mask = np.uint32((1 << bits) - 1)
    parts = [np.minimum(np.maximum(x, np.int32(low)), np.int32(high)).view(np.uint32) & mask for x in (a, b)]
    result = (parts[0] << np.uint32(bits)) | parts[1]
    if c is not None:
        result = result | (c.view(np.uint32) << np.uint32(2 * bits))
    return result.view(np.int32)
