"""Elements of matrix operands: how many bits they have, how their bytes become numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError

Array = NDArray[Any]

ELEMENT_BITS = {
    "b1": 1, "s4": 4, "u4": 4, "e2m1": 4,
    "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1_in_byte": 8,
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64,
}  # fmt: skip
INTEGERS = frozenset({"b1", "s4", "u4", "s8", "u8", "s32"})

_SMALL_FLOATS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 0, 0xFF), "e5m2": (ml_dtypes.float8_e5m2, 0, 0xFF),
    "e3m2": (ml_dtypes.float6_e3m2fn, 0, 0x3F), "e2m3": (ml_dtypes.float6_e2m3fn, 0, 0x3F),
    # kind::f8f6f4 and mxf8f6f4 want the four bits in the middle of the byte: 00ABCD00.
    "e2m1_in_byte": (ml_dtypes.float4_e2m1fn, 2, 0x0F),
    "ue8m0": (ml_dtypes.float8_e8m0fnu, 0, 0xFF), "ue4m3": (ml_dtypes.float8_e4m3fn, 0, 0x7F),
}  # fmt: skip
_HALF_EXPONENT = 0x7C00


def element_bits(element: str) -> int:
    """Bits that an element takes in a register. Raises TilewrightError for an element that matrices do not have."""
    bits = ELEMENT_BITS.get(element)
    if bits is None:
        raise TilewrightError("emulator/unknown_element", f"There is no matrix element {element!r}.")
    return bits


@cache
def byte_table(element: str) -> Array:
    """What each byte means: float64[256] of one element a byte; float32 or float64[256, e] of several, low bits first.

    Elements: e4m3, e5m2, e3m2, e2m3, e2m1_in_byte, ue8m0, ue4m3; s4, u4, e2m1 (two a byte); b1 (eight a byte).
    """
    codes = np.arange(256, dtype=np.uint8)
    table: Array
    if element in _SMALL_FLOATS:
        dtype, shift, mask = _SMALL_FLOATS[element]
        table = ((codes >> shift) & mask).astype(np.uint8).view(dtype).astype(np.float64)
    elif element == "b1":
        table = np.unpackbits(codes[:, None], axis=1, bitorder="little").astype(np.float32)
    else:
        nibbles = np.stack([codes & 15, codes >> 4], axis=1)
        if element == "e2m1":
            table = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        elif element in ("s4", "u4"):
            wrap = 16 if element == "s4" else 0
            table = (nibbles.astype(np.int16) - wrap * (nibbles > 7)).astype(np.float32)
        else:
            raise TilewrightError("emulator/unknown_element", f"There is no matrix element {element!r}.")
    table.flags.writeable = False
    return table


def decode(raw: Array, element: str) -> Array:
    """Numbers of raw bytes, exactly, ready for a matrix product.

    Args:
        raw: any contiguous array; its last axis is read as bytes, little-endian.
        element: a key of ``ELEMENT_BITS``. tf32 ignores the low 13 bits.

    Returns:
        float32 for integers of 8 bits and fewer (products and sums up to 2**24 stay exact), float64 for the rest; the
        last axis counts elements.
    """
    if element in ("s8", "u8"):
        small: Array = raw.view(np.int8 if element == "s8" else np.uint8).astype(np.float32)
        return small
    if element == "f16":
        return _decode_f16(raw.view(np.int16))
    if element == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if element == "tf32":
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if element == "f32":
        return raw.view(np.float32).astype(np.float64)
    if element == "f64":
        return raw.view(np.float64)
    if element == "s32":
        return raw.view(np.int32).astype(np.float64)
    values: Array = byte_table(element)[raw.view(np.uint8)]
    return values if values.ndim == raw.ndim else values.reshape(*values.shape[:-2], -1)


def _decode_f16(halves: Array) -> Array:
    """float64 of halves. Moving the bits into a float32 and scaling is three times as fast as ``astype``."""
    if ((halves & _HALF_EXPONENT) == _HALF_EXPONENT).any():  # an infinity or a NaN
        values: Array = halves.view(np.float16).astype(np.float64)
        return values
    bits = halves.astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # the sign, copied upwards by the widening, leaves the exponent: 0x8FFFE000
    floats = bits.view(np.float32)
    np.multiply(floats, np.float32(2.0**112), out=floats)
    widened: Array = floats.astype(np.float64)
    return widened
