"""Integer and bit arithmetic."""

from __future__ import annotations

from tilewright.emulator.arithmetic import bits, integers
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.types import NATURAL, scalar
from tilewright.ptx.module import TYPE_BYTES, Immediate, Instruction, Pair

# Wrapping arithmetic is the same for both signs, and registers are kept signed.
SIGNED = {"u16": "u16", "u32": "s32", "u64": "s64"}
WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
COMPARISONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
BOOLEAN = {"and": "&", "or": "|", "xor": "^"}


def reads(w: BlockWriter, i: Instruction, type_: str, start: int = 1) -> list[str]:
    return [w.read(operand, type_) for operand in i.operands[start:]]


def simple(w: BlockWriter, i: Instruction) -> None:
    """add, sub, and, or, xor, not, neg on integers."""
    if "cc" in i.modifiers:
        carrying(w, i)
        return
    type_ = i.modifiers[-1]
    type_ = SIGNED.get(type_, type_)
    values = reads(w, i, type_)
    operator = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}.get(i.opcode)
    if "sat" in i.modifiers:
        expression = f"integers.{i.opcode}_sat({values[0]}, {values[1]})"
    elif type_ in ("s16x2", "u16x2"):
        expression = f"integers.{i.opcode}_x2({values[0]}, {values[1]})"
    elif operator is not None:
        expression = f"{values[0]} {operator} {values[1]}"
    else:
        expression = f"~{values[0]}" if i.opcode == "not" else f"-{values[0]}"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def carrying(w: BlockWriter, i: Instruction) -> None:
    """add.cc, addc, sub.cc, subc, mad.cc, madc: the carry lives in a variable of the block."""
    name = i.opcode.rstrip("c")
    uses_carry = name != i.opcode
    if uses_carry and not w.has_carry:
        raise w.not_modelled(f"{i.full_name} with a carry of another basic block")
    type_ = i.modifiers[-1]
    if name == "mad":
        name = f"mad_{'hi' if 'hi' in i.modifiers else 'lo'}"
    if name != "mad_hi":
        type_ = type_.replace("s", "u").replace("b", "u")
    values = ", ".join(reads(w, i, type_))
    with w.selecting(i.guard):
        result = w.let(f"integers.{name}_cc({values}{', cc' if uses_carry else ''})")
        if "cc" in i.modifiers:
            w.carry(f"{result}[1]")
        w.write(i.operands[0], type_, f"{result}[0]")


