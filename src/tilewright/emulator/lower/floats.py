"""Arithmetic and comparisons of f16, bf16, f32, f64 and packed halves."""

from __future__ import annotations

from tilewright.emulator.arithmetic import approx, compare, floats, halves
from tilewright.emulator.lower.integers import BOOLEAN, put_predicate
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Instruction, Pair

HALVES = frozenset({"f16", "bf16", "f16x2", "bf16x2"})
PACKED = frozenset({"f16x2", "bf16x2"})
# NumPy type and PTX type of what set writes.
SET_RESULTS = {
    "f32": ("float32", "f32"), "f16": ("float16", "f16"), "bf16": ("uint16", "b16"),
    "u32": ("int32", "s32"), "s32": ("int32", "s32"), "u16": ("uint16", "u16"), "s16": ("uint16", "u16"),
}  # fmt: skip
SINGLES = frozenset({"f32", "f64"})
ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
COMPARED = frozenset(
    ["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
)


def is_float(i: Instruction) -> bool:
    return bool(i.modifiers) and i.modifiers[-1] in HALVES | SINGLES | {"f32x2"}


def flags(i: Instruction, *names: str) -> str:
    """Keyword arguments for the modifiers that are there."""
    return "".join(f", {name}=True" for name in names if name in i.modifiers)


def operands(w: BlockWriter, i: Instruction, type_: str) -> str:
    return ", ".join(w.read(operand, type_) for operand in i.operands[1:])


def arithmetic(w: BlockWriter, i: Instruction) -> None:
    """add, sub, mul, fma, mad."""
    type_ = i.modifiers[-1]
    name = "fma" if i.opcode == "mad" else i.opcode
    mode = next((m for m in i.modifiers if m in ROUNDINGS), "rn")
    if "f32" in i.modifiers[:-1]:
        _mixed(w, i, mode)
        return
    if type_ in HALVES:
        if mode != "rn" or "oob" in i.modifiers:
            raise w.not_modelled(i.full_name)
        expression = f"halves.{name}({type_!r}, {operands(w, i, type_)}{flags(i, 'ftz', 'sat', 'relu')})"
    elif type_ == "f32x2":
        ftz = "ftz" in i.modifiers
        expression = f"floats.f32x2(floats.{name}, {operands(w, i, type_)}, mode={mode!r}, ftz={ftz})"
    else:
        expression = f"floats.{name}({operands(w, i, type_)}, {mode!r}{flags(i, 'ftz', 'sat')})"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def _mixed(w: BlockWriter, i: Instruction, mode: str) -> None:
    """PTX ISA, "Mixed Precision Floating-Point Instructions": all but the last operand are halves, widened first."""
    type_ = i.modifiers[-1]
    if type_ not in ("f16", "bf16"):
        raise w.not_modelled(i.full_name)
    *narrow, last = i.operands[1:]
    values = [f"halves.widen({type_!r}, {w.read(operand, type_)})" for operand in narrow]
    expression = f"floats.{i.opcode}({', '.join(values)}, {w.read(last, 'f32')}, {mode!r}{flags(i, 'sat')})"
    with w.selecting(i.guard):
        w.write(i.operands[0], "f32", expression)


def extremum(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    name = "minimum" if i.opcode == "min" else "maximum"
    extra = flags(i, "ftz") + (", nan=True" if "NaN" in i.modifiers else "")
    extra += ", xorsign=True" if "xorsign" in i.modifiers else ""
    if type_ in HALVES:
        expression = f"halves.{name}({type_!r}, {operands(w, i, type_)}{extra})"
    else:
        extra += ", absolute=True" if "abs" in i.modifiers else ""
        expression = f"compare.{name}({operands(w, i, type_)}{extra})"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def sign(w: BlockWriter, i: Instruction) -> None:
    """abs, neg."""
    type_ = i.modifiers[-1]
    name = "absolute" if i.opcode == "abs" else "negate"
    head = f"halves.{name}({type_!r}, " if type_ in HALVES else f"floats.{name}("
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, f"{head}{operands(w, i, type_)}{flags(i, 'ftz')})")


def copysign(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, f"floats.copysign({operands(w, i, type_)})")


def divide(w: BlockWriter, i: Instruction) -> None:
    """div, rcp, sqrt: rounded, or approximate."""
    type_ = i.modifiers[-1]
    mode = next((m for m in i.modifiers if m in ROUNDINGS), None)
    values = operands(w, i, type_)
    if mode is not None:
        expression = f"floats.{i.opcode}({values}, {mode!r}{flags(i, 'ftz')})"
    else:
        name = {"div": "div_full" if "full" in i.modifiers else "div_approx"}.get(i.opcode, i.opcode)
        expression = f"approx.{name}({values}{flags(i, 'ftz')})"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def transcendental(w: BlockWriter, i: Instruction) -> None:
    """ex2, lg2, rsqrt, sin, cos, tanh."""
    type_ = i.modifiers[-1]
    values = operands(w, i, type_)
    if i.opcode == "ex2":
        expression = f"approx.ex2({type_!r}, {values}{flags(i, 'ftz')})"
    elif i.opcode == "tanh":
        expression = f"approx.tanh({type_!r}, {values})"
    elif type_ in SINGLES:
        expression = f"approx.{i.opcode}({values}{flags(i, 'ftz')})"
    else:
        raise w.not_modelled(i.full_name)
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def comparison(i: Instruction, a: str, b: str, type_: str) -> str:
    """Expression of a comparison: bools, and for packed halves a pair of them."""
    how = next(m for m in i.modifiers if m in COMPARED)
    kind = f"{type_!r}, " if type_ in HALVES else ""
    return f"{'halves' if kind else 'compare'}.compare({how!r}, {kind}{a}, {b}{flags(i, 'ftz')})"


def setp(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    a, b = w.read(i.operands[1], type_), w.read(i.operands[2], type_)
    test = comparison(i, a, b, type_)
    if type_ not in PACKED:
        put_predicate(w, i, test)
        return
    target = i.operands[0]
    if not isinstance(target, Pair):
        raise w.not_modelled(f"{i.full_name} with one result")
    with w.selecting(i.guard):
        pair = w.let(test)
        values = [joined(w, i, f"{pair}[{k}]") for k in range(2)]
        both = w.let(f"({values[0]}, {values[1]})")
        w.write(target.first, "pred", f"{both}[0]")
        w.write(target.second, "pred", f"{both}[1]")


def set_(w: BlockWriter, i: Instruction) -> None:
    """set: a comparison as 1.0 or all ones."""
    result, type_ = i.modifiers[-2], i.modifiers[-1]
    a, b = w.read(i.operands[1], type_), w.read(i.operands[2], type_)
    test = comparison(i, a, b, type_)
    with w.selecting(i.guard):
        if type_ in PACKED:
            pair = w.let(test)
            parts = [f"compare.set_value({joined(w, i, f'{pair}[{k}]')}, np.uint16)" for k in range(2)]
            if result in PACKED:
                ones = "0x3f80" if result == "bf16x2" else "0x3c00"
                parts = [f"({part} & np.uint16({ones}))" for part in parts]
            elif result not in ("u32", "s32"):
                raise w.not_modelled(i.full_name)
            w.write(i.operands[0], "b32", f"halves.pack({parts[0]}, {parts[1]})")
            return
        dtype, as_type = SET_RESULTS[result]
        value = f"compare.set_value({joined(w, i, test)}, np.{dtype})"
        if result == "bf16":
            value = f"({value} & np.uint16(0x3f80))"
        w.write(i.operands[0], as_type, value)


def joined(w: BlockWriter, i: Instruction, test: str) -> str:
    """With the predicate that the instruction adds, if it does."""
    join = next((BOOLEAN[m] for m in i.modifiers if m in BOOLEAN), None)
    return f"({test} {join} {w.read(i.operands[3], 'pred')})" if join else test


def slct(w: BlockWriter, i: Instruction) -> None:
    type_, by = i.modifiers[-2], i.modifiers[-1]
    a, b, c = w.read(i.operands[1], type_), w.read(i.operands[2], type_), w.read(i.operands[3], by)
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, f"compare.slct({a}, {b}, {c}{flags(i, 'ftz')})")


def testp(w: BlockWriter, i: Instruction) -> None:
    with w.selecting(i.guard):
        value = w.read(i.operands[1], i.modifiers[-1])
        w.write(i.operands[0], "pred", f"compare.testp({i.modifiers[0]!r}, {value})")


MODULES = {"floats": floats, "halves": halves, "compare": compare, "approx": approx}
# For instructions whose type is a float.
LOWERINGS = {
    **dict.fromkeys(("add", "sub", "mul", "fma", "mad"), arithmetic),
    **dict.fromkeys(("min", "max"), extremum),
    **dict.fromkeys(("abs", "neg"), sign),
    **dict.fromkeys(("div", "rcp", "sqrt"), divide),
    **dict.fromkeys(("ex2", "lg2", "rsqrt", "sin", "cos", "tanh"), transcendental),
    "copysign": copysign,
    "setp": setp,
    "testp": testp,
}
# For these the last type is that of an operand.
MIXED = {"set": set_, "slct": slct}
