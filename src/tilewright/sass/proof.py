"""The overlap proof: does math run between a copy's issue and the wait that retires it?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilewright.sass.excerpt import ORDER_IS_NOT_TIME, excerpt_of
from tilewright.sass.flow import Flow, flow_of
from tilewright.sass.inflight import Run, depbar, run_path
from tilewright.sass.kloop import Work, fair_rivals, find_k_loops, work_of
from tilewright.sass.listing import Function
from tilewright.sass.operands import BULK_LOADS, access_bytes, is_global_load, reads, writes
from tilewright.sass.rings import Judged, are_alternatives, is_on_mbarriers, judge_ring
from tilewright.sass.specialised import judge_specialised
from tilewright.sass.staging import conversions
from tilewright.sass.steady import SteadyPath, steady_paths
from tilewright.sass.tiles import LEAST_IN_FLIGHT, Overlap, overlap_of
from tilewright.sass.untraced import caveats, why_no_k_loop

_STALLS_OF = ("LDGSTS", "UBLKCP", "UTMALDG", "SYNCS", "LDG", "STS", "LDS", "LDSM", "BAR", "DEPBAR")


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
    """Copies to shared memory of one kind, per trip of the K-loop and thread.

    `width_bytes` of a bulk copy are all its bytes; of tensor maps' copies, which do not say, the mean of what their
    mbarrier expects.
    """

    opcode: str
    width_bytes: int
    count: int


@dataclass(frozen=True)
class OverlapProof:
    """What the SASS of one kernel permits.

    Attributes:
        verdict: ``overlap`` when enough of a tile's math (`LEAST_IN_FLIGHT`) lies between the issue of the average copy
            and the wait that retires it; ``no_overlap`` when less does; ``unknown``, with the reason in `notes`, when
            the code was not understood.
        tiles_in_flight: tiles whose copies are outstanding while a tile is computed (`mean_in_flight`, rounded); 0
            exactly for ``no_overlap`` and ``unknown``.
        mma_while_in_flight: math instructions of one tile that run while another tile's copies are outstanding. Where
            only part of a tile's bytes are, they count in that part.
        barriers_between: block barriers between a copy's issue and the wait that retires it. They wait for no copy.
        mma_per_tile: math instructions of one tile; multiply-adds where there is no matrix instruction.
        baseline_mma_per_tile: the same of the kernel that this one was made from; for the caller to fill in.
        stalls: stall cycles by instruction, the math first.
        excerpt: the steady-state path, annotated, for people.
        math_kind: opcode of the math: ``IMMA``, ``HMMA``, ``FFMA``; empty without math.
        ops_per_load: math instructions per global load instruction on the steady-state path; None without loads.
        copies: copies to shared memory per trip, by opcode and width.
        notes: reasons and caveats.
        wait: the wait that retires most of the copies: ``DEPBAR.LE SB0, 0x1``.
        mean_in_flight: tiles outstanding, averaged over the math.
        tiles_per_trip: tiles per trip of the compiled K-loop: ptxas may have unrolled it.
        k_loop_line: source line where the K-loop begins, None without line information.
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
    mean_in_flight: float = 0.0
    tiles_per_trip: int = 0
    k_loop_line: int | None = None


def prove(function: Function) -> OverlapProof:
    """Prove, or disprove, that the copies of a kernel overlap its math. What is not understood is ``unknown``."""
    work = work_of(function)
    if not work.math:
        return OverlapProof("unknown", notes=("The kernel has no math that a copy could overlap.",))
    flow = flow_of(function)
    loops = find_k_loops(function, flow, work)
    if not loops:
        pair = judge_specialised(function, flow, work)
        if isinstance(pair, Judged):
            return _on_mbarriers(function, flow, work, [flow.loops.index(pair.path.loop)], pair)
        return OverlapProof("unknown", math_kind=work.kind, notes=(why_no_k_loop(function, flow, work, pair),))
    rivals, aside = _rivals(function, flow, work, loops)
    proofs = [_prove_loop(function, flow, work, [i for i in loops if i not in rivals])]
    proofs += [_prove_loop(function, flow, work, [rival]) for rival in rivals]
    starts = [function.instructions[flow.blocks[flow.loops[i].header].first].address for i in (loops[0], *rivals)]
    worst = _worst(proofs, starts)
    return replace(worst, notes=(*worst.notes, *aside))


