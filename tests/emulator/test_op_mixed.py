"""add, sub and fma of halves into single precision, against fractions."""

from __future__ import annotations

from collections.abc import Callable

import arithmetic_oracle as exact
import pytest
from op_harness import DECODE, check, encode, to_f32

THREADS = 192


def into_single(function: Callable[..., float], type_: str, mode: str, is_saturated: bool) -> Callable[..., int]:
    def oracle(*bits: int) -> int:
        value = function(*(DECODE[type_](x) for x in bits[:-1]), to_f32(bits[-1]), exact.F32, mode)
        if is_saturated:
            value = min(value, 1.0) if value > 0 else 0.0
        return encode("f32", value)

    return oracle


def subtract(a: float, b: float, form: exact.Format, mode: str) -> float:
    return exact.add(a, -b, form, mode)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_mixed(type_: str, mode: str) -> None:
    for sat in ("", ".sat"):
        for name, function, narrow in (("add", exact.add, 1), ("sub", subtract, 1), ("fma", exact.fma, 2)):
            oracle = into_single(function, type_, mode, sat != "")
            types = [*[type_] * narrow, "f32"]
            check(f"{name}.{mode}{sat}.f32.{type_}", "f32", types, oracle, threads=THREADS)
