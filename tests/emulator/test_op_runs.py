"""Runs of one float instruction, as unrolled thread tiles have them, against one instruction after the other."""

from __future__ import annotations

import random
from collections.abc import Callable

import arithmetic_oracle as exact
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_harness import Program, immediate, samples
from test_op_floats import packed, rounding

REGISTERS = 12
F16X2 = packed("f16", rounding(exact.fma, "f16", "rn", ""))
OPCODES: dict[str, tuple[str, int, Callable[..., int]]] = {
    "fma.rn.f32": ("f32", 3, rounding(exact.fma, "f32", "rn", "")),
    "mul.f32": ("f32", 2, rounding(exact.mul, "f32", "rn", "")),
    "mul.rn.f32": ("f32", 2, rounding(exact.mul, "f32", "rn", "")),
    "add.f32": ("f32", 2, rounding(exact.add, "f32", "rn", "")),
    "add.rn.f32": ("f32", 2, rounding(exact.add, "f32", "rn", "")),
    "fma.rn.f16x2": ("f16x2", 3, F16X2),
}


def compare(opcode: str, seed: int, threads: int, block: int) -> None:
    """Registers that are read and written at random: some instructions wait for others, most do not."""
    type_, count, oracle = OPCODES[opcode]
    source, rng = random.Random(seed), np.random.default_rng(seed)
    kind = "f32" if type_ == "f32" else "b32"
    arrays = [samples(rng, type_, threads) for _ in range(REGISTERS)]
    values = [[int(x) for x in a] for a in arrays]
    lines = [f".reg .{kind} %v<{REGISTERS}>;"]
    for k in range(REGISTERS):
        lines.append(f"mov.{kind} %v{k}, %i{k};")
        if k % 4 == 0:  # the same for all threads
            values[k] = [values[k][0]] * threads
            lines.append(f"mov.{kind} %v{k}, {immediate(kind, values[k][0])};")
    for _ in range(source.randint(4, 24)):
        result = source.randrange(REGISTERS)
        operands = [source.randrange(REGISTERS) for _ in range(count)]
        texts = [f"%v{k}" for k in operands]
        columns = [list(values[k]) for k in operands]
        if type_ == "f32" and source.random() < 0.2:
            texts[1], columns[1] = "0f3FC00001", [0x3FC00001] * threads
        guard = source.random() < 0.1
        fresh = [oracle(*row) for row in zip(*columns, strict=True)]
        keep = [guard and at % 2 == 1 for at in range(threads)]
        values[result] = [old if k else new for old, new, k in zip(values[result], fresh, keep, strict=True)]
        lines.append(f"{'@%p5 ' if guard else ''}{opcode} %v{result}, {', '.join(texts)};")
    lines.insert(1, "and.b32 %r1, %t, 1; setp.eq.u32 %p5, %r1, 0;")
    lines += [f"mov.{kind} %o{k}, %v{k};" for k in range(REGISTERS)]
    got = Program([kind] * REGISTERS, [kind] * REGISTERS, "\n".join(lines)).run(arrays, threads, block)
    for k in range(REGISTERS):
        assert got[k].tolist() == values[k], f"{opcode}, seed {seed}: register {k}"


@pytest.mark.parametrize("opcode", list(OPCODES))
@pytest.mark.parametrize("seed", range(4))
def test_runs(opcode: str, seed: int) -> None:
    compare(opcode, seed, *((64, 64), (48, 48), (96, 32), (1, 1))[seed])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(OPCODES)), st.integers(0, 2**32))
def test_more_runs(opcode: str, seed: int) -> None:
    compare(opcode, seed, 32, 32)