def _rivals(function: Function, flow: Flow, work: Work, loops: list[int]) -> tuple[list[int], tuple[str, ...]]:
    """K-loops beside the first, but for those that a launch goes through instead (at sizes without a tensor map)."""
    rivals = fair_rivals(flow, work, loops)
    if not is_on_mbarriers(function, flow, flow.loops[loops[0]]):
        return rivals, ()
    others = [i for i in rivals if are_alternatives(flow, loops[0], i)]
    starts = ", ".join(f"0x{function.instructions[flow.blocks[flow.loops[i].header].first].address:x}" for i in others)
    note = f"Launches that take another way go through the loop at {starts} instead, which was not judged."
    return [i for i in rivals if i not in others], (note,) if others else ()


def _worst(proofs: list[OverlapProof], starts: list[int]) -> OverlapProof:
    """Of several K-loops the one that overlaps least: in which order they stand decides nothing."""
    if len(proofs) == 1 or len({proof.verdict for proof in proofs}) == 1:
        return min(proofs, key=lambda proof: proof.mean_in_flight) if proofs[0].verdict == "overlap" else proofs[0]
    rank = {"no_overlap": 0, "unknown": 1, "overlap": 2}
    worst = min(proofs, key=lambda proof: (rank[proof.verdict], proof.mean_in_flight))
    named = "; ".join(
        f"{proof.verdict.replace('_', ' ')} at 0x{start:x}"
        + (f", line {proof.k_loop_line}" if proof.k_loop_line is not None else "")
        for proof, start in zip(proofs, starts, strict=True)
    )
    note = f"The kernel has {len(proofs)} K-loops: {named}. The worst verdict counts."
    return replace(worst, notes=(note, *worst.notes))


def _prove_loop(function: Function, flow: Flow, work: Work, loops: list[int]) -> OverlapProof:
    """The verdict on the first of some loops."""
    dequantising = conversions(function, flow, flow.loops[loops[0]])
    if not dequantising.issuperset(work.math):
        work = replace(work, math={i: weight for i, weight in work.math.items() if i not in dequantising})
    if is_on_mbarriers(function, flow, flow.loops[loops[0]]):
        ring = judge_ring(function, flow, work, flow.loops[loops[0]])
        pair = judge_specialised(function, flow, work) if isinstance(ring, str) else ring
        return _on_mbarriers(function, flow, work, loops, ring if isinstance(pair, str) else pair)
    paths, is_complete = steady_paths(function, flow, loops[0], work)
    if not paths:
        return OverlapProof("unknown", math_kind=work.kind, notes=("No path was found that leads round the K-loop.",))
    # Where threads that compute nothing (rows past an edge) go another way, there is nothing that copies could overlap.
    paths = tuple(p for p in paths if any(s.active and s.at in work.math for s in p.trip)) or paths
    proofs = []
    for path in paths:
        proof = _described(function, flow, path, work, loops)
        proofs.append(_judged(function, path, work, proof))
    return _agreed(function, paths, proofs, is_complete)


def _on_mbarriers(function: Function, flow: Flow, work: Work, loops: list[int], ring: Judged | str) -> OverlapProof:
    """The verdict on copies that mbarriers retire."""
    if isinstance(ring, Judged):
        proof = _described(function, flow, ring.path, work, loops)
        if proof.ops_per_load is None:  # another thread copies
            proof = replace(proof, ops_per_load=ring.found.math_per_trip / len(ring.found.copies))
        return _with_figures(
            function, ring.path, ring.run, ring.found, replace(proof, notes=(*ring.notes, *proof.notes))
        )
    header = function.instructions[flow.blocks[flow.loops[loops[0]].header].first]
    note = f"An mbarrier retires the copies of the K-loop at 0x{header.address:x}, and {ring[0].lower()}{ring[1:]}"
    return OverlapProof("unknown", math_kind=work.kind, notes=(note,), k_loop_line=header.line)


