"""Bit manipulation and moves between widths (PTX ISA, "Logic and Shift Instructions", bfe … szext, prmt, mov).

Operands are 32- or 64-bit integer arrays or NumPy scalars; counts and positions are u32 (any 32-bit dtype). Where PTX
says that the result is u32, it is uint32; otherwise it has the dtype of the first operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.emulator.arithmetic.integers import shl, shr, unsigned
from tilewright.emulator.arithmetic.rounding import Values, pick

PrmtMode: TypeAlias = Literal["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]

NOT_FOUND = np.uint32(0xFFFFFFFF)

# Source bytes of prmt's modes, lowest destination byte first, for selector values 0..3 (PTX ISA, table of prmt).
_PRMT_BYTES: dict[str, tuple[str, str, str, str]] = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}

# The 16 functions of two bits; the table's bit index is 2 * b + c.
_TWO_INPUT: tuple[Callable[[Values, Values], Values], ...] = (
    lambda b, c: b ^ b,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: ~(b ^ b),
)


def popc(x: Values) -> Values:
    """``popc``: the number of ones, uint32."""
    v = unsigned(x).astype(np.uint64)
    v = v - ((v >> np.uint64(1)) & np.uint64(0x5555555555555555))
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((v * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint32)


def _bit_length(x: Values) -> Values:
    """Bits up to the highest one (0 for 0), int64: the exponent of the float64, exact below 2**53."""
    v = unsigned(x).astype(np.uint64)
    high = v >> np.uint64(32)
    word = pick(high != 0, high, v).astype(np.float64)
    length = np.maximum((word.view(np.int64) >> np.int64(52)) - np.int64(1022), np.int64(0))
    return length + pick(high != 0, np.int64(32), np.int64(0))


def clz(x: Values) -> Values:
    """``clz``: leading zeros, the width for 0; uint32."""
    return (np.int64(x.dtype.itemsize * 8) - _bit_length(x)).astype(np.uint32)


def bfind(x: Values, shiftamt: bool = False) -> Values:
    """``bfind{.shiftamt}``: the position of the highest bit that is not a sign bit, uint32; 0xffffffff: none."""
    magnitude = pick(x < 0, ~x, x) if x.dtype.kind == "i" else x
    length = _bit_length(magnitude)
    position = np.int64(x.dtype.itemsize * 8) - length if shiftamt else length - np.int64(1)
    return pick(length == 0, NOT_FOUND, position.astype(np.uint32))


def brev(x: Values) -> Values:
    """``brev``: bits in reverse order."""
    v = unsigned(x)
    kind = v.dtype.type
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        low = kind(mask & int(np.iinfo(v.dtype).max))
        v = ((v >> kind(shift)) & low) | ((v & low) << kind(shift))
    return v.byteswap().view(x.dtype)


def _ones(length: Values, like: Values) -> Values:
    """The lowest ``length`` (uint32) bits set, in the unsigned dtype of ``like``; the width and more: all."""
    one = unsigned(like).dtype.type(1)
    return shl(one, length) - one


def _field_count(x: Values, like: Values) -> Values:
    """A position or length, uint32, clamped to 255. The PTX ISA takes bits 7..0 of it; of the 64-bit forms, which are
    no single instruction of the hardware, an H200 takes all bits."""
    x = np.uint32(x) if isinstance(x, int) else unsigned(x)
    return np.minimum(x, np.uint32(0xFF)) if like.dtype.itemsize == 8 else x & np.uint32(0xFF)


def bfe(x: Values, position: Values, length: Values) -> Values:
    """``bfe``: the field of ``length`` bits at ``position``, extended by dtype."""
    position, length = _field_count(position, x), _field_count(length, x)
    if x.dtype.kind == "u":
        return shr(x, position) & _ones(length, x)
    width = np.uint32(x.dtype.itemsize * 8)
    unused = width - np.minimum(position + length, width)
    field = shr(shl(x, unused), unused + position)
    return pick(length == 0, x.dtype.type(0), field)


def bfi(a: Values, b: Values, position: Values, length: Values) -> Values:
    """``bfi``: the low ``length`` bits of ``a`` put into ``b`` at ``position``."""
    position = _field_count(position, a)
    mask = shl(_ones(_field_count(length, a), a), position)
    return ((unsigned(b) & ~mask) | (shl(unsigned(a), position) & mask)).view(a.dtype)


def bmsk(a: Values, b: Values, wrap: bool = False) -> Values:
    """``bmsk.{clamp,wrap}.b32``: ``b`` ones from bit ``a`` on, uint32."""
    a, b = unsigned(a), unsigned(b)
    if wrap:
        a, b = a & np.uint32(31), b & np.uint32(31)
    return shl(_ones(b, b), a)


def szext(x: Values, bits: Values, wrap: bool = False) -> Values:
    """``szext.{clamp,wrap}``: the low ``bits`` bits extended by dtype; 0 bits give 0, clamped 32 give ``x``."""
    count = unsigned(bits)
    count = count & np.uint32(31) if wrap else np.minimum(count, np.uint32(32))
    unused = np.uint32(32) - count
    return shr(shl(x, unused), unused) if x.dtype.kind == "u" else pick(count == 0, np.int32(0), _sign(x, unused))


def _sign(x: Values, unused: Values) -> Values:
    return shr(shl(x, unused), unused)


def prmt(a: Values, b: Values, c: Values, mode: PrmtMode = "") -> Values:
    """``prmt.b32{.mode}``: bytes of ``{b, a}`` picked by the selector ``c``; ``c`` may be uniform (a scalar)."""
    low, high = unsigned(a), unsigned(b)
    select = np.uint32(c & 0xFFFFFFFF) if isinstance(c, int) else unsigned(c)
    if np.ndim(select) == 0:
        return _prmt_uniform(low, high, int(select), mode).view(a.dtype)
    source = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    if mode:
        table = np.array([_selector(mode, value) for value in range(4)], dtype=np.uint32)
        select = table[select & np.uint32(3)]
    result = np.uint32(0)
    for index in range(4):
        control = (select >> np.uint32(4 * index)) & np.uint32(15)
        byte = (source >> ((control & np.uint32(7)) << np.uint32(3)).astype(np.uint64)).astype(np.uint32)
        byte = byte & np.uint32(0xFF)
        signs = (byte >> np.uint32(7)) * np.uint32(0xFF)
        result = result | (pick(control > 7, signs, byte) << np.uint32(8 * index))
    return result.view(a.dtype)


def _selector(mode: PrmtMode, value: int) -> int:
    """The generic selector that a mode's selector stands for."""
    if not mode:
        return value & 0xFFFF
    return int(_PRMT_BYTES[mode][value & 3][::-1], 16)


