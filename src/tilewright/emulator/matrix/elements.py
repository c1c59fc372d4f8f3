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
# Floats whose bits, moved up into a float32, need but a scale: (stored as, shift, bits kept, log2 of the scale, bits
# that are all ones only in infinities and NaNs).
_SHIFTED: dict[str, tuple[np.dtype[Any], int, int, int, int]] = {
    "f16": (np.dtype(np.int16), 13, 0x8FFFE000, 112, 0x7C00),
    "e5m2": (np.dtype(np.int8), 21, 0x8FE00000, 112, 0x7C),
    "e4m3": (np.dtype(np.int8), 20, 0x87F00000, 120, 0x7F),
}


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
    if element in _SHIFTED:
        return _decode_shifted(raw, element)
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


def _decode_shifted(raw: Array, element: str) -> Array:
    """float64 of f16 and the 8-bit floats; three times as fast as ``astype``, and ten times as a table."""
    stored, shift, kept, scale, special = _SHIFTED[element]
    codes = raw.view(stored)
    if ((codes & special) == special).any():
        if element == "f16":
            halves: Array = codes.view(np.float16).astype(np.float64)
            return halves
        return byte_table(element)[codes.view(np.uint8)]
    bits = codes.astype(np.int32)  # spreads the sign upwards
    bits <<= shift
    bits &= np.array(kept, np.uint32).view(np.int32)
    floats = bits.view(np.float32)
    np.multiply(floats, np.float32(2.0**scale), out=floats)
    widened: Array = floats.astype(np.float64)
    return widened
