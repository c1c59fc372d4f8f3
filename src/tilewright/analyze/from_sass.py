"""A K-loop read off the machine code alone, for `plan.decide`: what a cubin without its source still shows."""

from __future__ import annotations

from tilewright.analyze.hot_loop import HotLoop
from tilewright.arch.arch import Arch
from tilewright.plan.budget import Budget, budget
from tilewright.plan.facts import CopyFacts, MathKind, PlanFacts
from tilewright.sass.operands import is_matrix
from tilewright.sass.proof import OverlapProof

VECTOR_BYTES = 16
NARROW_BYTES = 4


def tiled_from_sass(
    loop: HotLoop,
    proof: OverlapProof,
    arch: Arch,
    threads: int,
    registers: int,
    smem_bytes: int,
    blocks: int | None,
    sms: int | None,
) -> tuple[PlanFacts, Budget] | None:
    """(facts, budget); None where the proof did not follow the copies.

    Copies narrower than 4 bytes are taken as widenable, since nothing but the source can tell.
    """
    if loop.kind != "k_loop" or proof.verdict == "unknown" or not proof.copies or not proof.tiles_per_trip:
        return None
    is_mma = any(map(is_matrix, loop.trip))
    kind: MathKind = "mma" if is_mma else "fma"
    element_bytes = 1 if proof.math_kind[:1] in ("I", "Q") else 2 if proof.math_kind.startswith("H") else 4
    copies = tuple(
        CopyFacts(
            tile_bytes=max(1, row.count * row.width_bytes * threads // proof.tiles_per_trip),
            load_bytes=row.width_bytes,
            widened_bytes=VECTOR_BYTES if row.width_bytes < NARROW_BYTES else None,
            async_bytes=row.width_bytes if row.width_bytes in (4, 8, 16) else VECTOR_BYTES,
            guarded=False,
        )
        for row in proof.copies
        if row.opcode in ("LDG", "LD", "LDGSTS")
    )
    if not copies:
        return None
    staged = sum(copy.tile_bytes for copy in copies)
    facts = PlanFacts(
        copies=copies,
        element_bytes=element_bytes,
        math_kind=kind,
        ops_per_load=proof.ops_per_load,
        math_per_tile=proof.mma_per_tile,
        stall_cycles=sum(s.mean * s.count for s in proof.stalls) or None,
        blocks=blocks,
        sms=sms,
    )
    plan = budget(
        arch, threads=threads, registers=registers, smem_single_bytes=max(smem_bytes, staged), staged_bytes=staged
    )
    return facts, plan
