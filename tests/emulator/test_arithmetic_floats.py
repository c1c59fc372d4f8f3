"""Floats against exact fractions: add, mul, fma, div, sqrt in four modes, comparisons, minima."""

from __future__ import annotations

import math
from collections.abc import Iterator

import arithmetic_oracle as exact
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.emulator.arithmetic import compare, floats

SEEDS = st.integers(0, 2**32 - 1)
FORMS = {np.float32: exact.F32, np.float64: exact.F64}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("mode", exact.MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_four_modes(dtype: type, mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    form = FORMS[dtype]
    a, b, c = (exact.patterns(rng, dtype, 300) for _ in range(3))
    # Near cancellation: the addend close to the product.
    c[:100] = -(a[:100] * b[:100])
    exact.assert_floats(floats.fma(a, b, c, mode), exact.expect(lambda *x: exact.fma(*x, form, mode), a, b, c), a, b, c)
    exact.assert_floats(floats.add(a, b, mode), exact.expect(lambda *x: exact.add(*x, form, mode), a, b), a, b)
    exact.assert_floats(floats.sub(a, b, mode), exact.expect(lambda x, y: exact.add(x, -y, form, mode), a, b), a, b)
    exact.assert_floats(floats.mul(a, b, mode), exact.expect(lambda *x: exact.mul(*x, form, mode), a, b), a, b)
    exact.assert_floats(floats.div(a, b, mode), exact.expect(lambda *x: exact.div(*x, form, mode), a, b), a, b)
    exact.assert_floats(floats.rcp(a, mode), exact.expect(lambda x: exact.div(1.0, x, form, mode), a), a)
    exact.assert_floats(floats.sqrt(a, mode), exact.expect(lambda x: exact.sqrt(x, form, mode), a), a)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_fma_f32_where_two_roundings_err(seed: int) -> None:
    # Products that are ties of float32, with an addend far below: float64 arithmetic alone gets these wrong.
    rng = np.random.default_rng(seed)
    a = (1 + rng.integers(1, 2**11, 600) * 2.0**-11).astype(np.float32)
    b = (1 + rng.integers(1, 2**12, 600) * 2.0**-12 + 2.0**-13).astype(np.float32)
    scale = np.exp2(rng.integers(-75, 3, 600)).astype(np.float32)
    a, b = a * scale, b * scale
    c = (rng.choice([-1, 1], 600) * np.exp2(rng.integers(-149, -50, 600))).astype(np.float32)
    wanted = exact.expect(lambda *x: exact.fma(*x, exact.F32, "rn"), a, b, c)
    exact.assert_floats(floats.fma(a, b, c), wanted, a, b, c)
    for index in range(20):
        assert floats.fma(a[index], b[index], c[index]) == np.float32(wanted[index])


def test_fma_f32_subnormal_ties() -> None:
    # The product is a hair off half the smallest subnormal, a subnormal addend hides the hair from float64.
    k = np.arange(1, 200)
    a = ((1 + k * 2.0**-23) * 2.0**-75).astype(np.float32)
    b = ((1 - k * 2.0**-23) * 2.0**-75).astype(np.float32)
    for m in (2**20, 2**20 + 1, -(2**22), -(2**22) - 1):
        c = np.full(k.size, m * 2.0**-149, np.float32)
        wanted = exact.expect(lambda *x: exact.fma(*x, exact.F32, "rn"), a, b, c)
        exact.assert_floats(floats.fma(a, b, c), wanted, a, b, c)


def test_naive_fma_would_be_caught() -> None:
    # The broken twin: product and sum in float64, rounded again.
    a, b, c = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(2.0**-80)
    naive = np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    wanted = exact.fma(float(a), float(b), float(c), exact.F32, "rn")
    assert float(naive) != wanted
    assert float(floats.fma(a, b, c)) == wanted


def test_fma_f64_of_extreme_exponents() -> None:
    edge = [2.0**1023, -(2.0**1000), 2.0**-1074, 2.0**-1022, 1 + 2.0**-52, 0.0, -0.0, 3.0, -(2.0**-540) * 1.5, math.inf]
    a, b, c = (x.ravel() for x in np.meshgrid(edge, edge, edge))
    for mode in exact.MODES:
        wanted = exact.expect(lambda *x, mode=mode: exact.fma(*x, exact.F64, mode), a, b, c)
        exact.assert_floats(floats.fma(a, b, c, mode), wanted, a, b, c)


def _flushed(x: float, unbounded: float | None = None) -> float:
    """``unbounded``: the same result, rounded as if its exponent had no bounds."""
    return math.copysign(0.0, x) if abs(x if unbounded is None else unbounded) < 2.0**-126 else x


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_ftz_and_sat(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (exact.patterns(rng, np.float32, 400) for _ in range(3))

    def saturated(x: float) -> float:
        return min(x, 1.0) if x > 0 else 0.0

    def ftz(*x: float) -> float:
        x = tuple(map(_flushed, x))
        return _flushed(exact.fma(*x, exact.F32, "rn"), exact.fma(*x, exact.Format(24, -400, 127), "rn"))

    exact.assert_floats(floats.fma(a, b, c, ftz=True), exact.expect(ftz, a, b, c), a, b, c)
    wanted = exact.expect(lambda *x: saturated(ftz(*x)), a, b, c)
    exact.assert_floats(floats.fma(a, b, c, ftz=True, sat=True), wanted, a, b, c)
    wanted = exact.expect(lambda *x: saturated(exact.add(*x, exact.F32, "rn")), a, b)
    exact.assert_floats(floats.add(a, b, sat=True), wanted, a, b)
    wanted = exact.expect(lambda *x: _flushed(exact.mul(*map(_flushed, x), exact.F32, "rz")), a, b)
    exact.assert_floats(floats.mul(a, b, "rz", ftz=True), wanted, a, b)


def test_ftz_judges_24_bits_as_an_h200_does() -> None:
    below, tiny = np.float32(1 - 2.0**-24), np.float32(2.0**-126)  # the product rounds up to 2**-126
    assert floats.mul(below, tiny) == tiny
    assert floats.mul(below, tiny, ftz=True) == 0
    assert floats.mul(np.float32([below, 1]), tiny, ftz=True, sat=True).tolist() == [0, tiny]
    assert np.signbit(floats.fma(below, -tiny, np.float32(0), "rm", ftz=True))
    assert floats.fma(below, -tiny, np.float32(0), "rm", ftz=True) == 0
    assert floats.fma(-below, -tiny, np.float32(0), "rp", ftz=True) == 0
    assert floats.fma(np.float32([1, below]), tiny, np.float32(-0.0), ftz=True).tolist() == [tiny, 0]
    # With all of 24 bits these round up: 2**-126 minus far less.
    less = -np.float32(2.0**-120)
    assert floats.fma(less, tiny, tiny, ftz=True) == tiny
    assert floats.fma(less, tiny, tiny, "rp", ftz=True) == tiny
    assert floats.fma(less, tiny, tiny, "rz", ftz=True) == 0


def test_signs_keep_nan_payloads_and_scalars_stay_scalars() -> None:
    nan = np.array([0x7FC12345, 0xFFC12345], np.uint32).view(np.float32)
    assert floats.absolute(nan).view(np.uint32).tolist() == [0x7FC12345, 0x7FC12345]
    assert floats.negate(nan).view(np.uint32).tolist() == [0xFFC12345, 0x7FC12345]
    assert floats.copysign(np.float32(-0.0), np.float32(3)) == -3
    for mode in exact.MODES:
        result = floats.fma(np.float32(1), np.float32(2), np.float32(1e-20), mode)
        assert type(result) is np.float32
        assert result == exact.fma(1.0, 2.0, float(np.float32(1e-20)), exact.F32, mode)
        assert type(floats.fma(np.float64(1), np.float64(2), np.float64(1e-20), mode)) is np.float64
    mixed = floats.fma(np.float32(2), np.arange(4, dtype=np.float32), np.float32(1))
    assert mixed.tolist() == [1, 3, 5, 7]


def test_f32x2() -> None:
    a = np.array([[1.5, -2], [3, 4]], np.float32).view(np.int64).ravel()
    b = np.array([2, 0.5], np.float32).view(np.int64)[0]
    assert floats.f32x2(floats.mul, a, b).view(np.float32).tolist() == [3, -1, 6, 2]
    assert type(floats.f32x2(floats.mul, b, b)) is np.int64


_RELATIONS = {
    "eq": (lambda a, b: a == b),
    "ne": (lambda a, b: a != b),
    "lt": (lambda a, b: a < b),
    "le": (lambda a, b: a <= b),
    "gt": (lambda a, b: a > b),
    "ge": (lambda a, b: a >= b),
}


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_comparisons(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (exact.patterns(rng, np.float32, 300) for _ in range(2))
    a[:50] = b[:50]
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    unordered = [math.isnan(x) or math.isnan(y) for x, y in rows]
    assert compare.compare("nan", a, b).tolist() == unordered
    assert compare.compare("num", a, b).tolist() == [not u for u in unordered]
    for name, relation in _RELATIONS.items():
        plain = [relation(x, y) and not u for (x, y), u in zip(rows, unordered, strict=True)]
        assert compare.compare(name, a, b).tolist() == plain, name
        either = [p or u for p, u in zip(plain, unordered, strict=True)]
        assert compare.compare(name + "u", a, b).tolist() == either, name
        flushed = [relation(_flushed(x), _flushed(y)) and not u for (x, y), u in zip(rows, unordered, strict=True)]
        assert compare.compare(name, a, b, ftz=True).tolist() == flushed
    i, j = (exact.patterns(rng, np.int32, 300) for _ in range(2))
    assert (compare.compare("lo", i, j) == (i.view(np.uint32) < j.view(np.uint32))).all()
    assert (compare.compare("ne", i, j) == (i != j)).all()


def _extremum(values: tuple[float, ...], largest: bool, nan: bool) -> float:
    numbers = [x for x in values if not math.isnan(x)]
    if not numbers or (nan and len(numbers) < len(values)):
        return math.nan

    def rank(x: float) -> tuple[float, float]:
        return (x, math.copysign(1.0, x))

    return max(numbers, key=rank) if largest else min(numbers, key=rank)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, nan=st.booleans())
def test_min_max(seed: int, nan: bool) -> None:
    rng = np.random.default_rng(seed)
    for dtype in (np.float32, np.float64, np.float16):
        a, b, c = (exact.patterns(rng, dtype, 300) for _ in range(3))
        for largest, function in ((False, compare.minimum), (True, compare.maximum)):
            wanted = exact.expect(lambda *x, largest=largest: _extremum(x, largest, nan), a, b)
            exact.assert_floats(function(a, b, nan=nan), wanted, a, b)
            wanted = exact.expect(lambda *x, largest=largest: _extremum(x, largest, nan), a, b, c)
            exact.assert_floats(function(a, b, c, nan=nan), wanted, a, b, c)

            def signed(x: float, y: float, largest: bool = largest) -> float:
                sign = math.copysign(1.0, x) * math.copysign(1.0, y)
                return math.copysign(_extremum((abs(x), abs(y)), largest, nan), sign)

            exact.assert_floats(function(a, b, nan=nan, xorsign=True), exact.expect(signed, a, b), a, b)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zeros_are_ordered(dtype: type) -> None:
    a, b = np.array([0, 0, -0.0, -0.0], dtype), np.array([0, -0.0, 0, -0.0], dtype)
    assert np.signbit(compare.minimum(a, b)).tolist() == [False, True, True, True]
    assert np.signbit(compare.maximum(a, b)).tolist() == [False, False, False, True]


def test_selection_and_testp() -> None:
    c = np.array([-0.0, 0.0, 1, -1, np.nan, -1e-40], np.float32)
    one, two = np.int32(1), np.int32(2)
    assert compare.slct(one, two, c).tolist() == [1, 1, 1, 2, 2, 2]
    assert compare.slct(one, two, c, ftz=True).tolist() == [1, 1, 1, 2, 2, 1]
    values = np.array([0, -0.0, 1, np.inf, np.nan, 1e-40], np.float32)
    assert compare.testp("normal", values).tolist() == [True, True, True, False, False, False]
    assert compare.testp("subnormal", values).tolist() == [False] * 5 + [True]
    assert compare.testp("finite", values).tolist() == [True, True, True, False, False, True]
    assert compare.testp("infinite", values).tolist() == [False] * 3 + [True, False, False]
    assert compare.testp("number", values).tolist() == [True] * 4 + [False, True]
    assert compare.set_value(np.array([True, False]), np.int32).tolist() == [-1, 0]
    assert compare.set_value(np.array([True, False]), np.uint32).tolist() == [0xFFFFFFFF, 0]
    assert compare.set_value(np.True_, np.float32) == 1
