"""cvt between floats, and mov of packed values, through PTX text, against fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import arithmetic_oracle as exact
import numpy as np
import pytest
from op_harness import DECODE, Program, check, encode, samples, signed, to_bf16, to_f16, to_f32, width
from test_op_floats import FORMATS, both_nan, finish, flush
from test_op_integer_conversions import FLOATS, to_integral

THREADS = 192


def narrowed(to: str, source: str, mode: str, flags: str) -> Callable[[int], int]:
    def oracle(a: int) -> int:
        value = DECODE[source](a)
        if "ftz" in flags and source == "f32":
            value = flush(source, value)
        if math.isfinite(value):
            value = exact.rounded(*value.as_integer_ratio(), FORMATS[to], mode, zero=value)
        if "satfinite" in flags and math.isinf(value):
            value = math.copysign(FORMATS[to].largest, value)
        flags_here = flags.replace("satfinite", "").replace("ftz", "ftz" if to == "f32" else "")
        return finish(to, value, flags_here)

    return oracle


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_between_floats(to: str, source: str) -> None:
    same = both_nan(to) if to == "f64" or (source == to) or (to, source) == ("f32", "bf16") else None
    if FORMATS[to].precision < FORMATS[source].precision or {to, source} == {"f16", "bf16"}:
        for mode in ("rn", "rz", "rm", "rp"):
            name = f"cvt.{mode}.{to}.{source}"
            check(name, to, [source], narrowed(to, source, mode, ""), threads=THREADS, immediates=[], is_same=same)
    elif to != source:
        check(f"cvt.{to}.{source}", to, [source], narrowed(to, source, "rn", ""), threads=THREADS, immediates=[],
              is_same=same)  # fmt: skip
    if source == "f32" and to in ("f16", "bf16"):
        for flags in (".relu", ".satfinite", ".relu.satfinite"):
            check(f"cvt.rn{flags}.{to}.f32", to, ["f32"], narrowed(to, source, "rn", flags), threads=THREADS,
                  immediates=[])  # fmt: skip
    if (to, source) in (("f32", "f64"), ("f16", "f32"), ("f32", "f16"), ("f64", "f32")):
        for flags in (".sat", ".ftz", ".ftz.sat"):
            mode = ".rn" if FORMATS[to].precision < FORMATS[source].precision else ""
            check(f"cvt{mode}{flags}.{to}.{source}", to, [source], narrowed(to, source, "rn", flags), threads=THREADS,
                  immediates=[], is_same=same)  # fmt: skip


@pytest.mark.parametrize("type_", FLOATS)
def test_rounding_to_integral(type_: str) -> None:
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for flags in ("", ".sat", ".ftz", ".ftz.sat") if type_ == "f32" else ("",):

            def oracle(a: int, rounding: str = rounding, flags: str = flags) -> int:
                value = DECODE[type_](a)
                if "ftz" in flags:
                    value = flush(type_, value)
                if math.isfinite(value):
                    value = math.copysign(float(abs(to_integral(value, rounding))), value)
                return finish(type_, value, flags.replace("ftz", ""))

            check(f"cvt.{rounding}{flags}.{type_}.{type_}", type_, [type_], oracle, threads=THREADS, immediates=[],
                  is_same=both_nan(type_))  # fmt: skip


def test_saturated_single() -> None:
    check("cvt.sat.f32.f32", "f32", ["f32"], lambda a: finish("f32", to_f32(a), "sat"), threads=THREADS, immediates=[])


def test_tf32() -> None:
    def oracle(mode: str, relu: bool) -> Callable[[int], int]:
        def one(a: int) -> int:
            value = to_f32(a)
            if value != value:  # as on an H200
                return a & ~0x1FFF if mode == "rna" else 0x7FFFE000
            if math.isinf(value):
                return 0 if relu and value < 0 else a
            size = abs(Fraction(value))
            bits = a & 0x7FFFFFFF
            below = bits & ~0x1FFF
            rest = bits & 0x1FFF
            up = rest >= 0x1000 if mode == "rna" else rest > 0x1000 or (rest == 0x1000 and below & 0x2000)
            up = False if mode == "rz" else up
            assert size >= 0
            out = below + (0x2000 if up else 0) | a & 0x80000000
            return 0 if relu and out >> 31 else out

        return one

    for mode in ("rn", "rna", "rz"):
        check(f"cvt.{mode}.tf32.f32", "b32", ["f32"], oracle(mode, False), threads=THREADS, immediates=[])
    check("cvt.rn.relu.tf32.f32", "b32", ["f32"], oracle("rn", True), threads=THREADS, immediates=[])


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_packed_halves(to: str) -> None:
    for mode in ("rn", "rz"):
        for flags in ("", ".relu", ".satfinite"):
            one = narrowed(to, "f32", mode, flags)
            check(f"cvt.{mode}{flags}.{to}x2.f32", "b32", ["f32", "f32"], lambda a, b, one=one: one(a) << 16 | one(b),
                  threads=THREADS)  # fmt: skip


# Of each small format: exponent bits, mantissa bits, bias, largest finite value, NaN's code.
SMALL = {
    "e4m3": (4, 3, 7, 448.0, 0x7F), "e5m2": (5, 2, 15, 57344.0, 0x7F), "e3m2": (3, 2, 3, 28.0, 0x1F),
    "e2m3": (2, 3, 1, 7.5, 0x1F), "e2m1": (2, 1, 1, 6.0, 0x07),
}  # fmt: skip


@cache
def decoded(name: str, code: int) -> float:
    exponent_bits, mantissa, bias, _, _ = SMALL[name]
    bits = 1 + exponent_bits + mantissa
    sign = -1.0 if code >> (bits - 1) & 1 else 1.0
    exponent, fraction = code >> mantissa & ((1 << exponent_bits) - 1), code & ((1 << mantissa) - 1)
    if name == "e4m3" and exponent == 15 and fraction == 7:
        return math.nan
    if name == "e5m2" and exponent == 31:
        return sign * math.inf if fraction == 0 else math.nan
    scale = 2.0 ** (max(exponent, 1) - bias - mantissa)
    return sign * (fraction + ((1 << mantissa) if exponent else 0)) * scale


def encoded(name: str, value: float, relu: bool) -> int:
    """The nearest code, ties to the even one, found among all of them."""
    exponent_bits, mantissa, _, largest, nan = SMALL[name]
    bits = 1 + exponent_bits + mantissa
    if value != value:
        return nan
    minus = math.copysign(1, value) < 0
    if relu and minus:
        return 0
    size = min(abs(value), largest)
    codes = [c for c in range(1 << (bits - 1)) if math.isfinite(decoded(name, c))]
    best = min(codes, key=lambda c: (abs(decoded(name, c) - size), c & 1))
    return best | (minus << (bits - 1))


@pytest.mark.parametrize("name", list(SMALL))
def test_small_floats(name: str) -> None:
    shift = 4 if name == "e2m1" else 8
    packed_type = "b8" if name == "e2m1" else "b16"
    rng = np.random.default_rng(0)
    scale = SMALL[name][3]
    values = (rng.normal(size=2 * THREADS) * scale * rng.choice([0.01, 0.2, 1.0], 2 * THREADS)).astype(np.float32)
    # Exactly between two codes, and the edges.
    codes = rng.integers(0, (1 << shift) - 1 if shift == 4 else 64, THREADS)
    middle = [(decoded(name, int(c)) + decoded(name, int(c) + 1)) / 2 for c in codes]
    values[:THREADS] = np.where(np.isfinite(middle), middle, 0)
    values[:6] = [math.inf, -math.inf, math.nan, -0.0, scale, -scale * 1.2]
    rng.shuffle(values)
    given = list(values.view(np.uint32).reshape(2, THREADS))
    for relu in ("", ".relu"):

        def of_two(a: float, b: float, relu: str = relu) -> int:
            return encoded(name, a, bool(relu)) << shift | encoded(name, b, bool(relu))

        check(f"cvt.rn.satfinite{relu}.{name}x2.f32", packed_type, ["f32", "f32"],
              lambda a, b: of_two(to_f32(a), to_f32(b)), given=given, threads=THREADS)  # fmt: skip
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16).view(np.uint32)
        check(f"cvt.rn.satfinite{relu}.{name}x2.f16x2", packed_type, ["f16x2"],
              lambda a: of_two(to_f16(a >> 16), to_f16(a & 0xFFFF)), given=[halves], threads=THREADS)  # fmt: skip

        def back(a: int, relu: str = relu) -> int:
            mask = (1 << shift) - 1 if shift == 4 else (1 << sum(SMALL[name][:2]) + 1) - 1
            parts = [decoded(name, x & mask) for x in (a, a >> shift)]
            low, high = (encode("f16", 0.0 if relu and math.copysign(1, x) < 0 else x) for x in parts)
            return high << 16 | low

        packed = rng.integers(0, 1 << 2 * shift, THREADS).astype(f"u{width(packed_type) // 8}")
        check(f"cvt.rn{relu}.f16x2.{name}x2", "b32", [packed_type], back, given=[packed], threads=THREADS,
              immediates=[])  # fmt: skip


def test_powers_of_two() -> None:
    def code(value: float, mode: str) -> int:
        if value != value or math.isinf(value):
            return 0xFF if value != value else 0xFE
        fraction, exponent = math.frexp(abs(value))
        if value == 0 or exponent - 1 < -127:
            # 2**-127 is the smallest code; everything below it is rounded to it.
            return 0
        up = mode == "rp" and fraction > 0.5
        return min(exponent - 1 + up + 127, 0xFE)

    for mode in ("rz", "rp"):
        check(f"cvt.{mode}.satfinite.ue8m0x2.f32", "b16", ["f32", "f32"],
              lambda a, b, mode=mode: code(to_f32(a), mode) << 8 | code(to_f32(b), mode), threads=THREADS)  # fmt: skip

        def of_halves(a: int, mode: str = mode) -> int:
            return code(to_bf16(a >> 16), mode) << 8 | code(to_bf16(a & 0xFFFF), mode)

        check(f"cvt.{mode}.satfinite.ue8m0x2.bf16x2", "b16", ["bf16x2"], of_halves, threads=THREADS)

    def power(c: int) -> int:
        return 0x7FFF if c == 0xFF else encode("bf16", 2.0 ** (c - 127))

    check("cvt.rn.bf16x2.ue8m0x2", "b32", ["b16"], lambda a: power(a >> 8) << 16 | power(a & 0xFF), threads=THREADS,
          immediates=[])  # fmt: skip


def test_cvt_pack() -> None:
    for to, bits in (("s16", 16), ("u16", 16), ("s8", 8), ("u8", 8), ("s4", 4), ("u4", 4), ("s2", 2), ("u2", 2)):
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)

        def pair(a: int, b: int, low: int = low, high: int = high, bits: int = bits) -> int:
            x, y = (max(low, min(high, signed(v, 32))) & ((1 << bits) - 1) for v in (a, b))
            return x << bits | y

        if bits == 16:
            check(f"cvt.pack.sat.{to}.s32", "b32", ["s32", "s32"], pair, threads=THREADS)
        else:
            check(f"cvt.pack.sat.{to}.s32.b32", "b32", ["s32", "s32", "b32"],
                  lambda a, b, c, bits=bits: (c << 2 * bits | pair(a, b)) & 0xFFFFFFFF, threads=THREADS)  # fmt: skip


def test_packing_moves() -> None:
    rng = np.random.default_rng(0)
    a, b = samples(rng, "b64", THREADS), samples(rng, "b32", THREADS)
    guard = samples(rng, "pred", THREADS)
    body = """
    mov.b64 {%r0, %r1}, %i0; mov.b64 %o0, {%r1, %r0};
    mov.b64 {%h0, %h1, %h2, %h3}, %i0; mov.b64 %o1, {%h3, %h2, %h1, %h0};
    mov.b32 {%h4, %h5}, %i1; mov.b32 %o2, {%h5, %h4};
    mov.b64 {%f0, %f1}, %i0; mov.b64 %o3, {%f1, %f0};
    mov.b32 {%h6, %h7, %h8, %h9}, %i1; mov.b32 %o4, {%h9, %h8, %h7, %h6};
    mov.b64 {_, %o5}, %i0;
    mov.b32 %o6, %i1; mov.b32 %r9, 77; @%i2 mov.b64 {%o6, %r9}, %i0; mov.b32 %o7, %r9;
    mov.b32 %f5, %i1; mov.b32 %o8, %f5;
    mov.b16 {%h10, %h11}, %h4; mov.b16 %o9, {%h11, %h10};
    mov.b64 %o10, {7, %r0};
    """
    outputs = ["b64", "b64", "b32", "b64", "b32", "b32", "b32", "b32", "b32", "b16", "b64"]
    got = Program(["b64", "b32", "pred"], outputs, body).run([a, b, guard], THREADS)
    low, high = a & np.uint64(0xFFFFFFFF), a >> np.uint64(32)
    turned = low << np.uint64(32) | high
    assert (got[0] == turned).all()
    assert (got[1].view(np.uint16).reshape(-1, 4)[:, ::-1] == a.view(np.uint16).reshape(-1, 4)).all()
    assert (got[2] == (b << np.uint32(16) | b >> np.uint32(16))).all()
    assert (got[3] == turned).all()
    assert (got[4].view(np.uint8).reshape(-1, 4)[:, ::-1] == b.view(np.uint8).reshape(-1, 4)).all()
    assert (got[5] == high).all()
    assert (got[6] == np.where(guard != 0, low, b)).all()
    assert (got[7] == np.where(guard != 0, high, 77)).all()
    assert (got[8] == b).all()
    half = b.astype(np.uint16)
    assert (got[9] == (half << np.uint16(8) | half >> np.uint16(8))).all()
    assert (got[10] == (low << np.uint64(32) | np.uint64(7))).all()
