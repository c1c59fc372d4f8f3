"""One pipelined variant: rewrite, build, prove; what is tried when the compiler undid the overlap or took too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.arch.arch import Arch
from tilewright.build.artifact import Artifact, CompileFailure
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.bind import LaunchChange
from tilewright.receipt import record
from tilewright.rewrite import bulk, controls, cp_async, ldg, tma, widen
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.sass.proof import OverlapProof, prove
from tilewright.source.edits import unified_diff
from tilewright.workflow.bench import Bench
from tilewright.workflow.host_side import host_code
from tilewright.workflow.opening import Compiler
from tilewright.workflow.records import proof_record, refusal_record
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
# Where nothing has overlapped so far: the load phase cut elsewhere, by itself and with what has to hold it in place.
OTHER_CUT = (
    Remedy(at_loads=True),
    Remedy(at_loads=True, restore_unroll=True, unroll_one=True),
    Remedy(at_loads=True, restore_unroll=True, unroll_one=True, early_loads=True),
    Remedy(at_loads=True, restore_unroll=True, unroll_one=True, early_loads=True, fence=True),
)


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


def make(name: str, stages: int, rewriter: Rewriter, bench: Bench, fits: bool) -> StudiedVariant:
    """Rewrite, build and prove one pipelined variant.

    Args:
        fits: whether a block with this ring can run on an SM at all.
    """
    compiler, arch = bench.compiler, bench.arch
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
    for remedy in (*REMEDIES, *OTHER_CUT):
        if _spared(remedy, attempts):
            continue
        written = rewriter(remedy)
        if remedy.at_loads and _text(written) == _text(rewriter(replace(remedy, at_loads=False))):
            break  # there is no other cut
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
        if any(written.text == a.source.text for a in attempts):
            continue
        outcome = compiler.build(written.text)
        if isinstance(outcome, CompileFailure):
            if attempts:
                break
            return refused(name, stages, does_not_compile(outcome))
        attempts.append(Attempt(written, outcome, proof_of(outcome, compiler)))
        tried.append(f"{remedy.text() or 'as written'}: {_summary(attempts[-1].proof)}")
        if good(attempts[-1], bench):
            break
    best = min(attempts, key=lambda a: _badness(a, bench))
    if good(best, bench):
        best, told = _without_losing_blocks(best, bench)
        tried += told
    made = _finished(name, stages, best, bench, tuple(tried) if len(tried) > 1 else ())
    return replace(made, early=_early(best, rewriter, bench)) if made.refusal is None else made


def _spared(remedy: Remedy, attempts: list[Attempt]) -> bool:
    """Whether a remedy is not worth a build after what has been tried."""
    alike = [a.proof.verdict for a in attempts if a.source.remedy.at_loads == remedy.at_loads]
    if alike[-2:] == ["unknown", "unknown"]:
        return True  # code that cannot be read is not read better with another pragma
    return remedy.at_loads and any(a.proof.verdict == "overlap" for a in attempts if not a.source.remedy.at_loads)


def _text(written: RewrittenSource | Refusal) -> str:
    return written.text if isinstance(written, RewrittenSource) else ""


def _early(best: Attempt, rewriter: Rewriter, bench: Bench) -> StudiedVariant | None:
    """The same with its loads in front of the barrier: which order ptxas schedules better, only a clock can tell."""
    source = best.source
    if source.variant not in ("ldg", "ldg_single") or source.remedy.early_loads or source.remedy.cap_registers:
        return None
    written = rewriter(replace(source.remedy, early_loads=True))
    if isinstance(written, Refusal) or written.text == source.text:
        return None
    outcome = bench.compiler.build(written.text)
    if isinstance(outcome, CompileFailure):
        return None
    other = Attempt(written, outcome, proof_of(outcome, bench.compiler))
    if not good(other, bench):
        return None
    made = _finished(source.variant, source.stages, other, bench, ())
    return made if made.refusal is None else None


def refused(name: str, stages: int, refusal: record.Refusal) -> StudiedVariant:
    return StudiedVariant(name, stages, refusal)


def does_not_compile(failure: CompileFailure) -> record.Refusal:
    message = f"the rewritten source does not compile: {failure.message}"
    return record.Refusal("not_understood", message, failure.line, "please report this kernel")


def proof_of(artifact: Artifact, compiler: Compiler) -> OverlapProof:
    function = compiler.function(artifact)
    if function is None:
        return OverlapProof("unknown", notes=("The disassembly does not hold the kernel.",))
    return prove(function)


def good(attempt: Attempt, bench: Bench) -> bool:
    return _badness(attempt, bench) == (0, 0, 0)


def _badness(attempt: Attempt, bench: Bench) -> tuple[int, int, int]:
    """Spills first, then lost math, then lost overlap."""
    same = bench.math_for(attempt.proof) in (None, attempt.proof.mma_per_tile)
    spills = attempt.artifact.resources.spill_bytes + attempt.artifact.resources.stack_bytes
    return (spills, int(not same), int(attempt.proof.verdict != "overlap"))


def _summary(proof: OverlapProof) -> str:
    return f"{proof.verdict}, {proof.mma_per_tile} math per tile, {proof.tiles_in_flight} tiles in flight"


def _without_losing_blocks(best: Attempt, bench: Bench) -> tuple[Attempt, list[str]]:
    """Where the variant's registers cost it a block per SM: the same with its registers capped, if nothing spills."""
    lost = bench.lost_to_registers(best.artifact, best.source.launch)
    if lost is None:
        return best, []
    text = bench.bounded(best.source.text, lost[1], best.source.launch)
    if isinstance(text, Refusal):
        return best, [f"registers cannot be capped: {text.message}"]
    remedy = replace(best.source.remedy, cap_registers=lost[1])
    outcome = bench.compiler.build(text)
    if isinstance(outcome, CompileFailure):
        return best, [f"{remedy.text()}: does not compile: {outcome.message}"]
    name = f"{bench.opened.source.file} ({best.source.variant}, {best.source.stages} stages, registers capped)"
    diff = unified_diff(bench.opened.source.text.decode(), text, bench.opened.source.file, name)
    capped = Attempt(
        replace(best.source, text=text, diff=diff, remedy=remedy), outcome, proof_of(outcome, bench.compiler)
    )
    used = outcome.resources
    spilled = f", {used.spill_bytes} bytes spilled" if used.spill_bytes else ""
    told = f"{remedy.text()}: {used.registers} registers{spilled}, {_summary(capped.proof)}"
    fits = bench.lost_to_registers(outcome, best.source.launch) is None
    return (capped if good(capped, bench) and fits else best), [told]


