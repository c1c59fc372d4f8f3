"""One variant: rewrite, build, prove; and what is tried when the compiler undid the overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.arch.arch import Arch
from tilewright.build.artifact import Artifact, CompileFailure
from tilewright.launch.bind import LaunchChange
from tilewright.receipt import record
from tilewright.rewrite import bulk, controls, cp_async, ldg, tma
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.sass.listing import disassemble
from tilewright.sass.proof import OverlapProof, prove
from tilewright.source.kernel import Refusal, TiledKernel
from tilewright.workflow.opening import Compiler
from tilewright.workflow.records import proof_record, refusal_record, resources_record
from tilewright.workflow.study import StudiedControl, StudiedVariant

Rewriter = Callable[[Remedy], RewrittenSource | Refusal]

# SPEC step 7: in this order, each on top of what has helped so far.
REMEDIES = (
    Remedy(),
    Remedy(restore_unroll=True),
    Remedy(restore_unroll=True, unroll_one=True),
    Remedy(restore_unroll=True, unroll_one=True, early_loads=True),
    Remedy(restore_unroll=True, unroll_one=True, early_loads=True, fence=True),
)
# Variants of the contract that this version does not write yet, and the architecture that each needs.
LATER = (("widen", 1, None), ("retile", 1, None), ("cap_registers", 1, None))


@dataclass(frozen=True)
class Attempt:
    """One build of a variant under one remedy."""

    source: RewrittenSource
    artifact: Artifact
    proof: OverlapProof


def rewriters(kernel: TiledKernel, arch: Arch, stages: tuple[int, ...]) -> list[tuple[str, int, Rewriter]]:
    """(variant, stages, rewriter) of everything this version can try."""
    limit = arch.smem_static_max_bytes
    out: list[tuple[str, int, Rewriter]] = [
        ("ldg", 2, lambda r: ldg.rewrite(kernel, False, limit, r)),
        ("ldg_single", 1, lambda r: ldg.rewrite(kernel, True, limit, r)),
    ]
    for s in stages:
        out.append(("cp_async", s, lambda r, s=s: cp_async.rewrite(kernel, s, limit, r)))  # type: ignore[misc]
    # Where the architecture has no bulk copies, one line each says so.
    for s in stages if arch.has_bulk else stages[:1]:
        out.append(("bulk", s, lambda r, s=s: bulk.rewrite(kernel, s, limit, r)))  # type: ignore[misc]
    for s in stages if arch.has_bulk else stages[:1]:
        out.append(("tma", s, lambda r, s=s: tma.rewrite(kernel, s, limit, r)))  # type: ignore[misc]
    return out


def make(
    name: str, stages: int, rewriter: Rewriter, compiler: Compiler, arch: Arch, fits: bool, baseline: OverlapProof
) -> StudiedVariant:
    """Rewrite, build and prove one variant.

    Args:
        fits: whether a block with this ring can run on an SM at all.
        baseline: the proof of the kernel as it was, for its math per tile.
    """
    if name == "cp_async" and not arch.has_cp_async:
        return refused(
            name,
            stages,
            record.Refusal(
                "needs_arch",
                f"cp.async needs sm_80, this is {arch.name}",
                hint="the ldg variant runs on every architecture",
            ),
        )
    if name in ("bulk", "tma") and not arch.has_bulk:
        why = record.Refusal("needs_arch", f"{name} copies need sm_90 or later, this is {arch.name}")
        return refused(name, stages, why)
    attempts: list[Attempt] = []
    tried: list[str] = []
    for remedy in REMEDIES:
        written = rewriter(remedy)
        if isinstance(written, Refusal):
            return refused(name, stages, refusal_record(written))
        if not fits:
            return refused(
                name,
                stages,
                record.Refusal(
                    "budget_exceeded",
                    f"{stages} stages do not fit on an SM of {arch.name}",
                    hint="ask for fewer stages",
                ),
            )
        if attempts and written.text == attempts[-1].source.text:
            continue
        outcome = compiler.build(written.text)
        if isinstance(outcome, CompileFailure):
            if attempts:
                break
            return refused(
                name,
                stages,
                record.Refusal(
                    "not_understood",
                    f"the rewritten source does not compile: {outcome.message}",
                    outcome.line,
                    "please report this kernel",
                ),
            )
        attempts.append(Attempt(written, outcome, proof_of(outcome, compiler)))
        tried.append(f"{remedy.text() or 'as written'}: {_summary(attempts[-1].proof)}")
        if good(attempts[-1], baseline):
            break
        if [a.proof.verdict for a in attempts[-2:]] == ["unknown", "unknown"]:
            break  # code that cannot be read is not read better with another pragma
    best = min(attempts, key=lambda a: _badness(a, baseline))
    return _finished(name, stages, best, baseline, tuple(tried) if len(tried) > 1 else (), compiler)


def refused(name: str, stages: int, refusal: record.Refusal) -> StudiedVariant:
    return StudiedVariant(name, stages, refusal)


def proof_of(artifact: Artifact, compiler: Compiler) -> OverlapProof:
    function = disassemble(artifact.cubin, compiler.settings).function(artifact.kernel)
    if function is None:
        return OverlapProof("unknown", notes=("The disassembly does not hold the kernel.",))
    return prove(function)


def good(attempt: Attempt, baseline: OverlapProof) -> bool:
    return _badness(attempt, baseline) == (0, 0, 0)


def _badness(attempt: Attempt, baseline: OverlapProof) -> tuple[int, int, int]:
    """Spills first, then lost math, then lost overlap."""
    same = baseline.verdict == "unknown" or attempt.proof.mma_per_tile == baseline.mma_per_tile
    spills = attempt.artifact.resources.spill_bytes + attempt.artifact.resources.stack_bytes
    return (spills, int(not same), int(attempt.proof.verdict != "overlap"))


def _summary(proof: OverlapProof) -> str:
    return f"{proof.verdict}, {proof.mma_per_tile} math per tile, {proof.tiles_in_flight} tiles in flight"


def _finished(
    name: str, stages: int, best: Attempt, baseline: OverlapProof, tried: tuple[str, ...], compiler: Compiler
) -> StudiedVariant:
    proof, used = best.proof, best.artifact.resources
    known = baseline.verdict != "unknown"
    refusal: record.Refusal | None = None
    if used.spill_bytes:
        refusal = record.Refusal(
            "budget_exceeded",
            f"the compiler spills {used.spill_bytes} bytes a thread",
            hint="more threads a block, or a smaller BK",
        )
    elif proof.verdict == "unknown":
        refusal = record.Refusal(
            "not_proven", f"the machine code does not show whether copies overlap: {' '.join(proof.notes)}"
        )
    elif known and proof.mma_per_tile != baseline.mma_per_tile:
        message = f"math instructions per tile changed: {baseline.mma_per_tile} became {proof.mma_per_tile}"
        refusal = record.Refusal("not_proven", message, hint="; ".join(tried))
    elif proof.verdict == "no_overlap":
        refusal = record.Refusal("no_overlap", "the compiler undid the overlap", hint="; ".join(tried))
    if refusal is not None:
        return refused(name, stages, refusal)
    change = best.source.launch
    dynamic = change.shared_bytes
    notes: list[str] = []
    if best.source.remedy.text():
        notes.append(f"added {best.source.remedy.text()}")
    if dynamic:
        notes.append(f"launch with {dynamic} dynamic bytes; raise the limit with cudaFuncSetAttribute")
    return StudiedVariant(
        name,
        stages,
        None,
        best.source.text,
        best.source.diff,
        best.artifact,
        change,
        proof_record(proof, baseline.mma_per_tile if known else None, tried),
        resources_record(best.artifact, dynamic or 0),
        tuple(notes),
        _waited(best, compiler),
    )


def _waited(best: Attempt, compiler: Compiler) -> StudiedControl | None:
    text = controls.waited(best.source)
    return control("waited", text, compiler, best.source.launch) if text is not None else None


def widened_control(kernel: TiledKernel, compiler: Compiler) -> StudiedControl | None:
    """The baseline with its loads widened and nothing else, where that is possible."""
    text = controls.widened(kernel)
    if isinstance(text, Refusal):
        return None
    return control("widened", text, compiler, LaunchChange(shared_bytes=kernel.launch_shared_bytes))


def control(name: str, text: str, compiler: Compiler, change: LaunchChange) -> StudiedControl | None:
    outcome = compiler.build(text)
    if isinstance(outcome, CompileFailure):
        return None
    return StudiedControl(name, outcome, proof_record(proof_of(outcome, compiler), None), change)


def later_variants(arch: Arch) -> list[StudiedVariant]:
    """The contract's other variants, each with why it is not here."""
    out: list[StudiedVariant] = []
    for name, stages, need in LATER:
        if need is not None and not arch.has_bulk:
            why = record.Refusal("needs_arch", f"{name} copies need sm_90 or later, this is {arch.name}")
        else:
            why = record.Refusal("not_available", "this version does not write it yet")
        out.append(refused(name, stages, why))
    return out
