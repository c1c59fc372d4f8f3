"""mma.sync, mma.sp, wmma, ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

import re

from tilewright.emulator.lower.memory import space_of
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.matrix.fragments import parse_shape
from tilewright.emulator.matrix.mma import MmaOptions
from tilewright.ptx.module import Instruction, Operand, Vector

SHAPE = re.compile(r"m\d+n\d+k\d+")
ELEMENTS = frozenset(
    ["f16", "bf16", "tf32", "f32", "f64", "s32", "s8", "u8", "s4", "u4", "b1", "e4m3", "e5m2", "e2m1", "e2m3", "e3m2"]
)
# How registers of an accumulator are seen; the multiplicands are b32, or f64.
WIDE = {"f32": "f32", "s32": "s32", "f64": "f64"}


def shape_of(w: BlockWriter, i: Instruction) -> str:
    shape = next((m for m in i.modifiers if SHAPE.fullmatch(m)), None)
    if shape is None:
        raise w.not_modelled(i.full_name)
    return shape


def registers(w: BlockWriter, operand: Operand, type_: str) -> str:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return "(" + "".join(f"{w.read(item, type_)}, " for item in items) + ")"


def options_of(w: BlockWriter, i: Instruction) -> str:
    kind = next((m.split("::")[1] for m in i.modifiers if m.startswith("kind::")), "")
    bit_op = next((m for m in i.modifiers if m in ("xor", "and")), "")
    options = MmaOptions("satfinite" in i.modifiers, kind, bit_op)  # type: ignore[arg-type]
    name = f"options_{int(options.satfinite)}_{kind}_{bit_op}"
    return w.use(options, name)


def mma(w: BlockWriter, i: Instruction) -> None:
    if i.guard is not None:
        raise w.not_modelled(f"{i.full_name} under a guard")
    w.collective()
    shape = shape_of(w, i)
    types = tuple(m for m in i.modifiers if m in ELEMENTS)
    if "row" not in i.modifiers or "col" not in i.modifiers or len(types) != 4:
        raise w.not_modelled(i.full_name)
    if "block_scale" in i.modifiers:
        _multiply_scaled(w, i, shape, types)
        return
    sparse = any(m.split("::")[0] == "sp" for m in i.modifiers)
    _multiply(w, i, "mma_sparse" if sparse else "mma", shape, types)


def _multiply_scaled(w: BlockWriter, i: Instruction, shape: str, types: tuple[str, ...]) -> None:
    """Behind C: the scales of A, {byte-id, thread-id}, the scales of B, {byte-id, thread-id}."""
    kind = next((m.split("::")[1] for m in i.modifiers if m.startswith("kind::")), "")
    vector = next((int(m.split("::")[1][0]) for m in i.modifiers if m.startswith("scale_vec::")), 0)
    element = next((m for m in i.modifiers if m in ("ue8m0", "ue4m3")), "ue8m0")
    a, b = (registers(w, operand, "b32") for operand in i.operands[1:3])
    c = registers(w, i.operands[3], "f32")
    scales = []
    for data, selector in ((i.operands[4], i.operands[5]), (i.operands[6], i.operands[7])):
        if not isinstance(selector, Vector) or len(selector.items) != 2:
            raise w.not_modelled(i.full_name)
        byte, thread = (f"first({w.read(item, 'u16')})" for item in selector.items)
        scales.append(f"({w.read(data, 'b32')}, {byte}, {thread})")
    what = f"{kind!r}, {element!r}, {vector}"
    call = f"M.matrices.mma_scaled(A, {shape!r}, {types!r}, {a}, {b}, {c}, ({', '.join(scales)}), {what}, {w.site})"
    w.write_all(i.operands[0], "f32", call)


def _multiply(w: BlockWriter, i: Instruction, name: str, shape: str, types: tuple[str, ...]) -> None:
    d, a, _, c = types
    wide = "f64" if a == "f64" else "b32"
    operands = ", ".join(
        registers(w, operand, type_)
        for operand, type_ in zip(i.operands[1:4], (wide, wide, WIDE.get(c, "b32")), strict=True)
    )
    if name == "mma_sparse":  # behind C: the metadata, and which lanes hold it
        operands += f", {w.read(i.operands[4], 'b32')}, first({w.read(i.operands[5], 'u32')})"
    call = f"M.matrices.{name}(A, {shape!r}, {types!r}, {operands}, {options_of(w, i)}, {w.site})"
    w.write_all(i.operands[0], WIDE.get(d, "b32"), call)


def wmma(w: BlockWriter, i: Instruction) -> None:
    if i.guard is not None:
        raise w.not_modelled(f"{i.full_name} under a guard")
    w.collective()
    what, shape = i.modifiers[0], shape_of(w, i)
    if what == "mma":
        types = tuple(m for m in i.modifiers if m in ELEMENTS)
        if len(types) == 2:
            types = (types[0], "f16", "f16", types[1])
        _multiply(w, i, "wmma_mma", shape, types)
        return
    element, space, row = i.modifiers[-1], space_of(i), "row" in i.modifiers
    where = i.operands[0] if what == "store" else i.operands[1]
    which = {"a": "a", "b": "b"}.get(i.modifiers[1], "d")
    if space in ("shared", "generic"):
        w.note_shared(16)
    stride = w.read(i.operands[2], "s32") if len(i.operands) > 2 else _dense(shape, which, row)
    address = w.address(where, space)
    seen = WIDE.get(element, "b32")
    if what == "load":
        head = f"M.matrices.wmma_load(A, {space!r}, {shape!r}, {element!r}, {which!r}, {row}"
        w.write_all(i.operands[0], seen, f"{head}, {address}, {stride}, {w.site})")
    else:
        head = f"M.matrices.wmma_store(A, {space!r}, {shape!r}, {element!r}, {row}"
        w.line(f"{head}, {address}, {stride}, {registers(w, i.operands[1], seen)}, {w.site})")


def _dense(shape: str, which: str, row: bool) -> str:
    m, n, k = parse_shape(shape)
    rows, cols = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    return str(cols if row else rows)


def ldmatrix(w: BlockWriter, i: Instruction) -> None:
    number = int(next(m for m in i.modifiers if m in ("x1", "x2", "x4"))[1])
    if i.guard is not None or "m8n8" not in i.modifiers or i.modifiers[-1] != "b16":
        raise w.not_modelled(i.full_name)
    w.collective()
    w.note_shared(16)
    trans = "trans" in i.modifiers
    if i.opcode == "ldmatrix":
        call = f"M.matrices.ldmatrix(A, {_shared(w, i.operands[1], i)}, {number}, {trans}, {w.site})"
        w.write_all(i.operands[0], "b32", call)
    else:
        values = registers(w, i.operands[1], "b32")
        w.line(f"M.matrices.stmatrix(A, {_shared(w, i.operands[0], i)}, {values}, {trans}, {w.site})")


def _shared(w: BlockWriter, operand: Operand, i: Instruction) -> str:
    """Address in shared memory; without a state space it is a generic one."""
    if space_of(i) == "shared":
        return w.address(operand, "shared")
    return f"({w.address(operand, 'generic')} & 0xFFFFFFFF)"


def movmatrix(w: BlockWriter, i: Instruction) -> None:
    w.collective()
    w.write(i.operands[0], "b32", f"M.matrices.movmatrix(A, {w.read(i.operands[1], 'b32')}, {w.site})")


LOWERINGS = {"mma": mma, "wmma": wmma, "ldmatrix": ldmatrix, "stmatrix": ldmatrix, "movmatrix": movmatrix}
