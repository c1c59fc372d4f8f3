"""The K-loop of a CUDA source for the analysis: facts for the plan, the number of tiles, a build with a cap."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.analyze.facts import Capped
from tilewright.analyze.hot_loop import hot_loop
from tilewright.arch.arch import load_arch
from tilewright.arch.occupancy import Occupancy
from tilewright.kloop.kernel import TiledKernel
from tilewright.launch.bind import BoundLaunch, LaunchChange
from tilewright.plan.budget import Budget
from tilewright.plan.facts import PlanFacts
from tilewright.sass.proof import OverlapProof
from tilewright.workflow.analyze_subject import Say, Subject


@dataclass(frozen=True)
class Tiled:
    """What is understood of the K-loop; nothing of a kernel that has none, or of a cubin.

    Attributes:
        kernel: as `tilewright pipeline` reads it. facts, budget: for `plan.decide`.
        num_tiles: at the sizes of the launch. reduction: the size that the loop runs over; step: of it, per tile.
        notes: why it was not understood.
    """

    kernel: TiledKernel | None = None
    facts: PlanFacts | None = None
    budget: Budget | None = None
    num_tiles: int | None = None
    reduction: str | None = None
    step: int = 0
    notes: tuple[str, ...] = ()


def tiled_of(
    subject: Subject, proof: OverlapProof, bound: BoundLaunch | None, threads: int | None, sms: int | None
) -> Tiled:
    """Read the source's K-loop as `tilewright pipeline` does; what it cannot read is left to the machine code."""
    if subject.opened is None:
        return Tiled()
    from tilewright.kloop.kernel import Refusal
    from tilewright.kloop.trips import trip_count
    from tilewright.plan.budget import budget
    from tilewright.rewrite.pools import grown_bytes
    from tilewright.workflow.planning import plan_facts
    from tilewright.workflow.threads import with_threads
    from tilewright.workflow.trip_sets import trip_sets
    from tilewright.workflow.understanding import understand

    opened = subject.opened
    kernel = understand(opened.kernel, opened.block, opened.shared_bytes, opened.no_alias)
    if isinstance(kernel, Refusal):
        told = () if kernel.code == "no_k_loop" else (f"K-loop not understood: {kernel.message}.",)
        return Tiled(notes=told)
    kernel = with_threads(kernel, opened.function.launch_bounds)
    tiles = trip_count(kernel, bound.scalars) if bound is not None else None
    reduction, sets = trip_sets(kernel, subject.spec, dict(subject.constants or {}), (2,))
    step = min((s[reduction] for s in sets.values() if s.get(reduction, 0) > 0), default=0) if reduction else 0
    blocks = bound.grid[0] * bound.grid[1] * bound.grid[2] if bound is not None else None
    facts = replace(plan_facts(kernel, opened, proof, tiles, blocks, ()), sms=sms)
    arch = load_arch(subject.target.arch)
    dynamic = bound.shared_bytes if bound is not None else 0
    plan = budget(
        arch,
        threads=threads or kernel.tile.threads or 1,
        registers=subject.registers,
        smem_single_bytes=subject.smem_bytes + dynamic,
        staged_bytes=sum(a.total_bytes for a in kernel.staged),
        grown_bytes=lambda count: grown_bytes(kernel, count),
    )
    return Tiled(kernel, facts, plan, tiles, reduction, step)


def capped_build(subject: Subject, fit: Occupancy, threads: int, say: Say) -> Capped | None:
    """Ask the compiler for one more block per SM, where registers stand in its way; None: it was not asked.

    Nothing else may do so but shared memory, which the launch can do with less of.
    """
    wanted = fit.blocks_per_sm + 1
    tight = {name for name, count in fit.limits.items() if count < wanted}
    if subject.opened is None or not fit.blocks_per_sm or tight not in ({"registers"}, {"registers", "shared"}):
        return None
    from tilewright.build.artifact import CompileFailure
    from tilewright.kloop.kernel import Refusal
    from tilewright.workflow.bench import Bench

    opened = subject.opened
    arch = load_arch(subject.target.arch)
    bench = Bench(opened, arch, OverlapProof("unknown"), threads, opened.kernel.constants.names())
    text = bench.bounded(opened.source.text.decode(), wanted, LaunchChange())
    if isinstance(text, Refusal):
        return None
    say("asking the compiler for fewer registers")
    built = opened.compiler.build(text)
    if isinstance(built, CompileFailure):
        return Capped(
            subject.registers, 0, None, f"with a bound of {wanted} blocks it does not compile: {built.message}"
        )
    used, before = built.resources, opened.baseline.resources
    spilled = max(used.spill_bytes - before.spill_bytes, used.stack_bytes - before.stack_bytes, 0)
    if not spilled and used.registers >= before.registers:
        return Capped(
            used.registers, 0, None, f"asked for {wanted} blocks, the compiler kept {used.registers} registers"
        )
    function = opened.compiler.function(built)
    return Capped(used.registers, spilled, hot_loop(function) if function is not None else None)
