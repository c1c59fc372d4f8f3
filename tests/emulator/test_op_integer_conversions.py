"""cvt from and to integers through PTX text, against fractions and Python integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import arithmetic_oracle as exact
import numpy as np
import pytest
from op_harness import DECODE, Program, check, samples, signed, width
from test_op_floats import FORMATS, finish, flush

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
THREADS = 192


def number(type_: str, bits: int) -> int:
    return signed(bits, width(type_)) if type_[0] == "s" else bits & ((1 << width(type_)) - 1)


def limits(type_: str) -> tuple[int, int]:
    bits = width(type_)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_integers(to: str, source: str) -> None:
    """A register wider than the type gets the value extended by its sign: here results are stored as the register."""
    stored = f"{to[0]}{max(width(to), 16)}"
    mask = (1 << width(stored)) - 1
    check(f"cvt.{to}.{source}", stored, [source], lambda a: number(to, number(source, a)) & mask, threads=THREADS,
          immediates=[])  # fmt: skip
    low, high = limits(to)
    check(f"cvt.sat.{to}.{source}", stored, [source], lambda a: max(low, min(high, number(source, a))) & mask,
          threads=THREADS, immediates=[])  # fmt: skip


def test_wider_registers() -> None:
    """Operands and results may lie in registers wider than their type."""
    rng = np.random.default_rng(0)
    data = samples(rng, "b64", THREADS)
    body = """
    cvt.u32.u64 %r0, %i0;
    cvt.s32.s8 %o0, %r0; cvt.u32.u8 %o1, %r0; cvt.s32.s16 %o2, %r0; cvt.u32.u16 %o3, %r0;
    cvt.s64.s8 %o4, %i0; cvt.s64.s16 %o5, %i0; cvt.s64.s32 %o6, %i0; cvt.u64.u32 %o7, %i0;
    cvt.u8.u32 %o8, %r0; cvt.s8.s32 %o9, %r0; cvt.u16.u32 %o10, %r0; cvt.s16.s32 %o11, %r0;
    """
    outputs = ["b32"] * 4 + ["b64"] * 4 + ["b32"] * 4
    got = Program(["b64"], outputs, body).run([data], THREADS)
    for at, x in enumerate(int(v) for v in data):
        s8, s16 = signed(x, 8), signed(x, 16)
        wanted = [s8, x & 0xFF, s16, x & 0xFFFF, s8, s16, signed(x, 32), x & 0xFFFFFFFF, x & 0xFF, s8, x & 0xFFFF, s16]
        for k, want in enumerate(wanted):
            assert int(got[k][at]) == want & ((1 << width(outputs[k])) - 1), k


def to_integral(value: float, rounding: str) -> int:
    functions: dict[str, Callable[[Fraction], int]] = {
        "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil,
    }  # fmt: skip
    return functions[rounding](Fraction(value))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
def test_float_to_integer(to: str, source: str) -> None:
    low, high = limits(to)
    stored = f"{to[0]}{max(width(to), 16)}"
    mask = (1 << width(stored)) - 1
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for ftz in ("", ".ftz") if source == "f32" and rounding == "rpi" else ("",):

            def oracle(a: int, rounding: str = rounding, ftz: str = ftz) -> int:
                value = DECODE[source](a)
                if ftz:
                    value = flush(source, value)
                if value != value:
                    return 1 << (width(to) - 1) if source == "f64" or width(to) == 64 else 0
                if math.isinf(value):
                    return (high if value > 0 else low) & mask
                return max(low, min(high, to_integral(value, rounding))) & mask

            def same(a: int, b: int) -> bool:
                # The sign that a NaN leaves in a register wider than an 8-bit result is nobody's business.
                return width(to) == 8 and a & 0xFF == b & 0xFF

            check(f"cvt.{rounding}{ftz}.{to}.{source}", stored, [source], oracle, threads=THREADS, immediates=[],
                  is_same=same)  # fmt: skip


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", FLOATS)
def test_integer_to_float(to: str, source: str) -> None:
    for mode in ("rn", "rz", "rm", "rp"):
        for sat in ("", ".sat") if mode == "rn" and to != "bf16" else ("",):

            def oracle(a: int, mode: str = mode, sat: str = sat) -> int:
                return finish(to, exact.rounded(number(source, a), 1, FORMATS[to], mode), sat)

            check(f"cvt.{mode}{sat}.{to}.{source}", to, [source], oracle, threads=THREADS, immediates=[])
