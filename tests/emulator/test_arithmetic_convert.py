"""Conversions against Python's integers and exact rounding; the narrow formats against ml_dtypes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import arithmetic_oracle as exact
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.emulator.arithmetic import convert, halves, small

SEEDS = st.integers(0, 2**32 - 1)
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
FLOATS = {np.float16: exact.F16, np.float32: exact.F32, np.float64: exact.F64}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def limits(dtype: Any) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def clamp(x: int, dtype: Any) -> int:
    low, high = limits(dtype)
    return min(max(x, low), high)


def wrap(x: int, dtype: Any) -> int:
    low, high = limits(dtype)
    return (x - low) % (high - low + 1) + low


def bf16_values(bits: Any) -> Any:
    return bits.view(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("source", INTEGERS)
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_integers_to_integers(source: Any, seed: int) -> None:
    x = exact.patterns(np.random.default_rng(seed), source, 200)
    for target in INTEGERS:
        plain, sat = convert.int_to_int(x, target), convert.int_to_int(x, target, sat=True)
        assert plain.dtype == sat.dtype == target
        assert plain.tolist() == [wrap(v, target) for v in x.tolist()]
        assert sat.tolist() == [clamp(v, target) for v in x.tolist()]
    assert type(convert.int_to_int(x[0], np.int16, sat=True)) is np.int16


def _integral(x: float, rounding: str) -> int:
    if rounding == "rni":
        return round(x)
    return {"rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[rounding](x)


@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_floats_to_integers(rounding: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for source in FLOATS:
        x = exact.patterns(rng, source, 300)
        if source is not np.float16:
            x[:60] = (rng.integers(-3, 4, 60) * 0.5 + np.exp2(rng.integers(6, 65, 60))).astype(source)
            x[60:80] = -x[:20]
        for target in INTEGERS:
            bits = np.iinfo(target).bits

            def one(v: float, target: Any = target, bits: int = bits, source: Any = source) -> int:
                if math.isnan(v):
                    return wrap(1 << (bits - 1), target) if source is np.float64 or bits == 64 else 0
                if math.isinf(v):
                    return limits(target)[v > 0]
                return clamp(_integral(v, rounding), target)

            got = convert.float_to_int(x, target, rounding)
            assert got.dtype == target
            wanted = [one(v) for v in x.tolist()]
            wrong = [(v, g, w) for v, g, w in zip(x.tolist(), got.tolist(), wanted, strict=True) if g != w]
            assert not wrong, (source, target, wrong[:3])
        assert type(convert.float_to_int(x[0], np.int32, rounding)) is np.int32
        whole = convert.round_integral(x, rounding)

        def same_type(v: float) -> float:
            return math.copysign(float(_integral(v, rounding)), v) if math.isfinite(v) else v

        exact.assert_floats(whole, [same_type(v) for v in x.tolist()], x)
    tiny = np.array([-1e-40, 1e-40], np.float32)
    assert convert.float_to_int(tiny, np.int32, "rpi").tolist() == [0, 1]
    assert convert.float_to_int(tiny, np.int32, "rpi", ftz=True).tolist() == [0, 0]


@pytest.mark.parametrize("mode", exact.MODES)
@settings(max_examples=4, deadline=None)
@given(seed=SEEDS)
def test_integers_to_floats(mode: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for source in INTEGERS:
        x = exact.patterns(rng, source, 300)
        # Ties and near ties of every target, at every size.
        shift = np.array(rng.integers(0, np.iinfo(source).bits, 150), dtype=source)
        x[:150] = (x[:150] >> shift) | rng.integers(0, 3, 150).astype(source)
        for target, form in FLOATS.items():
            got = convert.int_to_float(x, target, mode)
            exact.assert_floats(got, [exact.rounded(v, 1, form, mode) for v in x.tolist()], x)
        got = bf16_values(convert.int_to_bf16(x, mode)).astype(np.float64)
        assert got.tolist() == [exact.rounded(v, 1, exact.BF16, mode) for v in x.tolist()]
    # The broken twin: through float64 and rounded again.
    tie = np.int64((1 << 60) + (1 << 36) + 1)
    assert convert.int_to_float(tie, np.float32) != np.float32(np.float64(tie))
    assert convert.int_to_float(np.array([5, -1], np.int32), np.float32, sat=True).tolist() == [1, 0]


def _to(v: float, form: exact.Format, mode: str) -> float:
    if not math.isfinite(v):
        return v
    return exact.rounded(*v.as_integer_ratio(), form, mode, v)


@pytest.mark.parametrize("mode", exact.MODES)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_floats_to_floats(mode: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for source in (np.float32, np.float64):
        x = exact.patterns(rng, source, 400)
        # Ties of float16 and float32 with and without something behind them.
        ties = (1 + rng.integers(0, 2**11, 100) * 2.0**-11) * np.exp2(rng.integers(-26, 16, 100))
        x[:100] = (ties * (1 + rng.integers(-1, 2, 100) * float(np.finfo(source).eps))).astype(source)
        half = [_to(v, exact.F16, mode) for v in x.tolist()]
        exact.assert_floats(convert.to_f16(x, mode), half, x)
        wanted = [v if v > 0 or v != v else 0.0 for v in half]
        exact.assert_floats(convert.to_f16(x, mode, relu=True), wanted, x)
        exact.assert_floats(convert.to_f16(x, mode, sat=True), [min(v, 1.0) if v > 0 else 0.0 for v in half], x)
        wanted = [v if v != v else min(max(v, -65504.0), 65504.0) for v in half]
        exact.assert_floats(convert.to_f16(x, mode, satfinite=True), wanted, x)
        exact.assert_floats(convert.to_f32(x, mode), [_to(v, exact.F32, mode) for v in x.tolist()], x)
        brain = [_to(v, exact.BF16, mode) for v in x.tolist()]
        got = convert.to_bf16(x, mode)
        assert (got[np.isnan(x)] == 0x7FFF).all()
        assert np.array_equal(bf16_values(got), np.array(brain, np.float32), equal_nan=True)
        got = bf16_values(convert.to_bf16(x, mode, satfinite=True, relu=True))
        top = exact.BF16.largest
        wanted = [v if v != v else min(v, top) if v > 0 else 0.0 for v in brain]
        assert np.array_equal(got, np.array(wanted, np.float32), equal_nan=True)
    assert type(convert.to_f16(np.float64(1), mode)) is np.float16


def test_f64_to_f16_does_not_round_twice() -> None:
    x = np.float64(1 + 2**-11 + 2**-40)
    assert np.float16(np.float32(x)) == 1  # the broken twin
    assert convert.to_f16(x) == np.float16(1 + 2**-10)


def test_packing_puts_the_first_source_above() -> None:
    a, b = np.float32(1), np.float32(-2)
    assert convert.pack_f16x2(a, b) == 0x3C00C000
    assert convert.pack_bf16x2(a, b) == 0x3F80C000
    assert convert.pack_f16x2(a, b, relu=True) == 0x3C000000
    assert convert.pack_bf16x2(np.float32([1e39, 3]), b, satfinite=True).tolist() == [0x7F7FC000, 0x4040C000]


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_tf32(seed: int) -> None:
    x = exact.patterns(np.random.default_rng(seed), np.float32, 400)
    x[:100] = (x[:100].view(np.uint32) & 0xFFFFE000 | 0x1000).view(np.float32)
    x = x[~np.isnan(x)]
    form = exact.Format(11, -126, 127)
    exact.assert_floats(convert.to_tf32(x, "rn"), [_to(v, form, "rn") for v in x.tolist()], x)
    exact.assert_floats(convert.to_tf32(x, "rz"), [_to(v, form, "rz") for v in x.tolist()], x)
    double = exact.Format(12, -126, 127)

    def away(v: float) -> float:
        # Half a unit up in size, then cut off.
        if not math.isfinite(v):
            return v
        up, down = _to(v, form, "rp"), _to(v, form, "rm")
        below, above = (down, up) if v > 0 else (up, down)
        middle = _to(v, double, "rz")
        return above if middle != below and abs(v) >= abs(middle) else below

    exact.assert_floats(convert.to_tf32(x, "rna"), [away(v) for v in x.tolist()], x)
    got = convert.to_tf32(x, "rn", relu=True, satfinite=True)
    wanted = [_to(v, form, "rn") for v in x.tolist()]
    exact.assert_floats(got, [min(v, form.largest) if v > 0 else 0.0 for v in wanted], x)


def test_tf32_of_special_values_as_an_h200_does() -> None:
    bits = [0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC4353D, 0x7FEF76B7, 0xFF800001, 0xFFC00000, 0xFF98BDE6]
    x = np.array(bits, np.uint32).view(np.float32)
    nan = 0x7FFFE000
    assert convert.to_tf32(x, "rn").view(np.uint32).tolist() == [0x7F800000, 0x7F800000, *[nan] * 7]
    assert convert.to_tf32(x, "rz").view(np.uint32).tolist() == [0x7F7FE000, 0x7F800000, *[nan] * 7]
    assert convert.to_tf32(x, "rn", relu=True).view(np.uint32).tolist() == [0x7F800000, 0x7F800000, *[nan] * 7]
    cut = [0x7F800000, 0x7F800000, 0x7F800000, 0x7FC00000, 0x7FC42000, 0x7FEF6000, 0xFF800000, 0xFFC00000, 0xFF98A000]
    assert convert.to_tf32(x, "rna").view(np.uint32).tolist() == cut
    below = [0x7F7FE000, 0x7F7FE000, 0x7F7FE000, 0x7FBFE000, 0x7FC40000, 0x7FEF4000, 0xFF7FE000, 0xFFBFE000, 0xFF988000]
    assert convert.to_tf32(x, "rna", satfinite=True).view(np.uint32).tolist() == below
    assert convert.to_tf32(x[1], "rna").view(np.uint32) == 0x7F800000


@pytest.mark.parametrize(("bits", "signed"), [(16, True), (16, False), (8, True), (8, False), (4, True), (2, False)])
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_cvt_pack(bits: int, signed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (exact.patterns(rng, np.int32, 200) for _ in range(3))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def one(x: int, y: int, z: int) -> int:
        x, y = (min(max(v, low), high) & ((1 << bits) - 1) for v in (x, y))
        return wrap(x << bits | y | (0 if bits == 16 else z << 2 * bits), np.int32)

    assert convert.cvt_pack(a, b, None if bits == 16 else c, bits, signed).tolist() == exact.expect(one, a, b, c)


_ML = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


@pytest.mark.parametrize("name", list(_ML))
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_narrow_formats(name: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    form = small.FORMATS[name]
    x = np.concatenate(
        [exact.patterns(rng, np.float32, 400), (rng.standard_normal(1000) * form.largest / 2).astype(np.float32)]
    )
    decoded = form.decoded.view(np.float16).astype(np.float32)
    finite = decoded[np.isfinite(decoded)]
    x[:200] = rng.choice((finite[:-1] + finite[1:]) / 2, 200)  # ties among them
    got = small.encode(name, x)
    clamped = np.clip(x, -form.largest, form.largest)
    theirs = clamped.astype(_ML[name]).view(np.uint8)
    assert (got[~np.isnan(x)] == theirs[~np.isnan(x)]).all()
    assert (got[np.isnan(x)] == form.nan).all()
    assert (small.encode(name, x, relu=True)[~np.isnan(x)] == np.where(np.signbit(x), 0, theirs)[~np.isnan(x)]).all()
    assert small.encode(name, x[0]) == got[0]


@pytest.mark.parametrize("name", list(_ML))
def test_narrow_formats_decode_and_pack(name: Any) -> None:
    form = small.FORMATS[name]
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    reference = codes.view(_ML[name]).astype(np.float32)
    assert np.array_equal(form.decoded.view(np.float16).astype(np.float32), reference, equal_nan=True)
    assert (form.decoded[np.isnan(reference)] == 0x7FFF).all()
    shift = 4 if name == "e2m1" else 8
    word = np.uint8 if name == "e2m1" else np.uint16
    packed = (codes.astype(np.uint16) << shift | codes[::-1]).astype(word)
    low, high = halves.unpack(small.unpack_small(name, packed), np.uint16)
    assert (high == form.decoded).all()
    assert (low == form.decoded[::-1]).all()
    a, b = np.float32(-1.5), np.float32(2)
    both = small.pack_small(name, a, b)
    assert type(both) is word
    assert int(both) == int(small.encode(name, a)) << shift | int(small.encode(name, b))
    assert small.pack_small_halves(name, convert.pack_f16x2(a, b)) == both
    assert halves.unpack(small.unpack_small(name, both)) == (2, -1.5)
    assert halves.unpack(small.unpack_small(name, both, relu=True)) == (2, 0)


def test_ue8m0() -> None:
    x = np.array([1, 1.5, -2, 0, 2.0**-127, 2.0**-128, 1.5 * 2.0**-127, 3e38, np.inf, -np.inf, np.nan], np.float32)
    assert small.encode_ue8m0(x, "rz").tolist() == [127, 127, 128, 0, 0, 0, 0, 254, 255, 255, 255]
    assert small.encode_ue8m0(x, "rp").tolist() == [127, 128, 128, 0, 0, 0, 1, 255, 255, 255, 255]
    assert small.encode_ue8m0(x, "rp", satfinite=True).tolist() == [127, 128, 128, 0, 0, 0, 1, 254, 254, 254, 255]
    codes = np.arange(256, dtype=np.uint16)
    low, high = halves.unpack(small.unpack_ue8m0(codes), np.uint16)
    reference = codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert np.array_equal(bf16_values(low), reference, equal_nan=True)
    assert (bf16_values(high) == 2.0**-127).all()
    assert small.pack_ue8m0(np.float32(2), np.float32(1), "rz") == 0x807F
    assert small.pack_ue8m0_halves(convert.pack_bf16x2(np.float32(2), np.float32(1)), "rz") == 0x807F


def test_widening() -> None:
    half = np.arange(2**16, dtype=np.uint16).view(np.float16)
    wide = convert.to_f32(half)
    assert (np.isnan(wide) == np.isnan(half)).all()
    assert (wide.view(np.uint32)[np.isnan(wide)] == 0x7FFFFFFF).all()
    assert (wide == half)[~np.isnan(half)].all()
    assert convert.to_f64(np.float32(-1e-40), ftz=True) == 0
    assert convert.to_f64(np.float32(7), sat=True) == 1
    assert convert.to_f32(np.float64(1e-40), ftz=True) == 0
    assert convert.to_f32(np.float64(-3), sat=True) == 0
