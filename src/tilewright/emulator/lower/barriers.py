"""mbarrier. PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"."""

from __future__ import annotations

from tilewright.emulator.compiled import Poll, Retry
from tilewright.emulator.lower.memory import space_of
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Address, Instruction, Operand, Sink


def shared_address(w: BlockWriter, operand: Operand, i: Instruction) -> str:
    """Address in shared memory; without a state space it is a generic one."""
    return shared_or_generic(w, operand, space_of(i) == "shared")


def shared_or_generic(w: BlockWriter, operand: Operand, is_shared: bool) -> str:
    if is_shared:
        return w.address(operand, "shared")
    # Shared memory's window lies above the bits of its addresses.
    return f"({w.address(operand, 'generic')} & 0xFFFFFFFF)"


def mbarrier(w: BlockWriter, i: Instruction) -> None:
    what = i.modifiers[0]
    if what in ("try_wait", "test_wait"):
        _wait(w, i, blocks=what == "try_wait")
        return
    with w.guarded(i.guard):
        if what == "pending_count":
            w.write(i.operands[0], "b32", f"({w.read(i.operands[1], 'b64')} & 0xFFFFFFFF).astype('i4')")
            return
        w.note_shared(8)
        if what in ("arrive", "arrive_drop"):
            _arrive(w, i, what == "arrive_drop")
            return
        address = shared_address(w, i.operands[0], i)
        if what == "inval":
            w.line(f"M.mbarriers.inval({w.threads}, {address}, {w.site})")
        elif what in ("init", "expect_tx", "complete_tx"):
            name = {"init": "init", "expect_tx": "expect", "complete_tx": "complete"}[what]
            w.line(f"M.mbarriers.{name}({w.threads}, {address}, {w.read(i.operands[1], 'u32')}, {w.site})")
        else:
            raise w.not_modelled(i.full_name)


def _arrive(w: BlockWriter, i: Instruction, drops: bool) -> None:
    """``[state,] [address] [, count]``; with .expect_tx the number is of bytes, and the count 1."""
    has_state = not isinstance(i.operands[0], Address)
    operands = i.operands[1:] if has_state else i.operands
    count, tx = "1", "None"
    if len(operands) > 1:
        count = w.read(operands[1], "u32")
    if "expect_tx" in i.modifiers:
        count, tx = "1", count
    address = shared_address(w, operands[0], i)
    completes = "noComplete" not in i.modifiers
    call = f"M.mbarriers.arrive({w.threads}, {address}, {count}, {tx}, {w.site}, {drops}, {completes})"
    if has_state and not isinstance(i.operands[0], Sink):
        w.write(i.operands[0], "b64", call)
    else:
        w.line(call)


def _wait(w: BlockWriter, i: Instruction, blocks: bool) -> None:
    """A guard lets the other threads pass. The hint of how long to suspend changes nothing."""
    w.note_shared(8)
    is_parity, acquires = "parity" in i.modifiers, "relaxed" not in i.modifiers
    goes = w.let("np.True_")
    with w.guarded(i.guard):
        address = shared_address(w, i.operands[1], i)
        value = w.read(i.operands[2], "u32" if is_parity else "b64")
        arguments = f"{w.threads}, {address}, {value}, {is_parity}, {acquires}, {w.site}"
        if blocks:
            found = w.let(f"M.mbarriers.wait({arguments})")
            w.write(i.operands[0], "pred", f"{found}[0]")
            w.assign(goes, f"{found}[1]")
        else:
            ready = w.let(f"M.mbarriers.test({arguments})")
            w.write(i.operands[0], "pred", ready)
            w.assign(goes, ready)
    w.extra = goes
    end = Retry if blocks else Poll
    w.end = end(w.block.successors[0], w.site)


LOWERINGS = {"mbarrier": mbarrier}
