"""Floats of 8, 6 and 4 bits: e4m3, e5m2, e3m2, e2m3, e2m1, ue8m0 (PTX ISA, "Alternate Floating-Point Data Formats",
"cvt"). Single codes are uint8; packed pairs have the first source in the upper part: uint16, for e2m1 uint8."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.emulator.arithmetic import halves
from tilewright.emulator.arithmetic.rounding import Values, bf16_to_f32, pick

SmallName: TypeAlias = Literal["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"]


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A narrow format.

    Attributes:
        bits: width of a code, sign included.
        mantissa: explicit mantissa bits.
        min_exponent: of the smallest normal number.
        largest: the largest finite value (MAX_NORM).
        nan: code that NaN converts to (MAX_NORM where the format has no NaN).
        decoded: float16 bits of every code, shape (2**bits,).
    """

    bits: int
    mantissa: int
    min_exponent: int
    largest: float
    nan: int
    decoded: npt.NDArray[np.uint16]


def _format(name: SmallName, bits: int, mantissa: int, min_exponent: int, largest: float, nan: int) -> SmallFloat:
    codes = np.arange(1 << bits)
    size = codes & ((1 << (bits - 1)) - 1)
    exponent, fraction = size >> mantissa, size & ((1 << mantissa) - 1)
    normal = np.ldexp((1 << mantissa) + fraction.astype(np.float64), exponent - 1 + min_exponent - mantissa)
    value = np.where(exponent == 0, np.ldexp(fraction.astype(np.float64), min_exponent - mantissa), normal)
    value = np.where(codes >> (bits - 1) == 1, -value, value)
    # e5m2's codes of infinity and NaN are beyond float16: clipped here, set below.
    table = np.clip(value, -largest, largest).astype(np.float16).view(np.uint16)
    if name == "e4m3":
        table[size == 0x7F] = 0x7FFF
    elif name == "e5m2":
        table[size > 0x7C] = 0x7FFF
        table[size == 0x7C] = [0x7C00, 0xFC00]
    table.setflags(write=False)
    return SmallFloat(bits, mantissa, min_exponent, largest, nan, table)


FORMATS: MappingProxyType[str, SmallFloat] = MappingProxyType(
    {
        "e4m3": _format("e4m3", 8, 3, -6, 448.0, 0x7F),
        "e5m2": _format("e5m2", 8, 2, -14, 57344.0, 0x7F),
        "e3m2": _format("e3m2", 6, 2, -2, 28.0, 0x1F),
        "e2m3": _format("e2m3", 6, 3, 0, 7.5, 0x1F),
        "e2m1": _format("e2m1", 4, 1, 0, 6.0, 0x07),
    }
)


def encode(name: SmallName, x: Values, relu: bool = False) -> Values:
    """``cvt.rn.satfinite{.relu}``: codes (uint8) of float16 or float32 values, to nearest even, clamped."""
    form = FORMATS[name]
    wide = x.astype(np.float64)
    size = np.minimum(np.abs(wide), form.largest)
    exponent = np.maximum((size.view(np.int64) >> np.int64(52)) - np.int64(1023), np.int64(form.min_exponent))
    units = np.rint(np.ldexp(size, (form.mantissa - exponent).astype(np.int32)))
    units = pick(wide != wide, 0.0, units).astype(np.int64)
    code = ((exponent - np.int64(form.min_exponent)) << np.int64(form.mantissa)) + units
    negative = np.signbit(wide)
    code = pick(negative, np.int64(0) if relu else code | np.int64(1 << (form.bits - 1)), code)
    return pick(wide != wide, np.int64(form.nan), code).astype(np.uint8)


def pack_small(name: SmallName, a: Values, b: Values, relu: bool = False) -> Values:
    """``cvt.rn.satfinite{.relu}.e4m3x2.f32 d, a, b`` and its like: ``a`` in the upper part."""
    high, low = encode(name, a, relu), encode(name, b, relu)
    if name == "e2m1":
        return (high << np.uint8(4)) | low
    return (high.astype(np.uint16) << np.uint16(8)) | low.astype(np.uint16)


def pack_small_halves(name: SmallName, packed: Values, relu: bool = False) -> Values:
    """``cvt.rn.satfinite{.relu}.e4m3x2.f16x2 d, a``: upper half to upper part."""
    low, high = halves.unpack(packed)
    return pack_small(name, high, low, relu)


def unpack_small(name: SmallName, packed: Values, relu: bool = False) -> Values:
    """``cvt.rn{.relu}.f16x2.e4m3x2 d, a`` and its like: f16x2 in an int32, exact."""
    form = FORMATS[name]
    width = 4 if name == "e2m1" else 8
    word = packed.view(np.uint8 if packed.dtype.itemsize == 1 else np.uint16)
    mask = word.dtype.type((1 << form.bits) - 1)
    parts = [form.decoded[(word >> word.dtype.type(shift)) & mask] for shift in (0, width)]
    if relu:
        parts = [halves.clamp("f16", part.view(np.float16), False, True) for part in parts]
    return halves.pack(*parts)


def encode_ue8m0(x: Values, mode: Literal["rz", "rp"], satfinite: bool = False) -> Values:
    """``cvt.{rz,rp}{.satfinite}.ue8m0x2.f32``, one code (uint8): the exponent of ``|x|``; NaN, and without
    ``satfinite`` overflow, are 0xff."""
    size = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    code = size >> np.uint32(23)
    if mode == "rp":
        # Up when a mantissa is left over; 2**-127, the smallest code, is itself a subnormal float32.
        up = ((size & np.uint32(0x7FFFFF)) != 0) & (size > np.uint32(0x00400000)) & (size < np.uint32(0x7F800000))
        code = code + up.astype(np.uint32)
    if satfinite:
        code = np.minimum(code, np.uint32(0xFE))
    return pick(size > np.uint32(0x7F800000), np.uint32(0xFF), code).astype(np.uint8)


def pack_ue8m0(a: Values, b: Values, mode: Literal["rz", "rp"], satfinite: bool = False) -> Values:
    """``cvt.*.ue8m0x2.f32 d, a, b``: uint16, ``a`` in the upper byte."""
    high, low = (encode_ue8m0(x, mode, satfinite).astype(np.uint16) for x in (a, b))
    return (high << np.uint16(8)) | low


def pack_ue8m0_halves(packed: Values, mode: Literal["rz", "rp"], satfinite: bool = False) -> Values:
    """``cvt.*.ue8m0x2.bf16x2 d, a``."""
    low, high = halves.unpack(packed, np.uint16)
    return pack_ue8m0(bf16_to_f32(high), bf16_to_f32(low), mode, satfinite)


def unpack_ue8m0(packed: Values) -> Values:
    """``cvt.rn.bf16x2.ue8m0x2``: bf16x2 in an int32; 0xff is a NaN, 0 is 2**-127."""
    word = packed.view(np.uint16)
    return halves.pack(*(_bf16_of_ue8m0(part) for part in (word & np.uint16(0xFF), word >> np.uint16(8))))


def _bf16_of_ue8m0(code: Values) -> Any:
    bits = pick(code == 0, np.uint16(0x0040), code << np.uint16(7))
    return pick(code == np.uint16(0xFF), np.uint16(0x7FFF), bits)