def multiply(w: BlockWriter, i: Instruction) -> None:
    """mul and mad: lo, hi, wide."""
    if "cc" in i.modifiers:
        carrying(w, i)
        return
    type_ = i.modifiers[-1]
    how = i.modifiers[0]
    if how == "wide":
        wide = WIDER[type_]
        dtype = NATURAL[wide].replace("u", "i")
        a, b = (f"{w.read(operand, type_)}.astype({dtype!r})" for operand in i.operands[1:3])
        result_type = {"u32": "s32", "u64": "s64"}.get(wide, wide)
        expression = f"{a} * {b}"
        type_ = result_type
    elif how == "hi":
        a, b = (w.read(operand, type_) for operand in i.operands[1:3])
        expression = f"integers.mul_hi({a}, {b})"
    else:
        type_ = SIGNED.get(type_, type_)
        a, b = (w.read(operand, type_) for operand in i.operands[1:3])
        expression = f"{a} * {b}"
    if i.opcode == "mad":
        if "sat" in i.modifiers:
            expression = f"integers.add_sat({expression}, {w.read(i.operands[3], type_)})"
        else:
            expression = f"{expression} + {w.read(i.operands[3], type_)}"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def shift(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    if i.opcode == "shr" and type_.startswith("b"):
        type_ = f"u{type_[1:]}"
    value, count = w.read(i.operands[1], type_), i.operands[2]
    if isinstance(count, Immediate) and 0 <= count.value < 8 * TYPE_BYTES[type_]:
        operator = "<<" if i.opcode == "shl" else ">>"
        expression = f"{value} {operator} {w.constant(scalar(count.value, NATURAL[type_]))}"
    else:
        expression = f"integers.{i.opcode}({value}, {w.read(count, 'u32')})"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def setp(w: BlockWriter, i: Instruction) -> None:
    """Integer comparisons; ``p|q`` gets the opposite as well."""
    comparison, type_ = i.modifiers[0], i.modifiers[-1]
    a, b = w.read(i.operands[1], type_), w.read(i.operands[2], type_)
    put_predicate(w, i, f"({a} {COMPARISONS[comparison]} {b})")


def put_predicate(w: BlockWriter, i: Instruction, test: str) -> None:
    """The result of a comparison, joined with a predicate where the instruction says so. PTX ISA, "setp"."""
    join = next((BOOLEAN[m] for m in i.modifiers[1:-1] if m in BOOLEAN), None)
    target = i.operands[0]
    with w.selecting(i.guard):
        test = w.let(test)
        other = w.read(i.operands[3], "pred") if join else ""
        yes = f"{test} {join} {other}" if join else test
        if isinstance(target, Pair):
            no = f"(~{test}) {join} {other}" if join else f"~{test}"
            both = w.let(f"({yes}, {no})")
            w.write(target.first, "pred", f"{both}[0]")
            w.write(target.second, "pred", f"{both}[1]")
        else:
            w.write(target, "pred", yes)


def called(function: str, signature: tuple[str, ...] = (), result: str = "", module: str = "integers") -> object:
    """A lowering that is one call. ``signature``: PTX types of the operands, "" for the instruction's own."""

    def lower(w: BlockWriter, i: Instruction) -> None:
        type_ = i.modifiers[-1]
        operands = i.operands[1:]
        types = signature or ("",) * len(operands)
        values = ", ".join(w.read(o, t or type_) for o, t in zip(operands, types, strict=True))
        with w.selecting(i.guard):
            w.write(i.operands[0], result or type_, f"{module}.{function}({values})")

    return lower


def extremum(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    values = ", ".join(reads(w, i, type_))
    if type_ in ("s16x2", "u16x2"):
        expression = f"integers.{i.opcode}_x2({values}, {type_ == 's16x2'}, {'relu' in i.modifiers})"
    elif "relu" in i.modifiers:
        expression = f"integers.{'minimum' if i.opcode == 'min' else 'maximum'}({values}, True)"
    else:
        expression = f"np.{'minimum' if i.opcode == 'min' else 'maximum'}({values})"
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, expression)


def mul24(w: BlockWriter, i: Instruction) -> None:
    type_, how = i.modifiers[-1], i.modifiers[0]
    values = ", ".join(reads(w, i, type_))
    with w.selecting(i.guard):
        w.write(i.operands[0], type_, f"integers.{i.opcode}_{how}({values}{', True' if 'sat' in i.modifiers else ''})")


def funnel(w: BlockWriter, i: Instruction) -> None:
    a, b, c = (w.read(o, "u32") for o in i.operands[1:])
    with w.selecting(i.guard):
        w.write(i.operands[0], "u32", f"integers.shf_{i.modifiers[0]}({a}, {b}, {c}, {i.modifiers[1] == 'wrap'})")


def dot(w: BlockWriter, i: Instruction) -> None:
    """dp4a and dp2a."""
    a_type, b_type = i.modifiers[-2], i.modifiers[-1]
    result = "s32" if "s32" in (a_type, b_type) else "u32"
    a, b, c = w.read(i.operands[1], a_type), w.read(i.operands[2], b_type), w.read(i.operands[3], result)
    signs = f"{a_type == 's32'}, {b_type == 's32'}"
    high = f", {'hi' in i.modifiers}" if i.opcode == "dp2a" else ""
    with w.selecting(i.guard):
        w.write(i.operands[0], result, f"integers.{i.opcode}({a}, {b}, {c}, {signs}{high})")


def bfind(w: BlockWriter, i: Instruction) -> None:
    with w.selecting(i.guard):
        value = w.read(i.operands[1], i.modifiers[-1])
        w.write(i.operands[0], "u32", f"bits.bfind({value}, {'shiftamt' in i.modifiers})")


def prmt(w: BlockWriter, i: Instruction) -> None:
    mode = i.modifiers[-1] if i.modifiers[-1] != "b32" else ""
    a, b, c = (w.read(o, "u32") for o in i.operands[1:])
    with w.selecting(i.guard):
        w.write(i.operands[0], "u32", f"bits.prmt({a}, {b}, {c}, {mode!r})")


def lop3(w: BlockWriter, i: Instruction) -> None:
    """With a second result ``p``: whether the first is not 0, joined with a predicate."""
    operands, target = i.operands, i.operands[0]
    if not isinstance(operands[4], Immediate):
        raise w.not_modelled(f"{i.full_name} with a table that is no constant")
    a, b, c = (w.read(o, "b32") for o in operands[1:4])
    call = f"bits.lop3({a}, {b}, {c}, {operands[4].value})"
    with w.selecting(i.guard):
        if not isinstance(target, Pair):
            w.write(target, "b32", call)
            return
        result = w.let(call)
        joined = w.let(f"({result} != 0) {BOOLEAN[i.modifiers[0]]} {w.read(operands[5], 'pred')}")
        w.write(target.first, "b32", result)
        w.write(target.second, "pred", joined)


def masks(w: BlockWriter, i: Instruction) -> None:
    """bmsk and szext: clamp or wrap."""
    wrap = "wrap" in i.modifiers
    type_ = i.modifiers[-1]
    a, b = w.read(i.operands[1], type_), w.read(i.operands[2], "u32")
    with w.selecting(i.guard):
        w.write(i.operands[0], "u32" if i.opcode == "bmsk" else type_, f"bits.{i.opcode}({a}, {b}, {wrap})")


MODULES = {"integers": integers, "bits": bits}
LOWERINGS = {
    **dict.fromkeys(("add", "sub", "and", "or", "xor", "not", "neg"), simple),
    **dict.fromkeys(("addc", "subc", "madc"), carrying),
    **dict.fromkeys(("mul", "mad"), multiply),
    **dict.fromkeys(("shl", "shr"), shift),
    **dict.fromkeys(("min", "max"), extremum),
    **dict.fromkeys(("mul24", "mad24"), mul24),
    **dict.fromkeys(("dp4a", "dp2a"), dot),
    **dict.fromkeys(("bmsk", "szext"), masks),
    "setp": setp,
    "shf": funnel,
    "div": called("div"),
    "rem": called("rem"),
    "abs": called("absolute"),
    "sad": called("sad"),
    "popc": called("popc", result="u32", module="bits"),
    "clz": called("clz", result="u32", module="bits"),
    "brev": called("brev", module="bits"),
    "cnot": called("cnot", module="bits"),
    "bfind": bfind,
    "bfe": called("bfe", ("", "u32", "u32"), module="bits"),
    "bfi": called("bfi", ("", "", "u32", "u32"), module="bits"),
    "fns": called("fns", ("b32", "b32", "s32"), result="u32", module="bits"),
    "prmt": prmt,
    "lop3": lop3,
}
