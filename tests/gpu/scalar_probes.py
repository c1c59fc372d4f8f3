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
