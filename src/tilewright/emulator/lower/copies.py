"""cp.async without bulk: copies in groups."""

from __future__ import annotations

from tilewright.emulator.lower.barriers import shared_address
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Immediate, Instruction, Register


def cp_async(w: BlockWriter, i: Instruction) -> None:
    """``cp.async.{ca,cg}``, commit_group, wait_group, wait_all."""
    what = i.modifiers[1]
    if what == "commit_group":
        with w.guarded(i.guard):
            w.line(f"M.copies.commit({w.threads})")
    elif what == "wait_group":
        newest = i.operands[0]
        if not isinstance(newest, Immediate):
            raise w.not_modelled("cp.async.wait_group with a register")
        with w.guarded(i.guard):
            w.line(f"M.copies.wait({w.threads}, {newest.value})")
    elif what == "wait_all":
        with w.guarded(i.guard):
            w.line(f"M.copies.drain({w.threads})")
    elif what in ("ca", "cg"):
        _issue(w, i)
    elif what == "mbarrier":
        w.note_shared(8)
        with w.guarded(i.guard):
            increments = "noinc" not in i.modifiers
            w.line(f"M.copies.pledge({w.threads}, {shared_address(w, i.operands[0], i)}, {increments}, {w.site})")
    else:
        raise w.not_modelled(i.full_name)


def _issue(w: BlockWriter, i: Instruction) -> None:
    operands = list(i.operands)
    if "L2::cache_hint" in i.modifiers:
        operands.pop()
    target, source, size = operands[:3]
    if not isinstance(size, Immediate):
        raise w.not_modelled("cp.async with a size in a register")
    w.note_shared(size.value)
    with w.guarded(i.guard):
        count = skip = "None"
        if len(operands) > 3:
            last = operands[3]
            is_predicate = isinstance(last, Register) and w.type_of(last.name) == "pred"
            if is_predicate:
                skip = w.read(last, "pred")
            else:
                count = w.read(last, "b32")
        where, whence = w.address(target, "shared"), w.address(source, "global")
        w.line(f"M.copies.issue({w.threads}, {where}, {whence}, {size.value}, {count}, {skip}, {w.site})")
