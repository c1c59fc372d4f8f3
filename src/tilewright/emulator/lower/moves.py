"""Moves, selections and conversions of addresses."""

from __future__ import annotations

from tilewright.emulator.arithmetic import bits
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.machine.addresses import (
    LOCAL_ID,
    LOCAL_WINDOW,
    OFFSET_BITS,
    PARAM_ID,
    SHARED_ID,
    SHARED_WINDOW,
)
from tilewright.emulator.types import NATURAL, scalar
from tilewright.ptx.module import TYPE_BYTES, Instruction, Vector

_BY_BYTES = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def mov(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    if type_ not in NATURAL:
        raise w.not_modelled(i.full_name)
    target, source = i.operands
    with w.selecting(i.guard):
        if isinstance(source, Vector) and len(source.items) > 1:
            part = _BY_BYTES[TYPE_BYTES[type_] // len(source.items)]
            parts = ", ".join(w.read(item, part) for item in source.items)
            w.use(bits, "bits")
            w.write(target, type_, f"bits.pack(({parts},)).view({NATURAL[type_]!r})")
        elif isinstance(target, Vector) and len(target.items) > 1:
            part = _BY_BYTES[TYPE_BYTES[type_] // len(target.items)]
            w.use(bits, "bits")
            w.write_all(target, part, f"bits.unpack({w.read(source, type_)}, {len(target.items)})")
        else:
            w.write(target, type_, w.read(source, type_))


def selp(w: BlockWriter, i: Instruction) -> None:
    type_ = i.modifiers[-1]
    target, yes, no, predicate = i.operands
    with w.selecting(i.guard):
        w.write(target, type_, f"sel({w.read(predicate, 'pred')}, {w.read(yes, type_)}, {w.read(no, type_)})")


def cvta(w: BlockWriter, i: Instruction) -> None:
    """Generic ↔ shared and local; global, const and param addresses are generic ones already."""
    spaces = {m.split("::")[0] for m in i.modifiers}
    window = SHARED_WINDOW if "shared" in spaces else LOCAL_WINDOW if "local" in spaces else 0
    if i.modifiers[-1] == "u32":
        raise w.not_modelled("a 32-bit generic address")
    source = w.read(i.operands[1], "s64")
    if window:
        sign = "-" if "to" in spaces else "+"
        source = f"{source} {sign} {w.constant(scalar(window, 'i8'))}"
    with w.selecting(i.guard):
        w.write(i.operands[0], "s64", source)


def isspacep(w: BlockWriter, i: Instruction) -> None:
    space = i.modifiers[0].split("::")[0]
    number = f"({w.read(i.operands[1], 's64')} >> {w.constant(scalar(OFFSET_BITS, 'i8'))})"
    ids = {"shared": SHARED_ID, "local": LOCAL_ID, "param": PARAM_ID}
    if space in ids:
        test = f"{number} == {w.constant(scalar(ids[space], 'i8'))}"
    elif space == "global":
        test = f"{number} < {w.constant(scalar(PARAM_ID, 'i8'))}"
    else:
        raise w.not_modelled(f"isspacep.{space}")
    with w.selecting(i.guard):
        w.write(i.operands[0], "pred", test)


LOWERINGS = {"mov": mov, "selp": selp, "cvta": cvta, "isspacep": isspacep}
