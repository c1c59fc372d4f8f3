"""Warp collectives on scalars."""

from __future__ import annotations

from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Immediate, Instruction, Pair


def _mask(w: BlockWriter, i: Instruction, at: int) -> str:
    """The member mask; forms without .sync have none."""
    return w.read(i.operands[at], "b32") if "sync" in i.modifiers else w.read(Immediate(-1), "b32")


def shfl(w: BlockWriter, i: Instruction) -> None:
    w.collective()
    mode = next(m for m in i.modifiers if m in ("up", "down", "bfly", "idx"))
    target = i.operands[0]
    with w.guarded(i.guard):
        value, b, c = (w.read(o, "b32") for o in i.operands[1:4])
        result = w.let(f"M.warps.shuffle({w.threads}, {mode!r}, {value}, {b}, {c}, {_mask(w, i, 4)}, {w.site})")
        if isinstance(target, Pair):
            w.write(target.first, "b32", f"{result}[0]")
            w.write(target.second, "pred", f"{result}[1]")
        else:
            w.write(target, "b32", f"{result}[0]")


def vote(w: BlockWriter, i: Instruction) -> None:
    w.collective()
    mode = next(m for m in i.modifiers if m in ("all", "any", "uni", "ballot"))
    with w.guarded(i.guard):
        call = f"M.warps.vote({w.threads}, {mode!r}, {w.read(i.operands[1], 'pred')}, {_mask(w, i, 2)}, {w.site})"
        w.write(i.operands[0], "b32" if mode == "ballot" else "pred", call)


def activemask(w: BlockWriter, i: Instruction) -> None:
    with w.guarded(i.guard):
        w.write(i.operands[0], "b32", f"M.warps.active_mask({w.threads})")


def redux(w: BlockWriter, i: Instruction) -> None:
    w.collective()
    operation, type_ = next(m for m in i.modifiers if m != "sync"), i.modifiers[-1]
    if type_ == "f32" or "abs" in i.modifiers:
        raise w.not_modelled(i.full_name)
    with w.guarded(i.guard):
        call = f"M.warps.reduce({w.threads}, {operation!r}, {w.read(i.operands[1], type_)}, {_mask(w, i, 2)}, {w.site})"
        w.write(i.operands[0], type_, call)


def match(w: BlockWriter, i: Instruction) -> None:
    w.collective()
    mode, type_ = ("all" if "all" in i.modifiers else "any"), i.modifiers[-1]
    target = i.operands[0]
    with w.guarded(i.guard):
        value = w.read(i.operands[1], type_)
        result = w.let(f"M.warps.match({w.threads}, {mode!r}, {value}, {_mask(w, i, 2)}, {w.site})")
        if isinstance(target, Pair):
            w.write(target.first, "b32", f"{result}[0]")
            w.write(target.second, "pred", f"{result}[1]")
        else:
            w.write(target, "b32", f"{result}[0]")


def elect(w: BlockWriter, i: Instruction) -> None:
    w.collective()
    target = i.operands[0]
    with w.guarded(i.guard):
        result = w.let(f"M.warps.elect({w.threads}, {w.read(i.operands[1], 'b32')}, {w.site})")
        if isinstance(target, Pair):
            w.write(target.first, "b32", f"{result}[0]")
            w.write(target.second, "pred", f"{result}[1]")


LOWERINGS = {
    "shfl": shfl,
    "vote": vote,
    "activemask": activemask,
    "redux": redux,
    "match": match,
    "elect": elect,
}
