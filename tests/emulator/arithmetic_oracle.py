"""Exact arithmetic, written without the code under test: rounding of fractions, and operands as bit patterns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    precision: int
    min_exponent: int
    max_exponent: int

    @property
    def largest(self) -> float:
        return math.ldexp(2 - 2.0 ** (1 - self.precision), self.max_exponent)


F64 = Format(53, -1022, 1023)
F32 = Format(24, -126, 127)
F16 = Format(11, -14, 15)
BF16 = Format(8, -126, 127)


def rounded(over: int, under: int, form: Format, mode: str = "rn", zero: float = 0.0) -> float:
    """``over / under`` in the format; ``zero`` is the result (its sign counts) of an exact zero."""
    if over == 0:
        return zero
    sign = 1 if over > 0 else -1
    over = abs(over)
    exponent = over.bit_length() - under.bit_length()
    if (over << max(-exponent, 0)) < (under << max(exponent, 0)):
        exponent -= 1
    unit = max(exponent, form.min_exponent) - form.precision + 1
    under <<= max(unit, 0)
    count, rest = divmod(over << max(-unit, 0), under)
    away = {"rz": False, "rm": sign < 0 and rest > 0, "rp": sign > 0 and rest > 0}.get(mode)
    if away is None:
        away = rest * 2 > under or (rest * 2 == under and count % 2 == 1)
    count += away
    if count.bit_length() + unit - 1 > form.max_exponent:
        infinite = mode == "rn" or (mode == "rm" and sign < 0) or (mode == "rp" and sign > 0)
        return sign * (math.inf if infinite else form.largest)
    return math.copysign(math.ldexp(count, unit), sign)


def _negative(x: float) -> bool:
    return math.copysign(1.0, x) < 0


def fma(a: float, b: float, c: float, form: Format, mode: str) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        product = a * b if not (math.isfinite(a) and math.isfinite(b)) else 0.0
        return product + c
    minus_product = _negative(a) != _negative(b)
    zero = -0.0 if mode == "rm" else 0.0
    if minus_product == _negative(c):
        zero = -0.0 if minus_product else 0.0
    (a_over, a_under), (b_over, b_under), (c_over, c_under) = (x.as_integer_ratio() for x in (a, b, c))
    under = a_under * b_under
    return rounded(a_over * b_over * c_under + c_over * under, under * c_under, form, mode, zero)


def add(a: float, b: float, form: Format, mode: str) -> float:
    return fma(a, 1.0, b, form, mode)


def mul(a: float, b: float, form: Format, mode: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return fma(a, b, -0.0 if _negative(a) != _negative(b) else 0.0, form, mode)


def div(a: float, b: float, form: Format, mode: str) -> float:
    minus = _negative(a) != _negative(b)
    sign = -1.0 if minus else 1.0
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return math.nan
    if math.isinf(a) or b == 0:
        return sign * math.inf
    if math.isinf(b) or a == 0:
        return sign * 0.0
    (a_over, a_under), (b_over, b_under) = a.as_integer_ratio(), b.as_integer_ratio()
    return rounded(int(sign) * abs(a_over * b_under), abs(b_over) * a_under, form, mode)


def sqrt(a: float, form: Format, mode: str) -> float:
    if math.isnan(a) or a < 0:
        return math.nan
    if a == 0 or math.isinf(a):
        return a
    # 2**-700 is far finer than any root's unit; the last bit says that something is left over.
    over, under = a.as_integer_ratio()
    scaled, rest = divmod(over << 1400, under)
    root = math.isqrt(scaled)
    inexact = rest > 0 or root * root != scaled
    return rounded(2 * root + inexact, 1 << 701, form, mode)


def patterns(rng: np.random.Generator, dtype: Any, count: int) -> Any:
    """Operands: any bit pattern; few mantissa bits near 1 (ties, cancellation); the edges of the format."""
    dtype = np.dtype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    whole = rng.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True)
    if dtype.kind != "f":
        edges = np.array([0, 1, 2, 3, 7, 15, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256], dtype=np.uint64).astype(bits)
        top = np.array([1], bits) << bits.type(dtype.itemsize * 8 - 1)
        edges = np.concatenate([edges, ~edges, top, ~top])
        whole[: count // 2] = rng.choice(edges, count // 2)
        rng.shuffle(whole)
        return whole.view(dtype)
    info = np.finfo(dtype)
    values = whole.view(dtype).copy()
    third = count // 3
    near = rng.integers(-64, 65, third) * np.exp2(rng.integers(-12, 13, third).astype(np.float64))
    ulps = 1 + rng.integers(0, 2, third) * float(info.eps)
    values[:third] = (near * ulps).astype(dtype)
    tiny, top = float(info.tiny), float(info.max)
    edge = [
        0,
        1,
        3,
        1 / 3,
        tiny,
        tiny / 2,
        tiny * 1.5,
        float(info.smallest_subnormal),
        top,
        top / 2,
        math.inf,
        math.nan,
    ]
    edge += [1 - float(info.eps) / 2, 1 + float(info.eps), 2.0, math.sqrt(tiny), math.sqrt(top)]
    choices = np.array(edge + [-x for x in edge], dtype=np.float64).astype(dtype)
    values[third : 2 * third] = rng.choice(choices, third)
    rng.shuffle(values)
    return values


def expect(function: Callable[..., float], *operands: Any) -> list[float]:
    """``function`` of the operands one by one, as Python numbers."""
    return [function(*row) for row in zip(*(x.tolist() for x in operands), strict=True)]


def assert_floats(actual: Any, expected: Iterable[float], *operands: Any) -> None:
    """Same bits, NaN for NaN; the first difference is shown with its operands. Every f32 and f16 NaN is canonical."""
    wanted = np.array(list(expected), dtype=np.float64).astype(actual.dtype)
    bits = f"u{actual.dtype.itemsize}"
    same = (actual.view(bits) == wanted.view(bits)) | (np.isnan(actual) & np.isnan(wanted))
    if not same.all():
        first = int(np.flatnonzero(~same)[0])
        shown = [f"{x[first]!r}" for x in operands]
        message = f"{(~same).sum()} differ; {shown}: got {actual[first]!r}, exact {wanted[first]!r}"
        raise AssertionError(message)
    if actual.dtype != np.float64:
        canonical = {4: 0x7FFFFFFF, 2: 0x7FFF}[actual.dtype.itemsize]
        assert (actual.view(bits)[np.isnan(actual)] == canonical).all()
