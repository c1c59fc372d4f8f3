"""Loads, stores and atomics on every state space."""

from __future__ import annotations

from tilewright.emulator.arithmetic import halves
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.types import NATURAL
from tilewright.ptx.module import TYPE_BYTES, Address, Instruction, Symbol, Vector

MEMORIES = {"global": "globe", "const": "globe", "shared": "shared", "local": "local", "generic": "generic"}
ATOMIC_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def space_of(i: Instruction) -> str:
    for modifier in i.modifiers:
        space = modifier.split("::")[0]
        if space in ("global", "shared", "local", "const", "param"):
            return space
    return "generic"


def vector_length(i: Instruction) -> int:
    return next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)


def ld(w: BlockWriter, i: Instruction) -> None:
    type_, space, count = i.modifiers[-1], space_of(i), vector_length(i)
    target, source = i.operands[0], i.operands[1]
    assert isinstance(source, Address)
    if space == "param" and isinstance(source.base, Symbol):
        if source.base.name in w.scope.param_offsets:
            _load_param(w, i, source, source.base)
            return
        space = "local"  # of a call that was inlined
    space = "global" if space == "param" else space
    dtype, size = NATURAL[type_], TYPE_BYTES[type_]
    if space in ("shared", "generic"):
        w.note_shared(size * count)
    with w.guarded(i.guard):
        address = w.address(source, space)
        memory = f"M.{MEMORIES[space]}"
        if count == 1:
            w.write(target, type_, f"{memory}.load({w.threads}, {address}, {size}, {dtype!r}, {w.site})")
        else:
            values = f"{memory}.load_vector({w.threads}, {address}, {count}, {dtype!r}, {w.site})"
            w.write_all(target, type_, values)


def _load_param(w: BlockWriter, i: Instruction, source: Address, base: Symbol) -> None:
    """Kernel parameters are the same for all threads."""
    type_ = i.modifiers[-1]
    at = w.scope.param_offsets[base.name] + base.offset + source.offset
    target = i.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    with w.selecting(i.guard):
        for k, item in enumerate(items):
            w.write(item, type_, f"M.param({at + k * TYPE_BYTES[type_]}, {NATURAL[type_]!r})")


def st(w: BlockWriter, i: Instruction) -> None:
    type_, space, count = i.modifiers[-1], space_of(i), vector_length(i)
    target, source = i.operands[0], i.operands[1]
    space = "local" if space == "param" else space
    dtype, size = NATURAL[type_], TYPE_BYTES[type_]
    if space in ("shared", "generic"):
        w.note_shared(size * count)
    with w.guarded(i.guard):
        address = w.address(target, space)
        memory = f"M.{MEMORIES[space]}"
        if count == 1:
            value = w.read(source, type_)
            w.line(f"{memory}.store({w.threads}, {address}, {size}, {value}, {dtype!r}, {w.site})")
        else:
            assert isinstance(source, Vector)
            values = ", ".join(w.read(item, type_) for item in source.items)
            w.line(f"{memory}.store_vector({w.threads}, {address}, ({values},), {dtype!r}, {w.site})")


def atom(w: BlockWriter, i: Instruction) -> None:
    """atom and red: the operation is done thread by thread where addresses collide."""
    type_, space = i.modifiers[-1], space_of(i)
    has_result = i.opcode == "atom"
    operands = i.operands[1:] if has_result else i.operands
    operation = next((m for m in i.modifiers if m in ATOMIC_OPERATIONS), None)
    if operation is None or vector_length(i) > 1 or type_ not in NATURAL:
        raise w.not_modelled(i.full_name)
    if space in ("shared", "generic"):
        w.note_shared(TYPE_BYTES[type_])
    combine = ""
    if type_ in ("f16x2", "bf16x2", "bf16", "f16") and operation not in ("exch", "cas"):
        w.use(halves, "halves")
        combine = f", combine=lambda a, b: {_half_call(operation, type_)}"
    with w.guarded(i.guard):
        address = w.address(operands[0], space)
        values = [w.read(operand, type_) for operand in operands[1:]]
        value = values[-1] if operation == "cas" else values[0]
        compare = f", {values[0]}" if operation == "cas" else ", None"
        call = (
            f"M.atomics.update({w.threads}, {space!r}, {operation!r}, {address}, {value},"
            f" {NATURAL[type_]!r}, {w.site}{compare}{combine})"
        )
        if has_result:
            w.write(i.operands[0], type_, call)
        else:
            w.line(call)


def _half_call(operation: str, type_: str) -> str:
    name = {"min": "minimum", "max": "maximum"}.get(operation, operation)
    return f"halves.{name}(a, b, {type_!r})"


def nothing(w: BlockWriter, i: Instruction) -> None:
    """Hints, and fences that order nothing here: the emulator runs memory operations in order."""


LOWERINGS = {
    "ld": ld,
    "ldu": ld,
    "st": st,
    "atom": atom,
    "red": atom,
    **dict.fromkeys(("prefetch", "prefetchu", "discard", "applypriority", "membar", "pmevent"), nothing),
}
