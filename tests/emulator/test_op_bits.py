"""Bit manipulation and packed integers through PTX text, against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from op_harness import Program, check, samples, signed
from test_op_integers import count, wrap


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counting(bits: int) -> None:
    check(f"popc.b{bits}", "u32", [f"b{bits}"], lambda a: a.bit_count())
    check(f"clz.b{bits}", "u32", [f"b{bits}"], lambda a: bits - a.bit_length())
    check(f"brev.b{bits}", f"b{bits}", [f"b{bits}"], lambda a: int(f"{a:0{bits}b}"[::-1], 2))
    for sign in "us":

        def find(a: int, sign: str = sign) -> int:
            a = ~a & ((1 << bits) - 1) if sign == "s" and a >> (bits - 1) else a
            return (a.bit_length() - 1) & 0xFFFFFFFF

        check(f"bfind.{sign}{bits}", "u32", [f"{sign}{bits}"], find)
        check(
            f"bfind.shiftamt.{sign}{bits}",
            "u32",
            [f"{sign}{bits}"],
            lambda a: bits - 1 - find(a) if find(a) != 0xFFFFFFFF else 0xFFFFFFFF,
        )


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields(bits: int) -> None:
    rng = np.random.default_rng(bits)
    given = [samples(rng, f"b{bits}", 576), count(bits), np.roll(count(bits), 100)]
    mask = 0xFF if bits == 32 else 0xFFFFFFFF  # of 64-bit forms an H200 takes all bits of the counts

    def extract(signed_: bool) -> Callable[[int, int, int], int]:
        def bfe(a: int, b: int, c: int) -> int:
            """The loop of the PTX ISA."""
            position, length = b & mask, c & mask
            sign = 0 if not signed_ or length == 0 else (a >> min(position + length - 1, bits - 1)) & 1
            out = 0
            for i in range(bits):
                bit = (a >> (position + i)) & 1 if i < length and position + i < bits else sign
                out |= bit << i
            return out

        return bfe

    def insert(a: int, b: int, c: int, d: int) -> int:
        position, length = c & mask, d & mask
        for i in range(min(length, bits)):
            if position + i < bits:
                b = b & ~(1 << (position + i)) | ((a >> i & 1) if i < bits else 0) << (position + i)
        return b

    check(f"bfe.u{bits}", f"u{bits}", [f"u{bits}", "u32", "u32"], extract(False), given=given)
    check(f"bfe.s{bits}", f"s{bits}", [f"s{bits}", "u32", "u32"], extract(True), given=given)
    both = [samples(rng, f"b{bits}", 576), *given]
    check(f"bfi.b{bits}", f"b{bits}", [f"b{bits}"] * 2 + ["u32", "u32"], insert, given=both)


def permute(a: int, b: int, selector: int) -> int:
    source = a | b << 32
    out = 0
    for i in range(4):
        control = selector >> (4 * i) & 15
        byte = source >> (8 * (control & 7)) & 0xFF
        out |= (byte if control < 8 else 0xFF * (byte >> 7)) << (8 * i)
    return out


def test_prmt() -> None:
    rng = np.random.default_rng(3)
    data = [samples(rng, "b32", 576), samples(rng, "b32", 576)]
    selectors = rng.integers(0, 1 << 32, 576, dtype=np.uint32)
    check("prmt.b32", "b32", ["b32"] * 3, permute, given=[*data, selectors])
    for value in (0x5410, 0x7632, 0x3210, 0x0123, 0x7777, 0xFEDC, 0x8888, 0x1054, 0x6543):
        check(
            "prmt.b32", "b32", ["b32"] * 2, lambda a, b, v=value: permute(a, b, v), constants=[hex(value)], given=data
        )
    # PTX ISA, table of the modes: source bytes of d.b3 … d.b0.
    modes = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    for mode, rows in modes.items():

        def oracle(a: int, b: int, c: int, rows: list[str] = rows) -> int:
            return permute(a, b, int(rows[c & 3], 16))

        check(f"prmt.b32.{mode}", "b32", ["b32"] * 3, oracle, given=[*data, selectors])


def test_lop3() -> None:
    def by_table(a: int, b: int, c: int, lut: int) -> int:
        return sum((lut >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))

    for lut in range(0, 256, 5):
        check(
            "lop3.b32",
            "b32",
            ["b32"] * 3,
            lambda a, b, c, lut=lut: by_table(a, b, c, lut),
            constants=[hex(lut)],
            threads=192,
        )
    rng = np.random.default_rng(1)
    arrays = [*(samples(rng, "b32", 192) for _ in range(3)), samples(rng, "pred", 192)]
    for name, join in (("or", lambda p, q: p | q), ("and", lambda p, q: p & q), ("xor", lambda p, q: p ^ q)):
        body = f"lop3.{name}.b32 %o0|%o1, %i0, %i1, %i2, 0x80, %i3;"
        value, flag = Program(["b32"] * 3 + ["pred"], ["b32", "pred"], body).run(arrays, 192)
        wanted = arrays[0] & arrays[1] & arrays[2]
        assert (value == wanted).all()
        assert (flag == join(wanted != 0, arrays[3] != 0)).all()


@pytest.mark.parametrize("a_type", ["s32", "u32"])
@pytest.mark.parametrize("b_type", ["s32", "u32"])
def test_dot_products(a_type: str, b_type: str) -> None:
    result = "s32" if "s32" in (a_type, b_type) else "u32"

    def part(x: int, at: int, bits: int, type_: str) -> int:
        field = x >> (bits * at) & ((1 << bits) - 1)
        return signed(field, bits) if type_ == "s32" else field

    types = [a_type, b_type, result]
    check(
        f"dp4a.{a_type}.{b_type}",
        result,
        types,
        lambda a, b, c: wrap("u32", c + sum(part(a, k, 8, a_type) * part(b, k, 8, b_type) for k in range(4))),
    )
    for half, first in (("lo", 0), ("hi", 2)):
        check(
            f"dp2a.{half}.{a_type}.{b_type}",
            result,
            types,
            lambda a, b, c, first=first: wrap(
                "u32", c + sum(part(a, k, 16, a_type) * part(b, k + first, 8, b_type) for k in range(2))
            ),
        )


def test_packed() -> None:
    def halves(function: Callable[[int, int], int], sign: bool) -> Callable[[int, int], int]:
        def both(a: int, b: int) -> int:
            out = 0
            for shift in (0, 16):
                x, y = a >> shift & 0xFFFF, b >> shift & 0xFFFF
                out |= (function(*((signed(v, 16) if sign else v) for v in (x, y))) & 0xFFFF) << shift
            return out

        return both

    for type_, sign in (("s16x2", True), ("u16x2", False)):
        operands = ["b32", "b32"]
        check(f"add.{type_}", "b32", operands, halves(lambda a, b: a + b, sign))
        check(f"min.{type_}", "b32", operands, halves(min, sign))
        check(f"max.{type_}", "b32", operands, halves(max, sign))
    check("min.relu.s16x2", "b32", ["b32"] * 2, halves(lambda a, b: max(min(a, b), 0), True))
    check("max.relu.s16x2", "b32", ["b32"] * 2, halves(lambda a, b: max(a, b, 0), True))


def test_masks() -> None:
    rng = np.random.default_rng(2)
    counts = [count(32), np.roll(count(32), 99)]

    def ones(a: int, b: int) -> int:
        return ((1 << min(b, 32)) - 1) << min(a, 32) & 0xFFFFFFFF

    check("bmsk.clamp.b32", "b32", ["b32"] * 2, ones, given=counts)
    check("bmsk.wrap.b32", "b32", ["b32"] * 2, lambda a, b: ones(a & 31, b & 31), given=counts)
    for sign in "us":

        def extend(a: int, n: int, sign: str = sign) -> int:
            if n == 0:
                return 0
            field = a & ((1 << n) - 1)
            return (signed(field, n) if sign == "s" else field) & 0xFFFFFFFF

        given = [samples(rng, "b32", 576), counts[0]]
        check(
            f"szext.clamp.{sign}32", f"{sign}32", [f"{sign}32", "u32"], lambda a, n: extend(a, min(n, 32)), given=given
        )
        check(f"szext.wrap.{sign}32", f"{sign}32", [f"{sign}32", "u32"], lambda a, n: extend(a, n & 31), given=given)


def test_fns() -> None:
    rng = np.random.default_rng(2)
    given = [samples(rng, "b32", 576), rng.integers(0, 32, 576, dtype=np.uint32)]
    given.append(rng.integers(-8, 9, 576).astype(np.int32).view(np.uint32))

    def nth(mask: int, base: int, offset: int) -> int:
        """The loop of the PTX ISA."""
        offset = signed(offset, 32)
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        found, position, step = 0, base, 1 if offset > 0 else -1
        while 0 <= position < 32:
            found += mask >> position & 1
            if found == abs(offset):
                return position
            position += step
        return 0xFFFFFFFF

    check("fns.b32", "b32", ["b32", "b32", "s32"], nth, given=given)