def _prmt_uniform(low: Values, high: Values, value: int, mode: PrmtMode) -> Values:
    selector = _selector(mode, value)
    half, low_half = np.uint32(16), np.uint32(0xFFFF)
    if selector == 0x5410:
        return (low & low_half) | (high << half)
    if selector == 0x7632:
        return (low >> half) | (high & ~low_half)
    result = (low & np.uint32(0)) | (high & np.uint32(0))
    for index in range(4):
        control = (selector >> (4 * index)) & 15
        byte = ((low, high)[(control >> 2) & 1] >> np.uint32(8 * (control & 3))) & np.uint32(0xFF)
        if control & 8:
            byte = (byte >> np.uint32(7)) * np.uint32(0xFF)
        result = result | (byte << np.uint32(8 * index))
    return result


def lop3(a: Values, b: Values, c: Values, lut: int) -> Values:
    """``lop3.b32``: the function of three bits whose table is ``lut`` (a: 0xf0, b: 0xcc, c: 0xaa)."""
    without, within = lut & 15, (lut >> 4) & 15
    changed = _TWO_INPUT[without ^ within](b, c)
    if without == within:
        return _TWO_INPUT[without](b, c) | (a ^ a)
    if without == 0:
        return a & changed
    if within == 0:
        return ~a & changed
    if without ^ within == 15:
        return a ^ _TWO_INPUT[without](b, c)
    if within == 15:
        return a | _TWO_INPUT[without](b, c)
    return _TWO_INPUT[without](b, c) ^ (a & changed)


def cnot(a: Values) -> Values:
    """``cnot``: 1 for 0, else 0."""
    return (a == 0).astype(a.dtype)


def fns(mask: Values, base: Values, offset: Values) -> Values:
    """``fns.b32``: the position of the n-th set bit of ``mask`` from ``base`` on, uint32; 0xffffffff: none.
    ``offset`` is s32: its sign is the direction; 0 asks for ``base`` itself."""
    mask, base, offset = unsigned(mask), base.view(np.int32), offset.view(np.int32)
    wanted = np.maximum(np.abs(offset).astype(np.int64), np.int64(1))
    found, seen = NOT_FOUND, np.int64(0)
    for distance in range(32):
        position = base + pick(offset < 0, np.int32(-distance), np.int32(distance))
        inside = (position >= 0) & (position < 32) & ((offset != 0) | np.bool_(distance == 0))
        bit = inside & (((mask >> (position & np.int32(31)).view(np.uint32)) & np.uint32(1)) != 0)
        seen = seen + bit
        found = pick(bit & (seen == wanted), position.view(np.uint32), found)
    return found


def pack(parts: tuple[Values, ...]) -> Values:
    """``mov.b32 d, {lo, hi}`` and its like: 2 or 4 parts of one width (8 to 32 bits) to int16, int32 or int64,
    first part lowest. 128-bit values are pairs (low, high) of 64-bit ones and need no packing."""
    bits = parts[0].dtype.itemsize * 8
    wide = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits * len(parts)]
    result = unsigned(parts[0]).astype(wide)
    for index, part in enumerate(parts[1:], start=1):
        result = result | (unsigned(part).astype(wide) << wide(bits * index))
    return result.view(_SIGNED[bits * len(parts)])


_SIGNED: dict[int, type[np.signedinteger[Any]]] = {16: np.int16, 32: np.int32, 64: np.int64}


def unpack(x: Values, count: int) -> tuple[Values, ...]:
    """``mov.b32 {lo, hi}, a`` and its like: ``count`` parts, lowest first: uint8, uint16 or int32."""
    word = unsigned(x)
    bits = word.dtype.itemsize * 8 // count
    kind = {8: np.uint8, 16: np.uint16, 32: np.uint32}[bits]
    parts = tuple((word >> word.dtype.type(bits * index)).astype(kind) for index in range(count))
    return tuple(part.view(np.int32) for part in parts) if bits == 32 else parts