def _agreed(
    function: Function, paths: tuple[SteadyPath, ...], proofs: list[OverlapProof], is_complete: bool
) -> OverlapProof:
    """One verdict for every choice of waits; where they differ, none."""
    least = min(proofs, key=lambda proof: proof.mean_in_flight)
    verdicts = {proof.verdict for proof in proofs}
    if len(verdicts) == 1 and (is_complete or least.verdict != "overlap"):
        return least
    if len(verdicts) == 1:
        note = f"More than {len(paths)} ways lead round the K-loop that wait differently: not all were judged."
    else:
        note = _where_they_part(function, paths, proofs)
    return replace(_undecided(least), notes=(note, *least.notes))


def _undecided(proof: OverlapProof) -> OverlapProof:
    """The figures that hold whatever way is taken."""
    return OverlapProof(
        "unknown",
        stalls=proof.stalls,
        math_kind=proof.math_kind,
        mma_per_tile=proof.mma_per_tile,
        ops_per_load=proof.ops_per_load,
        copies=proof.copies,
        notes=proof.notes,
        tiles_per_trip=proof.tiles_per_trip,
        k_loop_line=proof.k_loop_line,
    )


def _where_they_part(function: Function, paths: tuple[SteadyPath, ...], proofs: list[OverlapProof]) -> str:
    """Names the branch whose sides lead to different verdicts."""
    one = paths[0]
    at = next(i for i, proof in enumerate(proofs) if proof.verdict != proofs[0].verdict)
    theirs = {choice.at: choice.taken for choice in paths[at].choices}
    parting = next((c.at for c in one.choices if theirs.get(c.at, c.taken) != c.taken), one.choices[0].at)
    branch = function.instructions[parting]
    line = f", line {branch.line}" if branch.line is not None else ""
    return (
        f"The branch at 0x{branch.address:x}{line} chooses between waits: {_in_words(proofs[0])} on one side, "
        f"{_in_words(proofs[at])} on the other. Which of them the middle of a run takes was not worked out."
    )


def _in_words(proof: OverlapProof) -> str:
    if proof.verdict == "overlap":
        return f"overlap ({proof.tiles_in_flight} in flight)"
    return "no overlap" if proof.verdict == "no_overlap" else "no wait that retires the copies"


def _described(function: Function, flow: Flow, path: SteadyPath, work: Work, loops: list[int]) -> OverlapProof:
    """What holds whatever the verdict."""
    code = function.instructions
    active = [step.at for step in path.trip if step.active]
    loads = sum(is_global_load(code[i]) for i in active)
    return OverlapProof(
        "unknown",
        stalls=_stalls(function, active, work),
        math_kind=work.kind,
        ops_per_load=sum(work.math.get(i, 0) for i in active) / loads if loads else None,
        notes=caveats(function, flow, path, work, loops),
        k_loop_line=code[flow.blocks[path.loop.header].first].line,
    )


def _judged(function: Function, path: SteadyPath, work: Work, proof: OverlapProof) -> OverlapProof:
    code = function.instructions
    left = [n for step in path.trip if code[step.at].opcode == "DEPBAR" for _, n in depbar(code[step.at])]
    settle = max(left, default=0) + 4  # trips until the groups that may stay in flight are all there
    run = run_path(function, path.trip, work.math, 2 * settle + 2)
    found = overlap_of(run, settle)
    if isinstance(found, str):
        return replace(proof, notes=(found, *proof.notes))
    return _with_figures(function, path, run, found, proof)


