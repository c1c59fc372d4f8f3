"""Probes of approximate and rounding instructions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_harness import Program, samples, width
from probes import TARGET, THREADS, Probe
from replays import Array


def probes() -> Iterator[Probe]:
    yield from _unary()
    yield from _several_operands()
    yield from _all_halves()
    yield from _near_the_smallest()
    yield from _nan_bits()


def _uniform(rng: np.random.Generator, low: float, high: float) -> Array:
    """float32 bits: a quarter of edges and whatever comes, the rest in [low, high)."""
    near = rng.uniform(low, high, THREADS).astype(np.float32).view(np.uint32)
    return np.where(rng.random(THREADS) < 0.25, samples(rng, "f32", THREADS), near)


RANGES = {
    "ex2": (-130.0, 130.0), "lg2": (0.0, 4.0), "rcp": (-8.0, 8.0), "sqrt": (0.0, 100.0), "rsqrt": (0.0, 100.0),
    "sin": (-3.15, 3.15), "cos": (-3.15, 3.15), "tanh": (-5.0, 5.0),
}  # fmt: skip


def _unary() -> Iterator[Probe]:
    for name, (low, high) in RANGES.items():
        for ftz in ("", ".ftz") if name != "tanh" else ("",):
            rng = np.random.default_rng(1)
            program = Program(["f32"], ["f32"], f"{name}.approx{ftz}.f32 %o0, %i0;", TARGET)
            yield Probe(f"{name}.approx{ftz}.f32", program, (_uniform(rng, low, high),), note="last bits")
    for name in ("sin", "cos"):
        rng = np.random.default_rng(2)
        program = Program(["f32"], ["f32"], f"{name}.approx.f32 %o0, %i0;", TARGET)
        far = rng.uniform(-1000, 1000, THREADS).astype(np.float32).view(np.uint32)
        yield Probe(f"{name}.approx.f32 of up to 1000", program, (far,), note="absolute error of range reduction")
    for name in ("rcp.approx.ftz", "rsqrt.approx", "rsqrt.approx.ftz"):
        rng = np.random.default_rng(3)
        program = Program(["f64"], ["f64"], f"{name}.f64 %o0, %i0;", TARGET)
        yield Probe(f"{name}.f64", program, (samples(rng, "f64", THREADS),), note="20 bits on hardware")


SEVERAL = (
    ("div.full.f32", "f32", "f32 f32"), ("div.full.ftz.f32", "f32", "f32 f32"), ("div.approx.f32", "f32", "f32 f32"),
    ("div.approx.ftz.f32", "f32", "f32 f32"), ("div.rn.f32", "f32", "f32 f32"), ("fma.rn.f32", "f32", "f32 f32 f32"),
    ("fma.rn.ftz.f32", "f32", "f32 f32 f32"), ("mul.rz.ftz.f32", "f32", "f32 f32"), ("min.f32", "f32", "f32 f32"),
    ("max.NaN.f32", "f32", "f32 f32"), ("fma.rn.f64", "f64", "f64 f64 f64"), ("copysign.f32", "f32", "f32 f32"),
    ("fma.rn.f16", "f16", "f16 f16 f16"), ("fma.rn.ftz.f16", "f16", "f16 f16 f16"),
    ("fma.rn.relu.f16", "f16", "f16 f16 f16"),
    ("fma.rn.f16x2", "f16x2", "f16x2 f16x2 f16x2"), ("fma.rn.bf16", "bf16", "bf16 bf16 bf16"),
    ("fma.rn.relu.bf16x2", "bf16x2", "bf16x2 bf16x2 bf16x2"), ("add.f16x2", "f16x2", "f16x2 f16x2"),
    ("mul.f16x2", "f16x2", "f16x2 f16x2"), ("min.f16x2", "f16x2", "f16x2 f16x2"),
    ("max.NaN.bf16x2", "bf16x2", "bf16x2 bf16x2"),
    ("cvt.rn.satfinite.e4m3x2.f32", "e4m3x2", "f32 f32"), ("cvt.rn.satfinite.e5m2x2.f32", "e5m2x2", "f32 f32"),
    ("cvt.rn.satfinite.relu.e4m3x2.f32", "e4m3x2", "f32 f32"), ("cvt.rn.f16x2.f32", "f16x2", "f32 f32"),
    ("cvt.rz.bf16x2.f32", "bf16x2", "f32 f32"), ("cvt.rn.relu.bf16x2.f32", "bf16x2", "f32 f32"),
    ("cvt.rna.tf32.f32", "f32", "f32"), ("cvt.rn.tf32.f32", "f32", "f32"), ("cvt.rna.satfinite.tf32.f32", "f32", "f32"),
    ("cvt.rz.tf32.f32", "f32", "f32"), ("cvt.rn.bf16.f32", "bf16", "f32"), ("cvt.rn.f16.f32", "f16", "f32"),
)  # fmt: skip


def _several_operands() -> Iterator[Probe]:
    for name, result, operands in SEVERAL:
        rng = np.random.default_rng([4, *name.encode()])
        kinds = operands.split()
        inputs = tuple(_spread(rng, k) for k in kinds)
        bits = 16 if result in ("e4m3x2", "e5m2x2") else width(result)
        out = result if result in ("f32", "f64") and "tf32" not in name else f"b{bits}"
        text = ", ".join(f"%i{k}" for k in range(len(kinds)))
        yield Probe(name, Program(kinds, [out], f"{name} %o0, {text};", TARGET), inputs, types=(result,))


def _spread(rng: np.random.Generator, type_: str) -> Array:
    """Edges and any bits; of float32 a half within the range of 8-bit floats."""
    found = samples(rng, type_, THREADS)
    if type_ != "f32":
        return found
    near = (rng.standard_normal(THREADS) * np.exp2(rng.integers(-12, 10, THREADS))).astype(np.float32).view(np.uint32)
    return np.where(rng.random(THREADS) < 0.5, near, found)


ALL_HALVES = (
    ("ex2.approx.f16", "b16", "f16"), ("tanh.approx.f16", "b16", "f16"), ("ex2.approx.ftz.bf16", "b16", "bf16"),
    ("tanh.approx.bf16", "b16", "bf16"), ("cvt.rn.f16x2.e4m3x2", "b32", "f16x2"),
    ("cvt.rn.f16x2.e5m2x2", "b32", "f16x2"),
    ("cvt.rn.relu.f16x2.e4m3x2", "b32", "f16x2"), ("cvt.f32.f16", "f32", "f32"), ("cvt.f32.bf16", "f32", "f32"),
    ("cvt.rni.f16.f16", "b16", "f16"),
)  # fmt: skip


def _all_halves() -> Iterator[Probe]:
    """Every operand that there is."""
    for name, out, type_ in ALL_HALVES:
        operands = np.arange(65536, dtype=np.uint32).astype(np.uint16)
        program = Program(["b16"], [out], f"{name} %o0, %i0;", TARGET)
        yield Probe(f"{name} of all", program, (operands,), 65536, types=(type_,))
    for kind, type_ in (("e4m3x2", "e4m3x2"), ("e5m2x2", "e5m2x2")):
        rng = np.random.default_rng(5)
        name = f"cvt.rn.satfinite.{kind}.f16x2"
        halves = np.arange(65536, dtype=np.uint32) | rng.permutation(65536).astype(np.uint32) << np.uint32(16)
        yield Probe(
            f"{name} of all", Program(["b32"], ["b16"], f"{name} %o0, %i0;", TARGET), (halves,), 65536, types=(type_,)
        )


NEAR_SMALLEST = (
    *((f"mul.{mode}.ftz.f32", "f32", 2) for mode in ("rn", "rz", "rm", "rp")),
    *((f"fma.{mode}.ftz.f32", "f32", 3) for mode in ("rn", "rz", "rm", "rp")),
    ("mul.ftz.sat.f32", "f32", 2), ("div.rn.ftz.f32", "f32", 2), ("div.full.ftz.f32", "f32", 2),
    ("div.approx.ftz.f32", "f32", 2), ("mul.ftz.f16", "f16", 2), ("fma.rn.ftz.f16", "f16", 3),
    ("mul.ftz.f16x2", "f16x2", 2), ("fma.rn.ftz.f16x2", "f16x2", 3),
)  # fmt: skip


def _near_the_smallest() -> Iterator[Probe]:
    """Products within 2**-20 (relative) of the smallest normal number, on both sides of it."""
    for name, kind, count in NEAR_SMALLEST:
        rng = np.random.default_rng([13, *name.encode()])
        one, normal, bits = (0x3F800000, 0x00800000, 23) if kind == "f32" else (0x3C00, 0x0400, 10)
        lanes = THREADS * (2 if kind == "f16x2" else 1)
        dtype = np.uint32 if kind == "f32" else np.uint16
        steps = rng.integers(0, 1 << (bits - 18 if bits == 23 else 4), lanes)
        # 1 - 2k units below one, times 1 + k units: 1 - 2 k**2 of the square of a unit.
        nudge = rng.integers(-1, 2, lanes) * (rng.random(lanes) < 0.3)
        small, near = (normal + steps + np.maximum(nudge, -steps)).astype(dtype), (one - 2 * steps).astype(dtype)
        sign = dtype(1 << (8 * np.dtype(dtype).itemsize - 1))
        small |= np.where(rng.random(lanes) < 0.5, sign, dtype(0))
        pair = [small, near]
        if "div" in name:  # by 2**126: a quotient that is 1 - 2**-24 of the smallest rounds up
            pair = [(one - steps).astype(dtype), np.full(lanes, 0x7E800000, dtype)]
        third = [np.where(rng.random(lanes) < 0.5, sign, dtype(0)).astype(dtype)] if count == 3 else []
        word = {"f32": np.uint32, "f16": np.uint16, "f16x2": np.uint32}[kind]
        arrays = tuple(np.ascontiguousarray(x).view(word) for x in (*pair, *third))
        out = "f32" if kind == "f32" else f"b{width(kind)}"
        text = ", ".join(f"%i{k}" for k in range(count))
        program = Program([kind] * count, [out], f"{name} %o0, {text};", TARGET)
        yield Probe(f"{name} near the smallest", program, arrays, types=(kind,), note="judged with 24 bits")


def _nan_bits() -> Iterator[Probe]:
    """Of NaNs every bit counts: compared as integers."""
    rng = np.random.default_rng(14)
    nans = (rng.integers(0, 1 << 32, THREADS, dtype=np.uint32) | np.uint32(0x7F800000)) & np.uint32(0xFFFFFFFF)
    for name in ("cvt.rna.tf32.f32", "cvt.rna.satfinite.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32"):
        yield Probe(f"{name} of NaNs", Program(["f32"], ["b32"], f"{name} %o0, %i0;", TARGET), (nans,))
    wide = rng.integers(0, 1 << 63, THREADS, dtype=np.uint64) | np.uint64(0x7FF0000000000000)
    wide |= np.where(rng.random(THREADS) < 0.5, np.uint64(1 << 63), np.uint64(0))
    for name in ("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"):
        body = f"{name} %e0, %i0; mov.b64 %o0, %e0;"
        yield Probe(f"{name} of NaNs", Program(["f64"], ["b64"], body, TARGET), (wide,))
    for name, type_ in (("abs.f16x2", "f16x2"), ("neg.bf16x2", "bf16x2"), ("abs.ftz.f16x2", "f16x2")):
        halves = rng.integers(0, 1 << 32, THREADS, dtype=np.uint32) | np.uint32(0x7F807C00)
        yield Probe(f"{name} of NaNs", Program([type_], ["b32"], f"{name} %o0, %i0;", TARGET), (halves,))
