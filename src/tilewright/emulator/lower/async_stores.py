"""``st.async``: stores into the shared memory of a block of the cluster, whose bytes an mbarrier there counts.

PTX ISA, "st.async". The form with ``.release`` into global memory has no mbarrier and is not modelled.
"""

from __future__ import annotations

from tilewright.emulator.lower.memory import vector_length
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.types import NATURAL
from tilewright.ptx.module import TYPE_BYTES, Instruction, Operand, Vector

MOST_BYTES = 16  # of one store: v4 of 4-byte elements, v2 of 8-byte ones
_TYPES = frozenset({"b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"})
_COMPLETION = "mbarrier::complete_tx::bytes"
_FLAGS = frozenset({"async", "weak", "cluster", "shared::cluster", "v2", "v4", _COMPLETION})


def is_async_store(i: Instruction) -> bool:
    return i.opcode == "st" and i.modifiers[:1] == ("async",)


def st_async(w: BlockWriter, i: Instruction) -> None:
    types = [m for m in i.modifiers if m not in _FLAGS]
    if _COMPLETION not in i.modifiers or len(types) != 1 or types[0] not in _TYPES or len(i.operands) != 3:
        raise w.not_modelled(i.full_name)
    target, source, barrier = i.operands
    items = source.items if isinstance(source, Vector) else (source,)
    size = TYPE_BYTES[types[0]] * len(items)
    if len(items) != vector_length(i) or size > MOST_BYTES:
        raise w.not_modelled(f"{i.full_name} of {source}")
    w.note_shared(size)
    w.note_shared(8)
    with w.guarded(i.guard):
        where, signal = (_address(w, i, operand) for operand in (target, barrier))
        values = ", ".join(w.read(item, types[0]) for item in items)
        last = f"({values},), {NATURAL[types[0]]!r}, {signal}, {w.site}"
        w.line(f"M.async_stores.store({w.threads}, {where}, {last})")


def _address(w: BlockWriter, i: Instruction, operand: Operand) -> str:
    if "shared::cluster" in i.modifiers:
        return w.address(operand, "shared")
    return f"M.async_stores.shared_address({w.threads}, {w.address(operand, 'generic')}, {w.site})"
