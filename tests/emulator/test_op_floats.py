"""Float instructions through PTX text, against fractions."""

from __future__ import annotations

import math
from collections.abc import Callable

import arithmetic_oracle as exact
import numpy as np
import pytest
from op_harness import DECODE, Program, check, encode, samples, to_f32, width

FORMATS = {"f32": exact.F32, "f64": exact.F64, "f16": exact.F16, "bf16": exact.BF16}
THREADS = 192


def tiny(type_: str) -> float:
    return {"f32": 2.0**-126, "f64": 2.0**-1022, "f16": 2.0**-14, "bf16": 2.0**-126}[type_]


def flush(type_: str, value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < tiny(type_) else value


def finish(type_: str, value: float, flags: str, is_below: bool = False) -> int:
    """``is_below``: the result is below the smallest normal number, though it is rounded to that in ``value``."""
    if "ftz" in flags:
        value = math.copysign(0.0, value) if is_below else flush(type_, value)
    if "sat" in flags:
        value = min(value, 1.0) if value > 0 else 0.0
    if "relu" in flags and (value < 0 or (value == 0 and math.copysign(1, value) < 0)):
        value = 0.0
    return encode(type_, value)


def both_nan(type_: str) -> Callable[[int, int], bool]:
    decode = DECODE[type_]
    return lambda a, b: math.isnan(decode(a)) and math.isnan(decode(b))


def rounding(function: Callable[..., float], type_: str, mode: str, flags: str) -> Callable[..., int]:
    def oracle(*bits: int) -> int:
        values = [DECODE[type_](x) for x in bits]
        if "ftz" in flags:
            values = [flush(type_, x) for x in values]
        result = function(*values, FORMATS[type_], mode)
        # An H200 judges the result as if its exponent had no bounds.
        is_below = type_ == "f32" and abs(function(*values, exact.Format(24, -400, 127), mode)) < tiny(type_)
        return finish(type_, result, flags, is_below)

    return oracle


def subtract(a: float, b: float, form: exact.Format, mode: str) -> float:
    return exact.add(a, -b, form, mode)


def reciprocal(a: float, form: exact.Format, mode: str) -> float:
    return exact.div(1.0, a, form, mode)


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_rounded(type_: str, mode: str) -> None:
    same = both_nan("f64") if type_ == "f64" else None
    for flags in ("", ".ftz", ".sat", ".ftz.sat") if type_ == "f32" else ("",):
        for name, function, count in (
            ("add", exact.add, 2),
            ("sub", subtract, 2),
            ("mul", exact.mul, 2),
            ("fma", exact.fma, 3),
            ("mad", exact.fma, 3),
        ):
            oracle = rounding(function, type_, mode, flags)
            check(f"{name}.{mode}{flags}.{type_}", type_, [type_] * count, oracle, threads=THREADS, is_same=same)
        if "sat" in flags:
            continue
        for name, function, count in (("div", exact.div, 2), ("rcp", reciprocal, 1), ("sqrt", exact.sqrt, 1)):
            oracle = rounding(function, type_, mode, flags)
            check(f"{name}.{mode}{flags}.{type_}", type_, [type_] * count, oracle, threads=THREADS, is_same=same)


def test_without_a_mode() -> None:
    for name, function in (("add", exact.add), ("sub", subtract), ("mul", exact.mul)):
        check(f"{name}.f32", "f32", ["f32"] * 2, rounding(function, "f32", "rn", ""), threads=THREADS)
        same = both_nan("f64")
        check(f"{name}.f64", "f64", ["f64"] * 2, rounding(function, "f64", "rn", ""), threads=THREADS, is_same=same)


def packed(type_: str, oracle: Callable[..., int]) -> Callable[..., int]:
    """An oracle of halves on both of a pair."""

    def both(*bits: int) -> int:
        return oracle(*(x & 0xFFFF for x in bits)) | oracle(*(x >> 16 for x in bits)) << 16

    return both


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_halves(type_: str) -> None:
    for flags in ("", ".sat", ".ftz") if type_ == "f16" else ("",):
        for name, function in (("add", exact.add), ("sub", subtract), ("mul", exact.mul)):
            oracle = rounding(function, type_, "rn", flags)
            check(f"{name}{flags}.{type_}", type_, [type_] * 2, oracle, threads=THREADS)
            check(f"{name}.rn{flags}.{type_}x2", "b32", [f"{type_}x2"] * 2, packed(type_, oracle), threads=THREADS)
    for flags in ("", ".sat", ".relu", ".ftz", ".ftz.relu") if type_ == "f16" else ("", ".relu"):
        oracle = rounding(exact.fma, type_, "rn", flags)
        check(f"fma.rn{flags}.{type_}", type_, [type_] * 3, oracle, threads=THREADS)
        check(f"fma.rn{flags}.{type_}x2", "b32", [f"{type_}x2"] * 3, packed(type_, oracle), threads=THREADS)


def test_f32x2() -> None:
    def pair(function: Callable[..., float], mode: str, flags: str) -> Callable[..., int]:
        one = rounding(function, "f32", mode, flags)
        return lambda *x: one(*(v & 0xFFFFFFFF for v in x)) | one(*(v >> 32 for v in x)) << 32

    rng = np.random.default_rng(0)

    def two() -> np.ndarray:
        return samples(rng, "f32", 2 * THREADS).view(np.uint64)

    for name, function, count in (("add", exact.add, 2), ("mul", exact.mul, 2), ("fma", exact.fma, 3)):
        for mode, flags in (("rn", ""), ("rz", ".ftz")):
            given = [two() for _ in range(count)]
            check(f"{name}.{mode}{flags}.f32x2", "b64", ["b64"] * count, pair(function, mode, flags), given=given,
                  threads=THREADS, immediates=[])  # fmt: skip


def extremum(type_: str, largest: bool, flags: str) -> Callable[..., int]:
    def oracle(*bits: int) -> int:
        values = [DECODE[type_](x) for x in bits]
        if "ftz" in flags:
            values = [flush(type_, x) for x in values]
        sign = math.copysign(1, values[0]) * math.copysign(1, values[1])
        if "abs" in flags:
            values = [abs(x) for x in values]
        if "NaN" in flags and any(x != x for x in values):
            return encode(type_, math.nan)
        here = [x for x in values if x == x]
        if not here:
            return encode(type_, math.nan)
        # -0 is below +0.
        best = (max if largest else min)(here, key=lambda x: (x, math.copysign(1, x)))
        return encode(type_, math.copysign(best, sign) if "xorsign" in flags else best)

    return oracle


@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema(name: str) -> None:
    largest = name == "max"
    for flags in ("", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
        check(f"{name}{flags}.f32", "f32", ["f32"] * 2, extremum("f32", largest, flags), threads=THREADS)
        for type_ in ("f16", "bf16"):
            if type_ == "bf16" and "ftz" in flags:
                continue
            oracle = extremum(type_, largest, flags)
            check(f"{name}{flags}.{type_}", type_, [type_] * 2, oracle, threads=THREADS)
            check(f"{name}{flags}.{type_}x2", "b32", [f"{type_}x2"] * 2, packed(type_, oracle), threads=THREADS)
    check(f"{name}.f64", "f64", ["f64"] * 2, extremum("f64", largest, ""), threads=THREADS, is_same=both_nan("f64"))
    check(f"{name}.f32", "f32", ["f32"] * 3, extremum("f32", largest, ""), threads=THREADS)
    check(f"{name}.abs.f32", "f32", ["f32"] * 3, extremum("f32", largest, ".abs"), threads=THREADS)


@pytest.mark.parametrize("type_", ["f32", "f64", "f16", "bf16"])
def test_signs(type_: str) -> None:
    top = 1 << (width(type_) - 1)
    check(f"abs.{type_}", type_, [type_], lambda a: a & ~top, threads=THREADS)
    check(f"neg.{type_}", type_, [type_], lambda a: a ^ top, threads=THREADS)
    if type_ in ("f32", "f64"):
        # PTX: the sign of a on b.
        check(f"copysign.{type_}", type_, [type_] * 2, lambda a, b: a & top | b & ~top, threads=THREADS)
    else:
        # Of packed halves an H200 makes every NaN the canonical one.
        def canonical(function: Callable[[int], int]) -> Callable[..., int]:
            return packed(type_, lambda a: 0x7FFF if math.isnan(DECODE[type_](a)) else function(a))

        check(f"abs.{type_}x2", "b32", [f"{type_}x2"], canonical(lambda a: a & ~top), threads=THREADS)
        check(f"neg.{type_}x2", "b32", [f"{type_}x2"], canonical(lambda a: a ^ top), threads=THREADS)
    if type_ in ("f32", "f16"):

        def small(a: int) -> int:
            return a & top if abs(DECODE[type_](a)) < tiny(type_) else a

        check(f"abs.ftz.{type_}", type_, [type_], lambda a: small(a) & ~top, threads=THREADS)
        check(f"neg.ftz.{type_}", type_, [type_], lambda a: small(a) ^ top, threads=THREADS)


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b and a == a and b == b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "equ": lambda a, b: not (a < b or a > b), "neu": lambda a, b: a != b, "ltu": lambda a, b: not a >= b,
    "leu": lambda a, b: not a > b, "gtu": lambda a, b: not a <= b, "geu": lambda a, b: not a < b,
    "num": lambda a, b: a == a and b == b, "nan": lambda a, b: a != a or b != b,
}  # fmt: skip


def compared(type_: str, name: str, ftz: bool) -> Callable[[int, int], bool]:
    def oracle(a: int, b: int) -> bool:
        x, y = DECODE[type_](a), DECODE[type_](b)
        return COMPARE[name](flush(type_, x), flush(type_, y)) if ftz else COMPARE[name](x, y)

    return oracle


@pytest.mark.parametrize("type_", ["f32", "f64", "f16", "bf16"])
def test_setp(type_: str) -> None:
    for name in COMPARE:
        test = compared(type_, name, False)
        check(f"setp.{name}.{type_}", "pred", [type_] * 2, lambda a, b, test=test: int(test(a, b)), threads=THREADS)
    test = compared(type_, "lt", True)
    if type_ in ("f32", "f16"):
        check(f"setp.lt.ftz.{type_}", "pred", [type_] * 2, lambda a, b: int(test(a, b)), threads=THREADS)
    check(
        f"setp.geu.and.{type_}",
        "pred",
        [type_, type_, "pred"],
        lambda a, b, c: int(compared(type_, "geu", False)(a, b) and bool(c)),
        threads=THREADS,
    )


@pytest.mark.parametrize("type_", ["f32", "f64", "f16", "bf16"])
def test_set(type_: str) -> None:
    for name in ("lt", "equ", "nan", "ge"):
        test = compared(type_, name, False)
        results = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000}
        if type_ in ("f16", "bf16"):
            results |= {type_: encode(type_, 1.0), "u16": 0xFFFF, "s16": 0xFFFF}
        for result, one in results.items():
            check(f"set.{name}.{result}.{type_}", result, [type_] * 2,
                  lambda a, b, one=one, test=test: test(a, b) * one, threads=THREADS)  # fmt: skip
            check(f"set.{name}.xor.{result}.{type_}", result, [type_, type_, "pred"],
                  lambda a, b, c, one=one, test=test: (test(a, b) != bool(c)) * one, threads=THREADS)  # fmt: skip
        if type_ in ("f16", "bf16"):
            one = encode(type_, 1.0)
            oracle = packed(type_, lambda a, b, one=one, test=test: test(a, b) * one)
            check(f"set.{name}.{type_}x2.{type_}x2", "b32", [f"{type_}x2"] * 2, oracle, threads=THREADS)
            oracle = packed(type_, lambda a, b, test=test: test(a, b) * 0xFFFF)
            check(f"set.{name}.u32.{type_}x2", "b32", [f"{type_}x2"] * 2, oracle, threads=THREADS)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_setp_of_pairs(type_: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (samples(rng, f"{type_}x2", 192) for _ in range(2))
    q, guard = samples(rng, "pred", 192), samples(rng, "pred", 192)
    body = f"mov.pred %o0, %i2; mov.pred %o1, %i2; @%i3 setp.ltu.and.{type_}x2 %o0|%o1, %i0, %i1, !%i2;"
    got = Program(["b32", "b32", "pred", "pred"], ["pred", "pred"], body).run([a, b, q, guard], 192)
    test = compared(type_, "ltu", False)
    for part, result in enumerate(got):
        shift = 16 * part
        fresh = [
            test(int(x) >> shift & 0xFFFF, int(y) >> shift & 0xFFFF) and not c for x, y, c in zip(a, b, q, strict=True)
        ]
        assert (result == np.where(guard != 0, fresh, q)).all()


def test_slct_by_float() -> None:
    def oracle(a: int, b: int, c: int) -> int:
        return a if to_f32(c) >= 0 else b

    def flushed(a: int, b: int, c: int) -> int:
        return a if flush("f32", to_f32(c)) >= 0 else b

    for type_ in ("f32", "u64", "s16", "f64"):
        check(f"slct.{type_}.f32", type_, [type_, type_, "f32"], oracle, threads=THREADS)
        check(f"slct.ftz.{type_}.f32", type_, [type_, type_, "f32"], flushed, threads=THREADS)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_testp(type_: str) -> None:
    tests: dict[str, Callable[[float], bool]] = {
        "finite": math.isfinite,
        "infinite": math.isinf,
        "number": lambda x: x == x,
        "notanumber": math.isnan,
        "normal": lambda x: math.isfinite(x) and (abs(x) >= tiny(type_) or x == 0),
        "subnormal": lambda x: 0 < abs(x) < tiny(type_),
    }
    for name, test in tests.items():
        check(
            f"testp.{name}.{type_}", "pred", [type_], lambda a, test=test: int(test(DECODE[type_](a))), threads=THREADS
        )


def test_a_wrong_oracle_is_seen() -> None:
    with pytest.raises(AssertionError, match="want"):
        check("add.rn.f32", "f32", ["f32"] * 2, rounding(exact.add, "f32", "rz", ""), threads=THREADS)
    with pytest.raises(AssertionError, match="want"):
        check("fma.rn.f16", "f16", ["f16"] * 3, lambda a, b, c: 0x7FFF, threads=THREADS)
