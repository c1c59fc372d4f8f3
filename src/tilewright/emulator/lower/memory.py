"""Loads, stores and atomics on every state space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.emulator.arithmetic import halves
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.types import NATURAL
from tilewright.ptx.module import TYPE_BYTES, Address, Immediate, Instruction, Operand, Symbol, Vector

MEMORIES = {"global": "globe", "const": "globe", "shared": "shared", "local": "local", "generic": "generic"}
STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")
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
    type_, space, count = _typed(w, i), space_of(i), vector_length(i)
    target, source = i.operands[0], i.operands[1]
    if not isinstance(source, Address):
        raise w.not_modelled(f"{i.full_name} of {source}")
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
        _hear(w, i, space)
        if space in ("shared", "generic") and _is_strong(w, i):
            values = f"{memory}.strong_load({w.threads}, {address}, {count}, {dtype!r}, {w.site})"
            w.write_all(target, type_, values)
            if "acquire" in i.modifiers:
                w.line(f"M.watch.fence({w.threads})")
        elif count == 1:
            w.write(target, type_, f"{memory}.load({w.threads}, {address}, {size}, {dtype!r}, {w.site})")
        else:
            values = f"{memory}.load_vector({w.threads}, {address}, {count}, {dtype!r}, {w.site})"
            w.write_all(target, type_, values)


def _is_strong(w: BlockWriter, i: Instruction) -> bool:
    """Accesses that threads may agree on through memory (PTX ISA, "Strong operations").

    ``volatile`` counts where the kernel has fences too: without any, it is the old way to write loops over a warp that
    miss a ``__syncwarp()``, and that is a race.
    """
    if any(m in i.modifiers for m in STRONG[1:]):
        return True
    return "volatile" in i.modifiers and w.scope.has_fences


def _hear(w: BlockWriter, i: Instruction, space: str) -> None:
    """What a block of a cluster reads so, another one may have written to say that it is there."""
    is_strong = i.opcode == "atom" or any(m in i.modifiers for m in STRONG)
    if is_strong and space in ("global", "generic") and w.scope.function.cluster is not None:
        w.line(f"M.hear({w.threads})")


def _typed(w: BlockWriter, i: Instruction) -> str:
    type_ = i.modifiers[-1] if i.modifiers else ""
    if type_ not in NATURAL:
        raise w.not_modelled(i.full_name)
    return type_


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
    type_, space, count = _typed(w, i), space_of(i), vector_length(i)
    target, source = i.operands[0], i.operands[1]
    space = "local" if space == "param" else space
    dtype, size = NATURAL[type_], TYPE_BYTES[type_]
    if space in ("shared", "generic"):
        w.note_shared(size * count)
    with w.guarded(i.guard):
        address = w.address(target, space)
        memory = f"M.{MEMORIES[space]}"
        if space in ("shared", "generic") and _is_strong(w, i):
            if "release" in i.modifiers:
                w.line(f"M.watch.fence({w.threads})")
            items = source.items if isinstance(source, Vector) else (source,)
            values = ", ".join(w.read(item, type_) for item in items)
            w.line(f"{memory}.strong_store({w.threads}, {address}, ({values},), {dtype!r}, {w.site})")
        elif count == 1:
            value = w.read(source, type_)
            w.line(f"{memory}.store({w.threads}, {address}, {size}, {value}, {dtype!r}, {w.site})")
        else:
            if not isinstance(source, Vector):
                raise w.not_modelled(f"{i.full_name} of {source}")
            values = ", ".join(w.read(item, type_) for item in source.items)
            w.line(f"{memory}.store_vector({w.threads}, {address}, ({values},), {dtype!r}, {w.site})")


def atom(w: BlockWriter, i: Instruction) -> None:
    """atom and red: the operation is done thread by thread where addresses collide.

    Vectors are one such operation per element, as the ISA has it.
    """
    type_, space = _typed(w, i), space_of(i)
    operands = i.operands[1:] if i.opcode == "atom" else i.operands
    operation = next((m for m in i.modifiers if m in ATOMIC_OPERATIONS), None)
    if operation is None or "async" in i.modifiers or not isinstance(operands[0], Address):
        raise w.not_modelled(i.full_name)
    if space in ("shared", "generic"):
        w.note_shared(TYPE_BYTES[type_])
    combine = ""
    if type_ in ("f16x2", "bf16x2", "bf16", "f16") and operation not in ("exch", "cas"):
        w.use(halves, "halves")
        combine = f", combine=lambda a, b: {_half_call(operation, type_)}"
    with w.guarded(i.guard):
        if "release" in i.modifiers or "acq_rel" in i.modifiers:
            w.line(f"M.watch.fence({w.threads})")
        for k in range(vector_length(i)):
            address = w.address(replace(operands[0], offset=operands[0].offset + k * TYPE_BYTES[type_]), space)
            values = [w.read(operand, type_) for operand in _elements(operands[1:], k)]
            value = values[-1] if operation == "cas" else values[0]
            compare = f", {values[0]}" if operation == "cas" else ", None"
            call = (
                f"M.atomics.update({w.threads}, {space!r}, {operation!r}, {address}, {value},"
                f" {NATURAL[type_]!r}, {w.site}{compare}{combine})"
            )
            if i.opcode == "atom":
                _hear(w, i, space)
                w.write(_elements(i.operands[:1], k)[0], type_, call)
            else:
                w.line(call)
        if "acquire" in i.modifiers or "acq_rel" in i.modifiers:
            w.line(f"M.watch.fence({w.threads})")


def _elements(operands: Sequence[Operand], at: int) -> list[Operand]:
    return [operand.items[at] if isinstance(operand, Vector) else operand for operand in operands]


def _half_call(operation: str, type_: str) -> str:
    name = {"min": "minimum", "max": "maximum"}.get(operation, operation)
    return f"halves.{name}({type_!r}, a, b)"


def createpolicy(w: BlockWriter, i: Instruction) -> None:
    """Cache policies change no value."""
    with w.selecting(i.guard):
        w.write(i.operands[0], "b64", w.read(Immediate(0), "b64"))


def nothing(w: BlockWriter, i: Instruction) -> None:
    """Hints, and fences that order nothing here: the emulator runs memory operations in order."""


LOWERINGS = {
    "ld": ld,
    "ldu": ld,
    "st": st,
    "atom": atom,
    "red": atom,
    "createpolicy": createpolicy,
    **dict.fromkeys(("prefetch", "prefetchu", "discard", "applypriority", "pmevent"), nothing),
}
