"""Runs of one arithmetic instruction, done in one call: thread tiles hold dozens of multiply-adds that do not wait for
one another, and for few threads a NumPy call costs more than its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.machine.chunk import Active
from tilewright.ptx.cfg import defs_uses
from tilewright.ptx.module import Instruction, Register

# Full names of what is bundled → (function in the generated code, PTX type).
BUNDLED = {
    "fma.rn.f32": ("floats.fma", "f32"),
    "mul.f32": ("floats.mul", "f32"),
    "mul.rn.f32": ("floats.mul", "f32"),
    "add.f32": ("floats.add", "f32"),
    "add.rn.f32": ("floats.add", "f32"),
    "fma.rn.f16x2": ("fma_f16x2", "f16x2"),
}
LEAST = 4
ELEMENTS = 16384  # that one call works on: more would leave the cache


def run_length(instructions: tuple[Instruction, ...], start: int) -> int:
    """How many instructions from ``start`` on can be done at once; below LEAST: 1."""
    name = instructions[start].full_name
    if name not in BUNDLED:
        return 1
    written: set[str] = set()
    stop = start
    for instruction in instructions[start:]:
        defs, uses = defs_uses(instruction)
        if instruction.full_name != name or instruction.guard is not None or written & {*uses, *defs}:
            break
        if not isinstance(instruction.operands[0], Register):
            break
        written.update(defs)
        stop += 1
    return stop - start if stop - start >= LEAST else 1


def write_run(w: BlockWriter, run: tuple[Instruction, ...]) -> None:
    """All of a run as one call."""
    function, type_ = BUNDLED[run[0].full_name]
    columns = ["(" + ", ".join(w.read(i.operands[k], type_) for i in run) + ")" for k in range(1, len(run[0].operands))]
    w.use(bundle, "bundle")
    w.use(fma_f16x2, "fma_f16x2")
    results = w.let(f"bundle(A, {function}, {', '.join(columns)})")
    for k, instruction in enumerate(run):
        w.write(instruction.operands[0], type_, f"{results}[{k}]")


def bundle(active: Active, function: Callable[..., Any], *operands: tuple[Any, ...]) -> list[Any]:
    """The function of each set of operands."""
    width = ELEMENTS // active.count
    if width < 2 or not any(x.ndim for column in operands for x in column):
        return [function(*each) for each in zip(*operands, strict=True)]
    out: list[Any] = []
    for start in range(0, len(operands[0]), width):
        parts = [np.concatenate([active.spread(x) for x in column[start : start + width]]) for column in operands]
        out.extend(function(*parts).reshape(-1, active.count))
    return out


def fma_f16x2(a: Any, b: Any, c: Any) -> Any:
    from tilewright.emulator.arithmetic import halves

    return halves.fma("f16x2", a, b, c)
