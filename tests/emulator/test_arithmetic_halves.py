"""f16, bf16 and packed halves against exact fractions and ml_dtypes; approximate instructions and their jitter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import arithmetic_oracle as exact
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.emulator.arithmetic import approx, halves, rounding

SEEDS = st.integers(0, 2**32 - 1)
FORMS = {"f16": exact.F16, "bf16": exact.BF16}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def values(kind: str, x: Any) -> Any:
    """Elements as float64."""
    return (x.view(ml_dtypes.bfloat16) if kind == "bf16" else x).astype(np.float64)


def elements(kind: str, rng: np.random.Generator, count: int = 400) -> Any:
    if kind == "f16":
        return exact.patterns(rng, np.float16, count)
    bits = rng.integers(0, 2**16, count, dtype=np.uint16)
    near = (rng.integers(-64, 65, count) * np.exp2(rng.integers(-12, 13, count).astype(np.float64))).astype(np.float32)
    edges = np.array([0, 1, 2, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FC1, 0x4000], np.uint16)
    edges = np.concatenate([edges, edges | np.uint16(0x8000)])
    choice = rng.integers(0, 3, count)
    return np.select(
        [choice == 0, choice == 1], [bits, (near.view(np.uint32) >> 16).astype(np.uint16)], rng.choice(edges, count)
    )


def check(kind: str, actual: Any, function: Callable[..., float], *operands: Any) -> None:
    """Exact values, NaN 0x7fff; then the same through the packed form."""
    wanted = np.array(exact.expect(function, *(values(kind, x) for x in operands)))
    bits = actual.view(np.uint16)
    nan = np.isnan(wanted)
    assert (bits[nan] == 0x7FFF).all()
    got = values(kind, actual)
    same = nan | ((got == wanted) & (np.signbit(got) == np.signbit(wanted)))
    if not same.all():
        index = int(np.flatnonzero(~same)[0])
        shown = [values(kind, x)[index] for x in operands]
        raise AssertionError(f"{(~same).sum()} differ; {shown}: got {got[index]}, exact {wanted[index]}")


def packed(x: Any) -> Any:
    return x.view(np.int32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_arithmetic(kind: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    form = FORMS[kind]
    a, b, c = (elements(kind, rng) for _ in range(3))
    pair: Any = kind + "x2"
    cases: list[tuple[Callable[..., Any], Callable[..., float], tuple[Any, ...]]] = [
        (halves.add, lambda x, y: exact.add(x, y, form, "rn"), (a, b)),
        (halves.sub, lambda x, y: exact.add(x, -y, form, "rn"), (a, b)),
        (halves.mul, lambda x, y: exact.mul(x, y, form, "rn"), (a, b)),
        (halves.fma, lambda x, y, z: exact.fma(x, y, z, form, "rn"), (a, b, c)),
    ]
    for function, oracle, operands in cases:
        single = function(kind, *operands)
        check(kind, single, oracle, *operands)
        both = function(pair, *(packed(x) for x in operands))
        assert both.dtype == np.int32
        assert (both.view(np.uint16) == single.view(np.uint16)).all()
        scalars = function(kind, *(x[0] for x in operands))
        assert type(scalars) is type(single[0])
        assert scalars.view(np.uint16) == single[:1].view(np.uint16)[0]
    uniform = halves.fma(pair, packed(a), packed(b)[3], packed(c))
    assert (uniform == halves.fma(pair, packed(a), np.full(200, packed(b)[3]), packed(c))).all()
    assert type(halves.fma(pair, packed(a)[0], packed(b)[0], packed(c)[0])) is np.int32


def test_bf16_fma_of_ties_far_apart() -> None:
    # The product is a tie of bfloat16, the addend far below even float64's last bit.
    a, b, c = (np.float32([x]).astype(ml_dtypes.bfloat16).view(np.uint16) for x in (1.5, 1.0078125, -(2.0**-130)))
    result = halves.fma("bf16", a, b, c)
    check("bf16", result, lambda *x: exact.fma(*x, exact.BF16, "rn"), a, b, c)
    naive = (np.float32(1.5) * np.float32(1.0078125) - np.float32(2.0**-130)).astype(ml_dtypes.bfloat16)
    assert naive.view(np.uint16) != result[0]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_modifiers(kind: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    form = FORMS[kind]
    a, b, c = (elements(kind, rng) for _ in range(3))

    def flushed(x: float) -> float:
        return math.copysign(0.0, x) if abs(x) < 2.0**form.min_exponent else x

    def plain(*x: float) -> float:
        return exact.fma(*x, form, "rn")

    def relu(*x: float) -> float:
        result = plain(*x)
        return result if math.isnan(result) or result > 0 else 0.0

    def sat(*x: float) -> float:
        result = plain(*x)
        return min(result, 1.0) if result > 0 else 0.0

    check(kind, halves.fma(kind, a, b, c, relu=True), relu, a, b, c)
    check(kind, halves.fma(kind, a, b, c, sat=True), sat, a, b, c)
    ftz = halves.fma(kind, a, b, c, ftz=True)
    check(kind, ftz, lambda *x: flushed(plain(*map(flushed, x))), a, b, c)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_min_max_signs_comparisons(kind: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (elements(kind, rng) for _ in range(2))
    pair: Any = kind + "x2"

    def extremum(x: float, y: float, largest: bool, nan: bool) -> float:
        if math.isnan(x) or math.isnan(y):
            return math.nan if nan or (math.isnan(x) and math.isnan(y)) else (y if math.isnan(x) else x)
        ordered = sorted((x, y), key=lambda v: (v, math.copysign(1, v)))
        return ordered[1] if largest else ordered[0]

    for nan in (False, True):
        check(kind, halves.minimum(kind, a, b, nan=nan), lambda x, y, n=nan: extremum(x, y, False, n), a, b)
        check(kind, halves.maximum(kind, a, b, nan=nan), lambda x, y, n=nan: extremum(x, y, True, n), a, b)
    same = halves.maximum(pair, packed(a), packed(b)).view(np.uint16) == halves.maximum(kind, a, b).view(np.uint16)
    assert same.all()
    bits = a.view(np.uint16)
    assert (halves.absolute(kind, a).view(np.uint16) == bits & 0x7FFF).all()
    is_nan = np.isnan(values(kind, a).astype(np.float64))
    negative = halves.negate(pair, packed(a)).view(np.uint16)
    assert (negative == np.where(is_nan, 0x7FFF, bits ^ 0x8000)).all()  # as an H200 does
    x, y = values(kind, a), values(kind, b)
    assert (halves.compare("lt", kind, a, b) == (x < y)).all()
    low, high = halves.compare("geu", pair, packed(a), packed(b))
    assert (low == ~(x < y)[0::2]).all()
    assert (high == ~(x < y)[1::2]).all()
    ones = halves.set_halves("gt", pair, packed(a), packed(b)).view(np.uint16)
    assert (ones == np.where(x > y, 0x3F80 if kind == "bf16" else 0x3C00, 0)).all()


def test_bf16_rounding_against_ml_dtypes() -> None:
    rng = np.random.default_rng(5)
    x = exact.patterns(rng, np.float32, 20000)
    ours = rounding.bf16_from_f32(x)
    theirs = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert (ours == np.where(np.isnan(x), 0x7FFF, theirs)).all()
    every = np.arange(2**16, dtype=np.uint16)
    back = every.view(ml_dtypes.bfloat16).astype(np.float32)
    assert ((rounding.bf16_to_f32(every) == back) | np.isnan(back)).all()


def test_pack_and_unpack() -> None:
    packed_pair = halves.pack(np.float16(1), np.float16(-2))
    assert packed_pair == np.uint32(0xC0003C00).view(np.int32)
    assert halves.unpack(packed_pair) == (1, -2)
    assert halves.unpack(packed_pair, np.uint16) == (0x3C00, 0xC000)


_REFERENCE: list[tuple[Any, Callable[[float], float]]] = [
    (lambda x: approx.ex2("f32", x), lambda x: 2.0**x if x < 1000 else math.inf),
    (approx.lg2, lambda x: math.log2(x) if x > 0 else (-math.inf if x == 0 else math.nan)),
    (approx.rcp, lambda x: 1 / x if x else math.copysign(math.inf, x)),
    (approx.sqrt, lambda x: math.sqrt(x) if x > 0 else (x if x == 0 else math.nan)),
    (approx.rsqrt, lambda x: 1 / math.sqrt(x) if x > 0 else (math.copysign(math.inf, x) if x == 0 else math.nan)),
    (approx.sin, lambda x: math.sin(x) if math.isfinite(x) else math.nan),
    (approx.cos, lambda x: math.cos(x) if math.isfinite(x) else math.nan),
    (lambda x: approx.tanh("f32", x), math.tanh),
]


@pytest.mark.parametrize("index", range(len(_REFERENCE)))
@settings(max_examples=4, deadline=None)
@given(seed=SEEDS)
def test_approximations(index: int, seed: int) -> None:
    function, reference = _REFERENCE[index]
    x = exact.patterns(np.random.default_rng(seed), np.float32, 400)
    wanted = np.array([reference(v) if v == v else math.nan for v in x.tolist()]).astype(np.float32)
    got = function(x)
    exact.assert_floats(np.where(np.abs(got - wanted) <= np.spacing(np.abs(wanted)), wanted, got), wanted.tolist(), x)
    assert type(function(x[0])) is np.float32


def test_special_values_of_the_isa() -> None:
    f = np.float32
    inf, sub = f(np.inf), f(1e-40)
    assert approx.ex2("f32", -inf) == 0
    assert approx.ex2("f32", sub, ftz=True) == 1
    assert approx.ex2("f32", f(-140)) > 0
    assert approx.ex2("f32", f(-140), ftz=True) == 0
    assert approx.lg2(-sub, ftz=True) == -inf
    assert np.isnan(approx.lg2(-sub))
    assert approx.rcp(-sub, ftz=True) == -inf
    assert np.signbit(approx.rcp(-inf))
    assert approx.rsqrt(f(-0.0)) == -inf
    assert approx.sqrt(f(-0.0)).view(np.uint32) == 0x80000000
    assert approx.sin(f(-0.0)).view(np.uint32) == 0x80000000
    assert approx.cos(inf).view(np.uint32) == 0x7FFFFFFF
    assert approx.tanh("f32", -inf) == -1
    assert approx.tanh("f32", sub) == sub
    big = f(2.0**127)
    assert approx.div_approx(f(-3), big).view(np.uint32) == 0x80000000
    assert np.isnan(approx.div_approx(inf, big))
    assert approx.div_full(big, big) == 1
    assert approx.div_approx(f(3), f(4)) == f(0.75)
    assert approx.rsqrt(np.float64(4)) == 0.5


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_approximations_round_once(kind: Any) -> None:
    every = np.arange(2**16, dtype=np.uint16)
    x = every if kind == "bf16" else every.view(np.float16)
    wide = values(kind, x)
    target = ml_dtypes.bfloat16 if kind == "bf16" else np.float16
    for function, reference in ((approx.ex2, np.exp2), (approx.tanh, np.tanh)):
        got = values(kind, function(kind, x))
        # float64 straight to the format: ml_dtypes rounds it through float32, so allow for its second rounding.
        wanted = reference(wide).astype(np.float32).astype(target).astype(np.float64)
        ok = (got == wanted) | np.isnan(wanted)
        assert (~ok).sum() <= 2
        assert (np.isnan(got) == np.isnan(wide)).all()
    both = approx.ex2(kind + "x2", packed(x)).view(np.uint16)
    assert (both == approx.ex2(kind, x).view(np.uint16)).all()
    flushed = approx.ex2(kind, x, ftz=True)
    assert (values(kind, flushed)[(np.abs(wide) > 0) & (np.abs(wide) < 1e-7)] == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_jitter(dtype: Any) -> None:
    bits = np.uint32 if dtype is np.float32 else np.uint16
    x = np.random.default_rng(3).integers(0, np.iinfo(bits).max, 5000, dtype=bits, endpoint=True).view(dtype)
    moved = approx.jitter(x, 2, seed=1)
    assert (moved == approx.jitter(x, 2, seed=1)).sum() >= (x == x).sum() - 1
    top = np.iinfo(bits).max >> 1
    infinity = {np.float32: 0x7F800000, np.float16: 0x7C00, np.uint16: 0x7F80}[dtype]
    size, new = ((v.view(bits) & top).astype(np.int64) for v in (x, moved))
    finite = (size > 0) & (size < infinity)
    difference = (new - size)[finite]
    assert set(np.unique(difference)) == {-2, -1, 0, 1, 2}
    assert (new[finite] < infinity).all()
    assert (moved.view(bits) == x.view(bits))[~finite].all()
    assert ((moved.view(bits) ^ x.view(bits)) <= top).all()
    assert (approx.jitter(x, 2, seed=2).view(bits) != moved.view(bits)).any()
    assert approx.Approximation()(x) is x
    assert (approx.Approximation(2, 1)(x).view(bits) == moved.view(bits)).all()
    assert type(approx.jitter(x[0], 2, 1)) is dtype
