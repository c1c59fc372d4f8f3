"""Addresses in the shared memory of other blocks of the cluster. PTX ISA, "mapa" and "getctarank"."""

from __future__ import annotations

from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Instruction


def mapa(w: BlockWriter, i: Instruction) -> None:
    """Generic addresses and shared ones carry the block in the same bits."""
    type_ = _seen(i)
    _, source, rank = i.operands
    with w.guarded(i.guard):
        call = f"M.clusters.map_address({w.threads}, {w.read(source, type_)}, {w.read(rank, 's32')}, {w.site})"
        w.write(i.operands[0], type_, call)


def getctarank(w: BlockWriter, i: Instruction) -> None:
    with w.guarded(i.guard):
        w.write(i.operands[0], "s32", f"M.clusters.rank_of({w.threads}, {w.read(i.operands[1], _seen(i))})")


def _seen(i: Instruction) -> str:
    return "s64" if i.modifiers[-1] == "u64" else "s32"


LOWERINGS = {"mapa": mapa, "getctarank": getctarank}
