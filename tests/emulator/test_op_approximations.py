"""Approximate float instructions through PTX text, within units in the last place, and their special values."""

from __future__ import annotations

import math
from collections.abc import Callable

import arithmetic_oracle as exact
import numpy as np
import pytest
from op_harness import DECODE, check, encode, samples, to_f32, to_f64, width
from test_op_floats import FORMATS, THREADS, both_nan, finish, flush, packed, reciprocal, rounding, tiny

from tilewright.emulator.arithmetic import approx


def guarded(function: Callable[..., float]) -> Callable[..., float]:
    """``function`` with the values of C's mathematics where Python raises."""

    def safe(*values: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*(np.float64(x) for x in values)))

    return safe


APPROX: dict[str, Callable[..., float]] = {
    "ex2": guarded(np.exp2), "lg2": guarded(np.log2), "sin": guarded(np.sin), "cos": guarded(np.cos),
    "rcp": guarded(lambda x: 1 / x), "sqrt": guarded(np.sqrt), "rsqrt": guarded(lambda x: 1 / np.sqrt(x)),
}  # fmt: skip


def within(type_: str, ulps: int) -> Callable[[int, int], bool]:
    """NaN for NaN, else the same sign and so many units in the last place apart."""

    def near(a: int, b: int) -> bool:
        top = 1 << (width(type_) - 1)
        if both_nan(type_)(a, b):
            return True
        return (a & top) == (b & top) and abs((a & ~top) - (b & ~top)) <= ulps

    return near


@pytest.mark.parametrize("name", list(APPROX))
@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_approximate(name: str, ftz: str) -> None:
    def oracle(a: int) -> int:
        value = to_f32(a)
        value = flush("f32", value) if ftz else value
        result = float(np.float32(min(max(APPROX[name](value), -1e39), 1e39)))
        return encode("f32", flush("f32", result) if ftz else result)

    with np.errstate(over="ignore"):
        check(f"{name}.approx{ftz}.f32", "f32", ["f32"], oracle, threads=THREADS, is_same=within("f32", 1))


def test_other_approximations() -> None:
    def tanh(type_: str) -> Callable[[int], int]:
        def oracle(a: int) -> int:
            value = math.tanh(DECODE[type_](a))
            return encode(type_, exact.rounded(*value.as_integer_ratio(), FORMATS[type_], zero=value)
                          if value == value else value)  # fmt: skip

        return oracle

    def ex2(type_: str) -> Callable[[int], int]:
        def oracle(a: int) -> int:
            value = APPROX["ex2"](DECODE[type_](a))
            if not math.isfinite(value):
                return encode(type_, value)
            return encode(type_, exact.rounded(*value.as_integer_ratio(), FORMATS[type_], zero=0.0))

        return oracle

    for type_ in ("f32", "f16", "bf16"):
        check(f"tanh.approx.{type_}", type_, [type_], tanh(type_), threads=THREADS, is_same=within(type_, 1))
    for type_ in ("f16", "bf16"):
        near = within(type_, 1)
        name = "ex2.approx.ftz.bf16" if type_ == "bf16" else "ex2.approx.f16"
        check(
            name,
            type_,
            [type_],
            lambda a, name=name, type_=type_: finish(type_, DECODE[type_](ex2(type_)(a)), name),
            threads=THREADS,
            is_same=near,
        )
        if type_ == "f16":
            pairs = packed(type_, ex2(type_))
            check("ex2.approx.f16x2", "b32", ["f16x2"], pairs, threads=THREADS,
                  is_same=lambda a, b, near=near: near(a & 0xFFFF, b & 0xFFFF) and near(a >> 16, b >> 16))  # fmt: skip
            check("tanh.approx.f16x2", "b32", ["f16x2"], packed(type_, tanh(type_)), threads=THREADS,
                  is_same=lambda a, b, near=near: near(a & 0xFFFF, b & 0xFFFF) and near(a >> 16, b >> 16))  # fmt: skip


def test_approximate_division() -> None:
    def full(a: int, b: int) -> int:
        return encode("f32", exact.div(to_f32(a), to_f32(b), exact.F32, "rn"))

    check("div.full.f32", "f32", ["f32"] * 2, full, threads=THREADS, is_same=within("f32", 2))

    def approximate(a: int, b: int) -> int:
        x, y = to_f32(a), to_f32(b)
        if 2.0**126 < abs(y) < math.inf:  # PTX ISA: 0, or a NaN
            sign = math.copysign(1, x) * math.copysign(1, y)
            return encode("f32", math.nan if math.isinf(x) or math.isnan(x) else math.copysign(0.0, sign))
        return full(a, b)

    rng = np.random.default_rng(7)
    check("div.approx.f32", "f32", ["f32"] * 2, approximate, threads=THREADS, is_same=within("f32", 2),
          given=[samples(rng, "f32", THREADS), samples(rng, "f32", THREADS)])  # fmt: skip


def test_approximate_double() -> None:
    """As on an H200: upper words alone, subnormals flushed, one NaN."""

    def of(function: Callable[[float], int]) -> Callable[[int], int]:
        def oracle(a: int) -> int:
            value = to_f64(a >> 32 << 32)
            result = function(flush("f64", value))
            if math.isnan(to_f64(result)):
                return 0x7FFFFFFF00000000
            result = result if abs(to_f64(result)) >= tiny("f64") else result >> 63 << 63
            return result >> 32 << 32

        return oracle

    def inverse_root(a: float) -> int:
        if a == 0 or a < 0 or math.isnan(a):
            return encode("f64", math.copysign(math.inf, a) if a == 0 else math.nan)
        return encode("f64", 1 / math.sqrt(a))

    inverse = rounding(reciprocal, "f64", "rn", "")

    def near(a: int, b: int) -> bool:
        return abs(a - b) <= 1 << 32

    check("rcp.approx.ftz.f64", "f64", ["f64"], of(lambda x: inverse(encode("f64", x))), threads=THREADS, is_same=near)
    check("rsqrt.approx.ftz.f64", "f64", ["f64"], of(inverse_root), threads=THREADS, is_same=near)
    measured = {
        0x000FFFFFFFFFFFFF: 0x7FF0000000000000, 0x7FEFFFFFFFFFFFFF: 0, 0x7FF0000000000001: 0,
        0x7FF8000000000000: 0x7FFFFFFF00000000, 0xFFF0000000000001: 1 << 63, 0x8000000000000001: 0xFFF0000000000000,
    }  # fmt: skip
    x = np.array(list(measured), np.uint64).view(np.float64)
    with np.errstate(all="ignore"):
        assert approx.rcp(x, ftz=True).view(np.uint64).tolist() == list(measured.values())
        roots = approx.rsqrt(np.array([1, 0xC010000000000000], np.uint64).view(np.float64), ftz=True)
    assert roots.view(np.uint64).tolist() == [0x7FF0000000000000, 0x7FFFFFFF00000000]