def _with_figures(function: Function, path: SteadyPath, run: Run, found: Overlap, proof: OverlapProof) -> OverlapProof:
    """A proof with what one trip in the steady state shows."""
    per_tile = found.math_per_trip / found.tiles_per_trip
    overlaps = found.mean_in_flight >= LEAST_IN_FLIGHT
    return replace(
        proof,
        verdict="overlap" if overlaps else "no_overlap",
        tiles_in_flight=max(1, int(found.mean_in_flight + 0.5)) if overlaps else 0,
        mma_while_in_flight=round(found.share * per_tile),
        barriers_between=found.barriers_between,
        mma_per_tile=round(per_tile),
        excerpt=excerpt_of(function, path, run, found),
        copies=_copy_rows(function, found),
        notes=(*_remarks(found, overlaps), *_waits_for_another(function, found, overlaps), *proof.notes),
        wait=_wait_text(function, found),
        mean_in_flight=round(found.mean_in_flight, 2),
        tiles_per_trip=found.tiles_per_trip,
    )


def _remarks(found: Overlap, overlaps: bool) -> list[str]:
    remarks = []
    if not overlaps and found.share > 0:
        remarks.append(
            f"Only {found.share:.0%} of the math runs while copies are in flight: a tail that the compiler moved, or "
            "loads that it sank below the math."
        )
    if overlaps and found.idle_copies:
        remarks.append(f"{found.idle_copies} of {len(found.copies)} copies per trip overlap no math.")
    if overlaps and found.mean_in_flight < 0.9:
        remarks.append(f"Part of a tile: {found.mean_in_flight:.2f} tiles in flight on average.")
    elif overlaps and abs(found.mean_in_flight - round(found.mean_in_flight)) > 0.1:
        remarks.append(f"On average {found.mean_in_flight:.2f} tiles are in flight over a tile's math.")
    return remarks


def _waits_for_another(function: Function, found: Overlap, overlaps: bool) -> list[str]:
    """Where loads are waited for too early: said, when it is not they that the waiting instruction wants."""
    code, by = function.instructions, function.instructions[found.wait.index]
    loads = [copy for copy in found.copies if not copy.is_async]
    if overlaps or not loads or len(loads) < len(found.copies):
        return []
    if not {r for c in loads for r in writes(code[c.issued.index])}.isdisjoint({*reads(by), *writes(by)}):
        return []
    line = f", line {by.line}" if by.line is not None else ""
    return [
        f"`{by.text}` at 0x{by.address:x}{line} waits for something else on the scoreboard that the loads are on: "
        "the hardware counts them together, so it waits for the loads too."
    ]


def _wait_text(function: Function, found: Overlap) -> str:
    instruction = function.instructions[found.wait.index]
    if instruction.opcode == "DEPBAR":
        return instruction.text
    if instruction.opcode == "SYNCS":
        return f"{instruction.text} (an mbarrier)"
    return f"{instruction.text} (first to wait for the loads' scoreboard)"


def _copy_rows(function: Function, found: Overlap) -> tuple[CopyRow, ...]:
    counts: dict[tuple[str, int], int] = {}
    for copy in found.copies:
        instruction = function.instructions[copy.issued.index]
        key = (instruction.opcode, copy.size if instruction.opcode in BULK_LOADS else access_bytes(instruction))
        counts[key] = counts.get(key, 0) + 1
    return tuple(CopyRow(opcode, width, count) for (opcode, width), count in sorted(counts.items()))


def _stalls(function: Function, active: list[int], work: Work) -> tuple[StallRow, ...]:
    stalls: dict[str, list[int]] = {}
    for i in active:
        instruction = function.instructions[i]
        if i in work.math or instruction.opcode in _STALLS_OF:
            stalls.setdefault(instruction.name, []).append(instruction.stall)
    math = {function.instructions[i].name for i in work.math}
    rows = [StallRow(name, len(s), min(s), max(s), round(sum(s) / len(s), 2)) for name, s in stalls.items()]
    return tuple(sorted(rows, key=lambda row: (row.opcode not in math, -row.count, row.opcode)))


__all__ = ["LEAST_IN_FLIGHT", "ORDER_IS_NOT_TIME", "CopyRow", "OverlapProof", "StallRow", "prove"]
