"""The overlap proof: do math instructions run between a copy's issue and the wait that retires it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.sass.excerpt import excerpt_of
from tilewright.sass.flow import flow_of
from tilewright.sass.inflight import Run, depbar, run_path
from tilewright.sass.listing import Function
from tilewright.sass.operands import BULK_LOADS, access_bytes, is_global_load
from tilewright.sass.kloop import Work, find_k_loops, work_of
from tilewright.sass.steady import SteadyPath, steady_path
from tilewright.sass.tiles import SHARE_OF_OVERLAP, Overlap, overlap_of

ORDER_IS_NOT_TIME = "Order proves that overlap is permitted; only timing shows that it happens."


@dataclass(frozen=True)
class StallRow:
    """Stall cycles in the control bits of one kind of instruction on the steady-state path."""

    opcode: str
    count: int
    min: int
    max: int
    mean: float


@dataclass(frozen=True)
class CopyRow:
    """Copies of one kind per trip of the steady-state path: ``("LDGSTS", 16, 2)``."""

    opcode: str
    width_bytes: int
    count: int


@dataclass(frozen=True)
class OverlapProof:
    """What the SASS of one kernel permits.

    Attributes:
        verdict: ``overlap`` when at least `SHARE_OF_OVERLAP` of a tile's math runs while another tile's copies are
            outstanding; ``no_overlap`` when less does; ``unknown`` with a reason in `notes`.
        tiles_in_flight: tiles whose copies are outstanding while most of a tile is computed.
        mma_while_in_flight: math instructions of one tile that run while copies are outstanding.
        barriers_between: block barriers between a tile's copies and the wait that retires them.
        mma_per_tile: math instructions of one tile; multiply-adds where there is no matrix instruction.
        baseline_mma_per_tile: the same of the kernel it was made from, for whoever compares.
        stalls: stall cycles by instruction.
        excerpt: the steady-state path, annotated, for people.
        math_kind: opcode of the math: ``IMMA``, ``HMMA``, ``FFMA``; empty without math.
        ops_per_load: math instructions per global load instruction on the steady-state path; None without loads.
        copies: copies to shared memory per trip, by opcode and width.
        notes: reasons and caveats.
        wait: the wait that retires the copies: ``DEPBAR.LE SB0, 0x1``.
        tiles_per_trip: tiles that one trip of the compiled K-loop handles (ptxas may unroll).
    """

    verdict: Literal["overlap", "no_overlap", "unknown"]
    tiles_in_flight: int = 0
    mma_while_in_flight: int = 0
    barriers_between: int = 0
    mma_per_tile: int = 0
    baseline_mma_per_tile: int | None = None
    stalls: tuple[StallRow, ...] = ()
    excerpt: str = ""
    math_kind: str = ""
    ops_per_load: float | None = None
    copies: tuple[CopyRow, ...] = ()
    notes: tuple[str, ...] = ()
    wait: str = ""
    tiles_per_trip: int = 0
    load_count: int = 0
    share: float = 0.0


def prove(function: Function) -> OverlapProof:
    """Prove, or disprove, that one kernel's copies overlap its math. Never raises: what is not understood is unknown."""
    work = work_of(function)
    if not work.math:
        return OverlapProof("unknown", notes=("The kernel has no math instructions that a copy could overlap.",))
    flow = flow_of(function)
    loops = find_k_loops(function, flow, work)
    if not loops:
        why = "No loop holds both math and copies to shared memory: there is no K-loop to judge."
        return OverlapProof("unknown", math_kind=work.kind, notes=(why,))
    path = steady_path(function, flow, loops[0], work)
    if path is None:
        return OverlapProof("unknown", math_kind=work.kind, notes=("No path leads round the K-loop.",))
    return _judge(function, path, work)


def _judge(function: Function, path: SteadyPath, work: Work) -> OverlapProof:
    code = function.instructions
    notes: list[str] = []
    if path.open_loops:
        notes.append("An inner loop's trip count could not be read; it is counted once.")
    facts = dict(
        stalls=_stalls(function, path, work),
        math_kind=work.kind,
        ops_per_load=_ops_per_load(function, path, work),
        load_count=sum(is_global_load(code[i]) for i, on in path.trip if on),
    )
    mbarrier = _mbarrier_copies(function, path)
    if mbarrier:
        return OverlapProof("unknown", notes=(*notes, mbarrier), **facts)
    left = max((n for i, on in path.trip if on and code[i].opcode == "DEPBAR" for _, n in depbar(code[i])), default=0)
    rounds = 2 * left + 10
    run = run_path(function, path.trip, work.math, rounds)
    found = overlap_of(run, rounds)
    if isinstance(found, str):
        return OverlapProof("unknown", notes=(*notes, found), **facts)
    per_tile = found.math_per_trip / found.tiles_per_trip
    overlaps = found.share >= SHARE_OF_OVERLAP
    return OverlapProof(
        verdict="overlap" if overlaps else "no_overlap",
        tiles_in_flight=max(1, int(found.tiles_in_flight + 0.5)) if overlaps else 0,
        mma_while_in_flight=round(found.share * per_tile),
        barriers_between=found.barriers_between,
        mma_per_tile=round(per_tile),
        excerpt=excerpt_of(function, path, work, run, found),
        copies=_copy_rows(function, path, run),
        notes=(*notes, f"mean {found.tiles_in_flight:.2f}", *found.notes),
        wait=code[found.retired_by].text if found.retired_by is not None else "",
        tiles_per_trip=found.tiles_per_trip,
        share=found.share,
        **facts,
    )


def _mbarrier_copies(function: Function, path: SteadyPath) -> str:
    found = sorted({function.instructions[i].opcode for i, on in path.trip if on} & (BULK_LOADS | {"ARRIVES"}))
    if not found:
        return ""
    return f"{', '.join(found)}: these copies are retired by waits on an mbarrier, which are not traced yet."


def _ops_per_load(function: Function, path: SteadyPath, work: Work) -> float | None:
    loads = sum(is_global_load(function.instructions[i]) for i, on in path.trip if on)
    return sum(work.math.get(i, 0) for i, on in path.trip if on) / loads if loads else None


def _copy_rows(function: Function, path: SteadyPath, run: Run) -> tuple[CopyRow, ...]:
    staged = {c.index for c in run.copies if c.is_async or c.stored_in is not None}
    rows: dict[tuple[str, int], int] = {}
    for i, on in path.trip:
        if not on:
            continue
        if i in staged:
            key = (function.instructions[i].opcode, access_bytes(function.instructions[i]))
            rows[key] = rows.get(key, 0) + 1
    return tuple(CopyRow(opcode, size, count) for (opcode, size), count in sorted(rows.items()))


def _stalls(function: Function, path: SteadyPath, work: Work) -> tuple[StallRow, ...]:
    stalls: dict[str, list[int]] = {}
    for i, on in path.trip:
        if not on:
            continue
        instruction = function.instructions[i]
        if i in work.math or instruction.opcode in ("LDGSTS", "LDG", "STS", "LDS", "LDSM", "BAR", "DEPBAR"):
            if not instruction.is_off:
                stalls.setdefault(instruction.name, []).append(instruction.stall)
    math_names = {function.instructions[i].name for i in work.math}
    rows = [StallRow(n, len(s), min(s), max(s), round(sum(s) / len(s), 2)) for n, s in stalls.items()]
    return tuple(sorted(rows, key=lambda row: (row.opcode not in math_names, -row.count, row.opcode)))


__all__ = ["ORDER_IS_NOT_TIME", "CopyRow", "Overlap", "OverlapProof", "StallRow", "prove"]