def _finished(name: str, stages: int, best: Attempt, bench: Bench, tried: tuple[str, ...]) -> StudiedVariant:
    refusal = wanting(best, bench, tried)
    if refusal is None and best.proof.verdict == "no_overlap":
        message = ": ".join(("the compiler undid the overlap", *best.proof.notes[:1]))
        refusal = record.Refusal("no_overlap", message, hint="; ".join(tried))
    if refusal is not None:
        return refused(name, stages, refusal)
    # A twin is worth its compilation where the gain is split into factors: half a tile has none.
    waited = _waited(best, bench.compiler) if name != "retile" else None
    return studied(name, stages, best, bench, tried, waited)


def wanting(best: Attempt, bench: Bench, tried: tuple[str, ...]) -> record.Refusal | None:
    """What no variant may show: spills, machine code that cannot be read, other math than the baseline's."""
    proof, used = best.proof, best.artifact.resources
    if used.spill_bytes:
        return record.Refusal(
            "budget_exceeded",
            f"the compiler spills {used.spill_bytes} bytes a thread",
            hint="more threads a block, or a smaller BK",
        )
    if proof.verdict == "unknown":
        return record.Refusal(
            "not_proven", f"the machine code does not show whether copies overlap: {' '.join(proof.notes)}"
        )
    expected = bench.math_for(proof)
    if expected is not None and proof.mma_per_tile != expected:
        message = f"math instructions per tile changed: {expected} became {proof.mma_per_tile}"
        return record.Refusal("not_proven", message, hint="; ".join(tried))
    return None


def studied(
    name: str,
    stages: int,
    best: Attempt,
    bench: Bench,
    tried: tuple[str, ...] = (),
    waited: StudiedControl | None = None,
    notes: tuple[str, ...] = (),
) -> StudiedVariant:
    """The variant as built, with what its user has to know."""
    change = best.source.launch
    told = list(notes)
    if best.source.remedy.text():
        told.append(f"added {best.source.remedy.text()}")
    bound = bench.bound_note(change) if name == "cap_registers" or best.source.remedy.cap_registers else ""
    told += [bound] if bound else []
    resources = bench.resources(best.artifact, change)
    if change.shared_bytes and change.shared_bytes != bench.dynamic_bytes(LaunchChange()):
        beyond = (resources.smem_bytes or 0) > bench.arch.smem_static_max_bytes
        raised = "; raise the limit with cudaFuncSetAttribute" if beyond else ""
        told.append(f"launch with {change.shared_bytes} dynamic bytes{raised}")
    lost = bench.lost_to_registers(best.artifact, change)
    if lost is not None:
        before, now = bench.opened.baseline.resources.registers, best.artifact.resources.registers
        told.append(f"costs occupancy: {now} registers, not {before}: {lost[0]} blocks per SM instead of {lost[1]}")
    shim, why = host_code(bench.opened, best.source, bench.constants)
    if why:
        told.append(why)
    elif shim:
        launcher = f"{bench.opened.function.name}_launch"
        told.append(f"takes arguments that the host makes for every launch: {launcher} (.launch.cuh) does")
    return StudiedVariant(
        name,
        stages,
        None,
        best.source.text,
        best.source.diff,
        best.artifact,
        change,
        proof_record(best.proof, bench.math_for(best.proof), tried),
        resources,
        tuple(told),
        waited,
        host_code=shim,
    )


def _waited(best: Attempt, compiler: Compiler) -> StudiedControl | None:
    text = controls.waited(best.source)
    return control("waited", text, compiler, best.source.launch) if text is not None else None


def widened_control(kernel: TiledKernel, compiler: Compiler, made: list[StudiedVariant]) -> StudiedControl | None:
    """The baseline with its loads widened and nothing else: the variant of that name, where it was asked for."""
    own = next((v for v in made if v.name == "widen"), None)
    if own is not None:
        built = own.artifact
        return StudiedControl("widened", built, own.proof, own.change) if built is not None else None
    written = widen.rewrite(kernel)
    if isinstance(written, Refusal):
        return None
    return control("widened", written.text, compiler, written.launch)


def control(name: str, text: str, compiler: Compiler, change: LaunchChange) -> StudiedControl | None:
    outcome = compiler.build(text)
    if isinstance(outcome, CompileFailure):
        return None
    return StudiedControl(name, outcome, proof_record(proof_of(outcome, compiler), None), change)
