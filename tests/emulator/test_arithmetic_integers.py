"""Integers and bits against Python's integers: wrap-around, carries, shifts past the width, fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import arithmetic_oracle as exact
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.emulator.arithmetic import bits, integers

SEEDS = st.integers(0, 2**32 - 1)
ALL = (np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
WORDS = (np.int32, np.uint32, np.int64, np.uint64)
FULL32 = 0xFFFFFFFF


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def wrap(value: int, dtype: Any) -> int:
    info = np.iinfo(dtype)
    value &= (1 << info.bits) - 1
    return value - (1 << info.bits) if info.min < 0 and value >> (info.bits - 1) else value


def low(value: int, width: int = 32) -> int:
    return value & ((1 << width) - 1)


def check(actual: Any, dtype: Any, function: Callable[..., int], *operands: Any) -> None:
    """The result has the dtype and the values of ``function``, wrapped; element 0 again as scalars."""
    wanted = [wrap(value, dtype) for value in exact.expect(function, *operands)]
    assert actual.dtype == dtype
    if actual.tolist() != wanted:
        index = next(i for i, (x, y) in enumerate(zip(actual.tolist(), wanted, strict=True)) if x != y)
        raise AssertionError(f"{[x[index] for x in operands]}: got {actual[index]!r}, exact {wanted[index]}")


def operands(seed: int, dtype: Any, count: int = 3, size: int = 300) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [exact.patterns(rng, dtype, size) for _ in range(count)]


def counts(seed: int, size: int = 300) -> Any:
    return np.random.default_rng(seed + 1).choice(
        np.array([0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0x10000, 0x10001, FULL32], np.uint32), size
    )


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@pytest.mark.parametrize("dtype", ALL)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_arithmetic(dtype: Any, seed: int) -> None:
    a, b, c = operands(seed, dtype)
    width = np.iinfo(dtype).bits
    check(integers.mul_hi(a, b), dtype, lambda x, y: (x * y) >> width, a, b)
    check(integers.mad_hi(a, b, c), dtype, lambda x, y, z: ((x * y) >> width) + z, a, b, c)
    check(integers.div(a, b), dtype, lambda x, y: truncated(x, y) if y else -1, a, b)
    check(integers.rem(a, b), dtype, lambda x, y: x - truncated(x, y) * y if y else -1, a, b)
    check(integers.sad(a, b, c), dtype, lambda x, y, z: z + abs(x - y), a, b, c)
    check(integers.minimum(a, b), dtype, min, a, b)
    check(integers.maximum(a, b, relu=True), dtype, lambda x, y: max(x, y, 0), a, b)
    check(integers.minimum(a, b, relu=True), dtype, lambda x, y: max(min(x, y), 0), a, b)
    if np.iinfo(dtype).min < 0:
        check(integers.absolute(a), dtype, abs, a)
        check(integers.negate(a), dtype, lambda x: -x, a)
    if width < 64:
        wide = np.dtype(f"{np.dtype(dtype).kind}{width // 4}")
        check(integers.mul_wide(a, b), wide, lambda x, y: x * y, a, b)
    n = counts(seed)
    check(integers.shl(a, n), dtype, lambda x, k: x << min(k, 99), a, n)
    check(integers.shr(a, n), dtype, lambda x, k: x >> min(k, 99), a, n)
    check(integers.shr(a, n.view(np.int32)), dtype, lambda x, k: x >> min(k, 99), a, n)
    for function in (integers.mul_hi, integers.div, integers.rem, integers.shr):
        scalar = function(a[0], np.uint32(3) if function is integers.shr else b[0])
        array = function(a[:1], np.uint32(3) if function is integers.shr else b[:1])
        assert type(scalar) is dtype
        assert scalar == array[0]


def test_division_edges_and_the_host_would_be_caught() -> None:
    low32 = np.int32(-(2**31))
    assert integers.div(low32, np.int32(-1)) == low32
    assert integers.rem(low32, np.int32(-1)) == 0
    assert integers.div(np.uint32(7), np.uint32(0)) == FULL32
    assert integers.rem(np.int32(-7), np.int32(0)) == -1  # as an H200 does
    # The broken twin: NumPy's own division floors, and gives 0 by zero.
    a, b = np.array([-7, 7], np.int32), np.array([2, 0], np.int32)
    assert (a // b).tolist() != integers.div(a, b).tolist() == [-3, -1]


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_24_bits_and_saturation(seed: int) -> None:
    for dtype in (np.int32, np.uint32):
        a, b, c = operands(seed, dtype)

        def low24(x: int, dtype: Any = dtype) -> int:
            x &= 0xFFFFFF
            return x - (1 << 24) if dtype is np.int32 and x >> 23 else x

        check(integers.mul24_lo(a, b), dtype, lambda x, y: low24(x) * low24(y), a, b)
        check(integers.mul24_hi(a, b), dtype, lambda x, y: (low24(x) * low24(y)) >> 16, a, b)
        check(integers.mad24_lo(a, b, c), dtype, lambda x, y, z: low24(x) * low24(y) + z, a, b, c)
        check(integers.mad24_hi(a, b, c), dtype, lambda x, y, z: ((low24(x) * low24(y)) >> 16) + z, a, b, c)

    def clamp(x: int) -> int:
        return min(max(x, -(2**31)), 2**31 - 1)

    a, b, c = operands(seed, np.int32)
    check(integers.add_sat(a, b), np.int32, lambda x, y: clamp(x + y), a, b)
    check(integers.sub_sat(a, b), np.int32, lambda x, y: clamp(x - y), a, b)
    check(integers.mad_hi(a, b, c, sat=True), np.int32, lambda x, y, z: clamp(((x * y) >> 32) + z), a, b, c)
    wanted = [
        clamp(wrap(((wrap(x << 8, np.int32) >> 8) * (wrap(y << 8, np.int32) >> 8)) >> 16, np.int32) + z)
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert integers.mad24_hi(a, b, c, sat=True).tolist() == wanted


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_funnel_shifts(seed: int) -> None:
    a, b = operands(seed, np.uint32, 2)
    n = counts(seed)
    for wrapped in (True, False):

        def amount(k: int, wrapped: bool = wrapped) -> int:
            return k & 31 if wrapped else min(k, 32)

        left = integers.shf_l(a, b, n, wrapped)
        check(left, np.uint32, lambda x, y, k: ((y << 32 | x) << amount(k)) >> 32, a, b, n)
        check(integers.shf_r(a, b, n, wrapped), np.uint32, lambda x, y, k: (y << 32 | x) >> amount(k), a, b, n)
    assert type(integers.shf_l(np.int32(-1), np.int32(0), np.int32(4))) is np.int32


@pytest.mark.parametrize("dtype", WORDS)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_carries(dtype: Any, seed: int) -> None:
    a, b, c = operands(seed, dtype)
    carry = np.random.default_rng(seed).random(300) < 0.5
    width = np.iinfo(dtype).bits

    def u(x: int) -> int:
        return low(x, width)

    for cin in (carry, np.False_):
        bit = np.broadcast_to(cin, 300)
        total, out = integers.add_cc(a, b, cin)
        check(total, dtype, lambda x, y, k: x + y + k, a, b, bit)
        assert out.tolist() == exact.expect(lambda x, y, k: (u(x) + u(y) + k) >> width == 1, a, b, bit)
        total, out = integers.sub_cc(a, b, cin)
        check(total, dtype, lambda x, y, k: x - y - k, a, b, bit)
        assert out.tolist() == exact.expect(lambda x, y, k: u(x) < u(y) + k, a, b, bit)
        total, out = integers.mad_hi_cc(a, b, c, cin)
        check(total, dtype, lambda x, y, z, k: ((x * y) >> width) + z + k, a, b, c, bit)
        assert out.tolist() == exact.expect(
            lambda x, y, z, k: (u((x * y) >> width) + u(z) + k) >> width == 1, a, b, c, bit
        )
        total, out = integers.mad_lo_cc(a, b, c, cin)
        assert out.tolist() == exact.expect(lambda x, y, z, k: (u(x * y) + u(z) + k) >> width == 1, a, b, c, bit)


def _parts(x: int, width: int, signed: bool) -> list[int]:
    parts = [(x >> shift) & ((1 << width) - 1) for shift in range(0, 32, width)]
    return [p - (1 << width) if signed and p >> (width - 1) else p for p in parts]


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_dot_products_and_pairs(seed: int) -> None:
    for a_signed in (True, False):
        for b_signed in (True, False):
            dtype = np.int32 if a_signed or b_signed else np.uint32
            a, b, c = operands(seed, dtype)

            def dot4(x: int, y: int, z: int, s: bool = a_signed, t: bool = b_signed) -> int:
                return z + sum(p * q for p, q in zip(_parts(x, 8, s), _parts(y, 8, t), strict=True))

            check(integers.dp4a(a, b, c, a_signed, b_signed), dtype, dot4, a, b, c)
            for high in (False, True):

                def dot2(x: int, y: int, z: int, s: bool = a_signed, t: bool = b_signed, h: bool = high) -> int:
                    bytes_ = _parts(y, 8, t)[2:] if h else _parts(y, 8, t)[:2]
                    return z + sum(p * q for p, q in zip(_parts(x, 16, s), bytes_, strict=True))

                check(integers.dp2a(a, b, c, a_signed, b_signed, high), dtype, dot2, a, b, c)
    a, b = operands(seed, np.int32, 2)

    def pairs(function: Callable[[int, int], int], signed: bool) -> Callable[[int, int], int]:
        def both(x: int, y: int) -> int:
            first, second = (
                function(p, q) & 0xFFFF for p, q in zip(_parts(x, 16, signed), _parts(y, 16, signed), strict=True)
            )
            return first | second << 16

        return both

    check(integers.add_x2(a, b), np.int32, pairs(lambda x, y: x + y, False), a, b)
    check(integers.min_x2(a, b, True), np.int32, pairs(min, True), a, b)
    check(integers.max_x2(a, b, False), np.int32, pairs(max, False), a, b)
    check(integers.max_x2(a, b, True, relu=True), np.int32, pairs(lambda x, y: max(x, y, 0), True), a, b)
    check(integers.min_x2(a, b, True, relu=True), np.int32, pairs(lambda x, y: max(min(x, y), 0), True), a, b)


@pytest.mark.parametrize("dtype", WORDS)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_counting_bits(dtype: Any, seed: int) -> None:
    (a,) = operands(seed, dtype, 1)
    width = np.iinfo(dtype).bits
    signed = np.iinfo(dtype).min < 0

    def find(x: int) -> int:
        return (~x if x < 0 else x).bit_length() - 1

    check(bits.popc(a), np.uint32, lambda x: low(x, width).bit_count(), a)
    check(bits.clz(a), np.uint32, lambda x: width - low(x, width).bit_length(), a)
    check(bits.bfind(a), np.uint32, find, a)
    check(bits.bfind(a, shiftamt=True), np.uint32, lambda x: width - 1 - find(x) if find(x) >= 0 else -1, a)
    check(bits.brev(a), dtype, lambda x: int(f"{low(x, width):0{width}b}"[::-1], 2), a)
    check(bits.cnot(a), dtype, lambda x: x == 0, a)
    assert type(bits.clz(a[0])) is np.uint32
    position, length = counts(seed), counts(seed + 7)
    mask = 0xFF if width == 32 else 0xFFFFFFFF  # of 64-bit forms an H200 takes all bits of the counts

    def extract(x: int, at: int, size: int) -> int:
        at, size = at & mask, size & mask
        sign = low(x, width) >> min(at + size - 1, width - 1) & 1 if signed and size else 0
        field = [low(x, width) >> (at + i) & 1 if i < size and at + i < width else sign for i in range(width)]
        return sum(bit << i for i, bit in enumerate(field))

    def insert(x: int, y: int, at: int, size: int) -> int:
        for i in range(min(size & mask, max(width - (at & mask), 0))):
            spot = 1 << ((at & mask) + i)
            y = y | spot if x >> i & 1 else y & ~spot
        return y

    check(bits.bfe(a, position, length), dtype, extract, a, position, length)
    (b,) = operands(seed + 1, dtype, 1)
    check(bits.bfi(a, b, position, length), dtype, insert, a, b, position, length)
    assert bits.bfe(a[0], np.uint32(4), np.uint32(8)) == wrap(extract(int(a[0]), 4, 8), dtype)


_MODES = {
    "f4e": lambda c: [c, c + 1, c + 2, c + 3],
    "b4e": lambda c: [c, (c - 1) % 8, (c - 2) % 8, (c - 3) % 8],
    "rc8": lambda c: [c] * 4,
    "ecl": lambda c: [max(c, i) for i in range(4)],
    "ecr": lambda c: [min(c, i) for i in range(4)],
    "rc16": lambda c: [2 * (c & 1), 2 * (c & 1) + 1] * 2,
}


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_prmt(seed: int) -> None:
    a, b, c = operands(seed, np.uint32)

    def generic(x: int, y: int, control: int) -> int:
        source = (y << 32 | x).to_bytes(8, "little")
        result = 0
        for i in range(4):
            nibble = control >> 4 * i & 15
            byte = source[nibble & 7]
            result |= (0xFF * (byte >> 7) if nibble & 8 else byte) << 8 * i
        return result

    check(bits.prmt(a, b, c), np.uint32, generic, a, b, c)
    for control in (0x5410, 0x7632, 0x3210, 0x0123, 0xBA98, int(c[0])):
        check(bits.prmt(a, b, np.uint32(control)), np.uint32, lambda x, y, k=control: generic(x, y, k), a, b)
    for mode, spots in _MODES.items():

        def special(x: int, y: int, control: int, spots: Callable[[int], list[int]] = spots) -> int:
            source = (y << 32 | x).to_bytes(8, "little")
            return int.from_bytes(bytes(source[i] for i in spots(control & 3)), "little")

        check(bits.prmt(a, b, c, mode), np.uint32, special, a, b, c)
        check(bits.prmt(a, b, c[1], mode), np.uint32, lambda x, y, f=special: f(x, y, int(c[1])), a, b)


def test_lop3_every_table() -> None:
    # All eight combinations of bits sit in the low byte of the table's own masks.
    a, b, c = np.int32(0xF0), np.int32(0xCC), np.int32(0xAA)
    for lut in range(256):
        assert int(bits.lop3(a, b, c, lut)) & 0xFF == lut
        assert bits.lop3(np.full(3, a), b, c, lut).shape == (3,)


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_masks_and_extensions(seed: int) -> None:
    (a,) = operands(seed, np.uint32, 1)
    n, m = counts(seed), counts(seed + 3)

    def mask(start: int, size: int) -> int:
        return sum(1 << i for i in range(32) if start <= i < start + size)

    check(bits.bmsk(n, m), np.uint32, mask, n, m)
    check(bits.bmsk(n, m, wrap=True), np.uint32, lambda x, y: mask(x & 31, y & 31), n, m)

    def extend(x: int, size: int) -> int:
        if size == 0:
            return 0
        part = x & ((1 << min(size, 32)) - 1)
        return part - (1 << size) if size < 32 and part >> (size - 1) else part

    check(bits.szext(a, n), np.uint32, lambda x, k: low(x, min(k, 32)), a, n)
    check(bits.szext(a, n, wrap=True), np.uint32, lambda x, k: low(x, k & 31), a, n)
    check(bits.szext(a.view(np.int32), n), np.int32, lambda x, k: extend(low(x), k), a, n)
    check(bits.szext(a.view(np.int32), n, wrap=True), np.int32, lambda x, k: extend(low(x), k & 31), a, n)

    def nth(word: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if word >> base & 1 else -1
        spots = range(base, 32) if offset > 0 else range(base, -1, -1)
        hits = [i for i in spots if word >> i & 1]
        return hits[abs(offset) - 1] if abs(offset) <= len(hits) else -1

    rng = np.random.default_rng(seed)
    base = rng.integers(0, 32, 300).astype(np.uint32)
    offset = rng.integers(-33, 34, 300).astype(np.int32)
    check(bits.fns(a, base, offset), np.uint32, nth, a, base, offset)
    assert bits.fns(np.uint32(0xAAAAAAAA), np.uint32(2), np.int32(-1)) == 1


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_moves_between_widths(seed: int) -> None:
    (a,) = operands(seed, np.int64, 1)
    word = a.view(np.uint64)
    for count, dtype in ((2, np.int32), (4, np.uint16), (8, np.uint8)):
        parts = bits.unpack(a, count)
        for index, part in enumerate(parts):
            check(part, dtype, lambda x, i=index, n=count: x >> (64 // n * i), word)
        if count < 8:
            assert (bits.pack(parts) == a).all()
    assert bits.pack((np.uint16(0x1234), np.int16(-1))) == np.int32(-0xEDCC)
    assert bits.pack((np.float32(1.0), np.float32(-0.0))) == np.int64(0x3F800000 - 2**63)
    assert [int(x) for x in bits.unpack(np.int32(-2), 2)] == [0xFFFE, 0xFFFF]
    assert bits.pack((np.uint8(1), np.uint8(2), np.uint8(3), np.uint8(4))) == 0x04030201
