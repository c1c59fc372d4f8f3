"""Which lowering takes which instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.emulator.lower import (
    async_stores,
    barriers,
    bulk,
    clusters,
    control,
    conversions,
    copies,
    fences,
    floats,
    integers,
    matrix,
    memory,
    moves,
    warp,
    wgmma,
)
from tilewright.emulator.lower.modifiers import is_known
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Instruction

Lowering = Callable[[BlockWriter, Instruction], None]

BY_OPCODE: Mapping[str, Lowering] = {
    **integers.LOWERINGS,  # type: ignore[dict-item]
    **moves.LOWERINGS,
    **memory.LOWERINGS,
    **control.LOWERINGS,
    **warp.LOWERINGS,
    **matrix.LOWERINGS,
    **wgmma.LOWERINGS,
    **barriers.LOWERINGS,
    **fences.LOWERINGS,
    **clusters.LOWERINGS,
    **floats.MIXED,
    "cvt": conversions.cvt,
}
# Modules that generated code calls into.
MODULES: Mapping[str, Any] = {**integers.MODULES, **floats.MODULES, **conversions.MODULES}


def lowering_of(instruction: Instruction) -> Lowering | None:
    """What writes an instruction; None where nothing does, or where a modifier is new."""
    if async_stores.is_async_store(instruction):
        return async_stores.st_async
    if not is_known(instruction):
        return None
    if instruction.opcode == "cp" and "bulk" in instruction.modifiers:
        return bulk.cp_bulk
    if instruction.opcode == "cp":
        return copies.cp_async
    if floats.is_float(instruction) and instruction.opcode in floats.LOWERINGS:
        return floats.LOWERINGS[instruction.opcode]
    return BY_OPCODE.get(instruction.opcode)
