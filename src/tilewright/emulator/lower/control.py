"""Branches, barriers, the end of a thread, calls of what has no body."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.emulator.compiled import Barrier, BarrierCall, Branch, Fall, Leave, Switch
from tilewright.emulator.faults import Fault
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.types import scalar, storage
from tilewright.ptx.module import Immediate, Instruction, Operand, Register, Symbol

# Functions without a body that a kernel may call: what becomes of them.
_IGNORED_CALLS = ("vprintf",)


def bra(w: BlockWriter, i: Instruction) -> None:
    successors = w.block.successors
    if i.guard is None:
        w.end = Fall(successors[0])
        return
    w.extra = w.read(i.guard, "pred")
    w.end = Branch(successors[0], successors[1])


def brx(w: BlockWriter, i: Instruction) -> None:
    """The last target of a guarded switch is the next block."""
    index = w.read(i.operands[0], "u32")
    if i.guard is not None:
        beyond = w.read(Immediate(len(w.block.successors) - 1), "u32")
        index = f"sel({w.read(i.guard, 'pred')}, {index}, {beyond})"
    w.extra = index
    w.end = Switch(w.block.successors, w.site)


def leave(w: BlockWriter, i: Instruction) -> None:
    if i.guard is None:
        w.end = Leave()
        return
    w.extra = w.read(i.guard, "pred")
    w.end = Leave(w.block.successors[0])


def trap(w: BlockWriter, i: Instruction) -> None:
    with w.guarded(i.guard):
        w.line(f"M.trap({w.threads}, {i.opcode!r}, {w.site})")
    w.end = Leave() if i.guard is None else Fall(w.block.successors[0])


def brkpt(w: BlockWriter, i: Instruction) -> None:
    """A breakpoint: nothing without a debugger."""


def bar(w: BlockWriter, i: Instruction) -> None:
    """bar.sync, bar.arrive, bar.red, barrier.*; bar.warp.sync; barrier.cluster.*."""
    modifiers = [m for m in i.modifiers if m != "cta"]
    if modifiers[0] == "warp":
        w.collective()
        w.line(f"M.warps.check_mask(A, {w.read(i.operands[0], 'b32')}, {w.site})")
        return
    call = w.use(BarrierCall, "BarrierCall")
    guard = w.read(i.guard, "pred") if i.guard is not None else "None"
    is_aligned = i.opcode == "bar" or "aligned" in modifiers
    if modifiers[0] == "cluster":
        waits = "wait" in modifiers
        w.extra = f"{call}('cluster', 0, None, {not waits}, {waits}, {is_aligned}, {guard})"
    elif modifiers[0] == "red":
        w.extra = _reducing(w, i, modifiers, guard, is_aligned)
    else:
        number = w.read(i.operands[0], "b32") if i.operands else "0"
        count = w.read(i.operands[1], "b32") if len(i.operands) > 1 else "None"
        w.extra = f"{call}('block', {number}, {count}, True, {modifiers[0] != 'arrive'}, {is_aligned}, {guard})"
    w.end = Barrier(w.block.successors[0], w.site)


def _reducing(w: BlockWriter, i: Instruction, modifiers: list[str], guard: str, is_aligned: bool) -> str:
    operation = next(m for m in modifiers if m in ("popc", "and", "or"))
    target, number = i.operands[0], w.read(i.operands[1], "b32")
    if not isinstance(target, Register):
        raise w.not_modelled(f"the result of {i.full_name}")
    count = w.read(i.operands[2], "b32") if len(i.operands) > 3 else "None"
    register = w.register(target.name)[1:]
    if i.guard is None:
        # The scheduler sets it when the barrier opens; until then it must have some value.
        w.write(target, w.type_of(target.name), w.constant(scalar(0, storage(w.type_of(target.name)))))
    vote = f"({operation!r}, {w.read(i.operands[-1], 'pred')})"
    return f"BarrierCall('block', {number}, {count}, True, True, {is_aligned}, {guard}, {vote}, {register})"


def nanosleep(w: BlockWriter, i: Instruction) -> None:
    w.end = Fall(w.block.successors[0], yields=True)


def call(w: BlockWriter, i: Instruction) -> None:
    """What is left after inlining: functions that the driver provides."""
    name = _callee(i)
    if name == "__assertfail":
        with w.guarded(i.guard):
            w.line(f"M.trap({w.threads}, 'assert', {w.site})")
        return
    if name not in _IGNORED_CALLS:
        raise Fault("not_modelled", f"a call of {name}, which has no body here,", w.site)
    # Its result, how many arguments were printed, goes unread in practice; the local cell keeps what it had.


def _callee(i: Instruction) -> str:
    names = [o.name for o in i.operands if isinstance(o, Symbol)]
    return names[0] if names else "a function"


def setmaxnreg(w: BlockWriter, i: Instruction) -> None:
    """Registers move between warpgroups: nothing to see in values; the count is checked."""
    count: Operand = i.operands[0]
    if not isinstance(count, Immediate) or count.value % 8 or not 24 <= count.value <= 256:
        raise w.not_modelled(f"{i.full_name} with a count that is no multiple of 8 from 24 to 256")
    w.collective()


def nothing(w: BlockWriter, i: Instruction) -> None:
    """griddepcontrol: no other grid is there to wait for."""


Lowering = Callable[[BlockWriter, Instruction], None]
LOWERINGS: dict[str, Lowering] = {
    "bra": bra,
    "brx": brx,
    "ret": leave,
    "exit": leave,
    "trap": trap,
    "brkpt": brkpt,
    "bar": bar,
    "barrier": bar,
    "nanosleep": nanosleep,
    "call": call,
    "setmaxnreg": setmaxnreg,
    "griddepcontrol": nothing,
}
