"""Integer instructions through PTX text, against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from op_harness import Program, check, samples, signed, width

MASK = (1 << 64) - 1


def of(type_: str, value: int) -> int:
    """A bit pattern as a number of the type."""
    bits = width(type_)
    return signed(value, bits) if type_[0] == "s" else value & ((1 << bits) - 1)


def wrap(type_: str, value: int) -> int:
    return value & ((1 << width(type_)) - 1)


def clamp(type_: str, value: int) -> int:
    bits = width(type_)
    return wrap(type_, max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value)))


def numbers(type_: str, function: Callable[..., int], result: str = "") -> Callable[..., int]:
    return lambda *x: wrap(result or type_, function(*(of(type_, v) for v in x)))


ALL = ["s16", "u16", "s32", "u32", "s64", "u64"]


@pytest.mark.parametrize("type_", ALL)
def test_add_sub_mul(type_: str) -> None:
    check(f"add.{type_}", type_, [type_] * 2, numbers(type_, lambda a, b: a + b))
    check(f"sub.{type_}", type_, [type_] * 2, numbers(type_, lambda a, b: a - b))
    check(f"mul.lo.{type_}", type_, [type_] * 2, numbers(type_, lambda a, b: a * b))
    check(f"mul.hi.{type_}", type_, [type_] * 2, numbers(type_, lambda a, b: (a * b) >> width(type_)))
    check(f"mad.lo.{type_}", type_, [type_] * 3, numbers(type_, lambda a, b, c: a * b + c))
    check(f"mad.hi.{type_}", type_, [type_] * 3, numbers(type_, lambda a, b, c: ((a * b) >> width(type_)) + c))
    if width(type_) < 64:
        wide = f"{type_[0]}{2 * width(type_)}"
        check(f"mul.wide.{type_}", wide, [type_] * 2, numbers(type_, lambda a, b: a * b, wide))
        check(
            f"mad.wide.{type_}",
            wide,
            [type_, type_, wide],
            lambda a, b, c: wrap(wide, of(type_, a) * of(type_, b) + c),
        )


def test_saturation() -> None:
    check("add.sat.s32", "s32", ["s32"] * 2, lambda a, b: clamp("s32", of("s32", a) + of("s32", b)))
    check("sub.sat.s32", "s32", ["s32"] * 2, lambda a, b: clamp("s32", of("s32", a) - of("s32", b)))
    check(
        "mad.hi.sat.s32",
        "s32",
        ["s32"] * 3,
        lambda a, b, c: clamp("s32", ((of("s32", a) * of("s32", b)) >> 32) + of("s32", c)),
    )


@pytest.mark.parametrize("type_", ["s32", "u32"])
def test_24_bits(type_: str) -> None:
    def cut(x: int) -> int:
        return signed(x, 24) if type_[0] == "s" else x & 0xFFFFFF

    check(f"mul24.lo.{type_}", type_, [type_] * 2, lambda a, b: wrap(type_, cut(a) * cut(b)))
    check(f"mul24.hi.{type_}", type_, [type_] * 2, lambda a, b: wrap(type_, (cut(a) * cut(b)) >> 16))
    check(f"mad24.lo.{type_}", type_, [type_] * 3, lambda a, b, c: wrap(type_, cut(a) * cut(b) + c))
    check(f"mad24.hi.{type_}", type_, [type_] * 3, lambda a, b, c: wrap(type_, ((cut(a) * cut(b)) >> 16) + c))
    if type_ == "s32":
        check(
            "mad24.hi.sat.s32",
            type_,
            [type_] * 3,
            lambda a, b, c: clamp(type_, ((cut(a) * cut(b)) >> 16) + of(type_, c)),
        )


def quotient(type_: str, a: int, b: int) -> int:
    a, b = of(type_, a), of(type_, b)
    if b == 0:
        return wrap(type_, -1)
    return wrap(type_, abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


@pytest.mark.parametrize("type_", ALL)
def test_division(type_: str) -> None:
    check(f"div.{type_}", type_, [type_] * 2, lambda a, b: quotient(type_, a, b))
    check(
        f"rem.{type_}",
        type_,
        [type_] * 2,
        lambda a, b: wrap(type_, of(type_, a) - of(type_, quotient(type_, a, b)) * of(type_, b) if b else -1),
    )


@pytest.mark.parametrize("type_", ALL)
def test_extrema_and_signs(type_: str) -> None:
    check(f"min.{type_}", type_, [type_] * 2, numbers(type_, min))
    check(f"max.{type_}", type_, [type_] * 2, numbers(type_, max))
    check(f"sad.{type_}", type_, [type_] * 3, numbers(type_, lambda a, b, c: c + abs(a - b)))
    if type_[0] == "s":
        check(f"abs.{type_}", type_, [type_], numbers(type_, abs))
        check(f"neg.{type_}", type_, [type_], numbers(type_, lambda a: -a))
    if type_ == "s32":
        check("min.relu.s32", type_, [type_] * 2, numbers(type_, lambda a, b: max(min(a, b), 0)))
        check("max.relu.s32", type_, [type_] * 2, numbers(type_, lambda a, b: max(a, b, 0)))


@pytest.mark.parametrize("type_", ["b16", "b32", "b64"])
def test_logic(type_: str) -> None:
    check(f"and.{type_}", type_, [type_] * 2, lambda a, b: a & b)
    check(f"or.{type_}", type_, [type_] * 2, lambda a, b: a | b)
    check(f"xor.{type_}", type_, [type_] * 2, lambda a, b: a ^ b)
    check(f"not.{type_}", type_, [type_], lambda a: wrap(type_, ~a))
    check(f"cnot.{type_}", type_, [type_], lambda a: int(a == 0))


def test_predicate_logic() -> None:
    check("and.pred", "pred", ["pred"] * 2, lambda a, b: a & b)
    check("or.pred", "pred", ["pred"] * 2, lambda a, b: a | b)
    check("xor.pred", "pred", ["pred"] * 2, lambda a, b: a ^ b)
    check("not.pred", "pred", ["pred"], lambda a: 1 - a)
    check("mov.pred", "pred", ["pred"], lambda a: a)


def count(bits: int) -> np.ndarray:
    rng = np.random.default_rng(bits)
    return rng.choice(np.array([*range(bits + 3), 64, 65, 255, 256, 0x80000000, 0xFFFFFFFF], np.uint32), 576)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for name, oracle in (
        (f"shl.b{bits}", lambda a, n: a << min(n, bits)),
        (f"shr.u{bits}", lambda a, n: a >> min(n, bits)),
        (f"shr.b{bits}", lambda a, n: a >> min(n, bits)),
        (f"shr.s{bits}", lambda a, n: signed(a, bits) >> min(n, bits)),
    ):
        type_ = name.split(".")[1]
        given = [samples(rng, type_, 576), count(bits)]
        check(name, type_, [type_, "u32"], lambda a, n, f=oracle, type_=type_: wrap(type_, f(a, n)), given=given)


def test_funnel_shifts() -> None:
    rng = np.random.default_rng(0)
    given = [samples(rng, "b32", 576), samples(rng, "b32", 576), count(32)]

    def funnel(left: bool, is_wrapped: bool) -> Callable[[int, int, int], int]:
        def of_three(a: int, b: int, c: int) -> int:
            n = c & 31 if is_wrapped else min(c, 32)
            both = b << 32 | a
            return (both << n >> 32 if left else both >> n) & 0xFFFFFFFF

        return of_three

    for side in "lr":
        for mode in ("wrap", "clamp"):
            oracle = funnel(side == "l", mode == "wrap")
            check(f"shf.{side}.{mode}.b32", "b32", ["b32", "b32", "u32"], oracle, given=given)


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_carries(type_: str) -> None:
    """Numbers of three words, added, subtracted, multiplied and added; under a guard, the carry too stays."""
    bits, rng = width(type_), np.random.default_rng(5)
    arrays = [samples(rng, type_, 192) for _ in range(6)]
    body = f"""
    add.cc.{type_} %o0, %i0, %i3; addc.cc.{type_} %o1, %i1, %i4; addc.{type_} %o2, %i2, %i5;
    sub.cc.{type_} %o3, %i0, %i3; subc.cc.{type_} %o4, %i1, %i4; subc.{type_} %o5, %i2, %i5;
    mad.lo.cc.{type_} %o6, %i0, %i3, %i1; madc.hi.{type_} %o7, %i0, %i3, %i2;
    setp.lt.u32 %p0, %t, 100;
    mov.b{bits} %o8, %i0; mov.b{bits} %o9, %i1;
    add.cc.{type_} %o8, 0, 0; @%p0 add.cc.{type_} %o8, %i0, %i3; addc.{type_} %o9, %i1, %i4;
    """
    got = Program([type_] * 6, [type_] * 10, body).run(arrays, 192)
    for at in range(192):
        a = sum(int(arrays[k][at]) << (bits * k) for k in range(3))
        b = sum(int(arrays[k + 3][at]) << (bits * k) for k in range(3))
        x, y, lo, hi = (int(arrays[k][at]) for k in (0, 3, 1, 2))
        words = [int(g[at]) for g in got]
        assert sum(w << (bits * k) for k, w in enumerate(words[:3])) == (a + b) % (1 << 3 * bits)
        assert sum(w << (bits * k) for k, w in enumerate(words[3:6])) == (a - b) % (1 << 3 * bits)
        product = of(type_, x) * of(type_, y) if type_[0] == "s" else x * y
        low = ((x * y) & ((1 << bits) - 1)) + lo
        assert words[6] == wrap(type_, low)
        assert words[7] == wrap(type_, (product >> bits) + hi + (low >> bits))
        carry = (x + y) >> bits if at < 100 else 0
        assert words[9] == wrap(type_, int(arrays[1][at]) + int(arrays[4][at]) + carry)


COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip
JOIN: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "xor": lambda a, b: a != b,
}  # fmt: skip


@pytest.mark.parametrize("type_", [*ALL, "b16", "b32", "b64"])
def test_setp(type_: str) -> None:
    names = ["eq", "ne"] + (["lt", "le", "gt", "ge"] if type_[0] != "b" else [])
    names += ["lo", "ls", "hi", "hs"] if type_[0] == "u" else []
    for name in names:

        def test(a: int, b: int, name: str = name) -> bool:
            return COMPARE[name](of(type_, a), of(type_, b))

        check(f"setp.{name}.{type_}", "pred", [type_] * 2, lambda a, b: int(test(a, b)), threads=192)
        for join, of_two in JOIN.items():
            check(
                f"setp.{name}.{join}.{type_}",
                "pred",
                [type_, type_, "pred"],
                lambda a, b, c, of_two=of_two: int(of_two(test(a, b), bool(c))),
                threads=192,
            )


def test_setp_of_two_results() -> None:
    rng = np.random.default_rng(9)
    arrays = [rng.integers(0, 3, 192, dtype=np.uint32), rng.integers(0, 3, 192, dtype=np.uint32)]
    flags = [samples(rng, "pred", 192) for _ in range(4)]
    less = arrays[0] < arrays[1]
    q, old_a, old_b, guard = (f != 0 for f in flags)
    for join, function in (("", None), (".and", np.logical_and), (".or", np.logical_or), (".xor", np.logical_xor)):
        for negated in (False, True) if join else (False,):
            third = f", {'!' if negated else ''}%i2" if join else ""
            body = f"""
            mov.pred %o0, %i3; mov.pred %o1, %i4;
            @%i5 setp.lt{join}.u32 %o0|%o1, %i0, %i1{third};
            mov.pred %o2, %i2; setp.lt{join}.u32 %o2|%p1, %i0, %i1{third.replace("%i2", "%o2")};
            setp.lt{join}.u32 %p2|%o3, %i0, %i1{third};
            """
            got = Program(["u32"] * 2 + ["pred"] * 4, ["pred"] * 4, body).run([*arrays, *flags], 192)
            other = ~q if negated else q
            yes, no = (function(x, other) if function else x for x in (less, ~less))
            assert (got[0] == np.where(guard, yes, old_a)).all()
            assert (got[1] == np.where(guard, no, old_b)).all()
            assert (got[2] == yes).all()
            assert (got[3] == no).all()


@pytest.mark.parametrize("type_", [*ALL, "b16", "b32", "b64", "f32", "f64"])
def test_selections(type_: str) -> None:
    check(f"selp.{type_}", type_, [type_, type_, "pred"], lambda a, b, p: a if p else b)
    check(f"mov.{type_}", type_, [type_], lambda a: a)
    check(f"slct.{type_}.s32", type_, [type_, type_, "s32"], lambda a, b, c: a if signed(c, 32) >= 0 else b)
    rng = np.random.default_rng(1)
    a, b, p = samples(rng, type_, 192), samples(rng, type_, 192), samples(rng, "pred", 192)
    body = f"selp.{type_} %o0, %i0, %i1, !%i2;" if type_ == "b32" else f"selp.{type_} %o0, %i0, %i1, %i2;"
    (got,) = Program([type_, type_, "pred"], [type_], body).run([a, b, p], 192)
    assert (got == np.where((p == 0) == (type_ == "b32"), a, b)).all()


def test_set() -> None:
    for name, test in list(COMPARE.items())[:6]:
        for type_ in ("s32", "u32", "s64", "u16"):

            def truth(a: int, b: int, test: Callable[[int, int], bool] = test, type_: str = type_) -> bool:
                return test(of(type_, a), of(type_, b))

            check(f"set.{name}.u32.{type_}", "u32", [type_] * 2, lambda a, b: truth(a, b) * 0xFFFFFFFF, threads=192)
            check(f"set.{name}.f32.{type_}", "f32", [type_] * 2, lambda a, b: truth(a, b) * 0x3F800000, threads=192)
            check(
                f"set.{name}.and.s32.{type_}",
                "s32",
                [type_, type_, "pred"],
                lambda a, b, c: (truth(a, b) and bool(c)) * 0xFFFFFFFF,
                threads=192,
            )
