"""wgmma. PTX ISA, "wgmma.mma_async" and its fence, commit_group and wait_group."""

from __future__ import annotations

from tilewright.emulator.lower.matrix import ELEMENTS, WIDE, registers, shape_of
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.machine.warpgroups import Product
from tilewright.emulator.matrix.fragments import parse_shape
from tilewright.ptx.module import Immediate, Instruction, Operand, Register, Vector


def wgmma(w: BlockWriter, i: Instruction) -> None:
    what = i.modifiers[0]
    if i.guard is not None or "sp" in i.modifiers:
        raise w.not_modelled(i.full_name + (" under a guard" if i.guard is not None else ""))
    w.collective()
    if what == "fence":
        w.line("M.warpgroups.fence(A)")
    elif what == "commit_group":
        w.line("M.warpgroups.commit(A)")
    elif what == "wait_group":
        w.line(f"M.warpgroups.wait(A, {_number(w, i, i.operands[0])})")
    elif what == "mma_async":
        _multiply(w, i)
    else:
        raise w.not_modelled(i.full_name)


def _multiply(w: BlockWriter, i: Instruction) -> None:
    w.has_warpgroup = True
    types = tuple(m for m in i.modifiers if m in ELEMENTS)
    if len(types) != 3:
        raise w.not_modelled(i.full_name)
    d, a, b, scale, *more = i.operands
    numbers = [_number(w, i, operand) for operand in more]
    signs, transposed = numbers[:2], numbers[2:]
    from_registers = isinstance(a, Vector)
    if from_registers:
        transposed = [0, *transposed]
    transposed += [0] * (2 - len(transposed))
    product = Product(
        parse_shape(shape_of(w, i))[1],
        (types[0], types[1], types[2]),
        negate_a=signs[:1] == [-1],
        negate_b=signs[1:] == [-1],
        k_major_a=not transposed[0],
        k_major_b=not transposed[1],
        saturate="satfinite" in i.modifiers,
    )
    name = w.use(product, f"product_{w.site}")
    w.note_shared(16)
    seen = WIDE.get(types[0], "b32")
    left = registers(w, a, "b32") if from_registers else w.read(a, "b64")
    accumulates = str(bool(scale.value)) if isinstance(scale, Immediate) else _predicate(w, i, scale)
    call = f"M.warpgroups.multiply(A, {name}, {registers(w, d, seen)}, {left}, {w.read(b, 'b64')}, {accumulates}"
    w.write_all(d, seen, f"{call}, {w.site})")


def _predicate(w: BlockWriter, i: Instruction, operand: Operand) -> str:
    if not isinstance(operand, Register):
        raise w.not_modelled(f"the scale of {i.full_name}")
    return w.read(operand, "pred")


def _number(w: BlockWriter, i: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise w.not_modelled(f"{i.full_name} with a register for a constant")
    return operand.value


LOWERINGS = {"wgmma": wgmma}
