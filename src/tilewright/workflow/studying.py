"""Makes a :class:`Study`: the receipt's static half."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tilewright.arch.arch import Arch, load_arch
from tilewright.arch.card import assumed_card
from tilewright.build.build import toolchain
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.kloop.trips import trip_count
from tilewright.launch.bind import bind
from tilewright.launch.spec import LaunchSpec
from tilewright.plan.budget import Budget, budget
from tilewright.receipt import record
from tilewright.rewrite.pools import grown_bytes
from tilewright.sass.nvdisasm import find_nvdisasm
from tilewright.sass.proof import OverlapProof
from tilewright.source import lexical
from tilewright.workflow.bench import Bench
from tilewright.workflow.built import builds_of
from tilewright.workflow.deciding import decided
from tilewright.workflow.moves import capped, widened
from tilewright.workflow.opening import Opened
from tilewright.workflow.planning import math_name, plan_facts, preconditions_of
from tilewright.workflow.probing import confirm
from tilewright.workflow.records import (
    budget_records,
    loop_record,
    proof_record,
    refusal_record,
    resources_record,
    tile_record,
)
from tilewright.workflow.retiling import retiled
from tilewright.workflow.study import Planned, StudiedVariant, Study
from tilewright.workflow.template_arguments import other_instantiation
from tilewright.workflow.threads import with_threads
from tilewright.workflow.trip_sets import ragged_sets, trip_sets
from tilewright.workflow.understanding import understand
from tilewright.workflow.variants import make, proof_of, rewriters, widened_control

NO_SIDECAR = (
    "No sidecar: nothing can be launched, so nothing is verified or timed, and the trip count is not known. "
    "A sidecar (KERNEL.toml beside KERNEL.cu) adds verification at every size, timing, and the number of tiles."
)


NO_THREADS = (
    "How many threads a block has is not known, so there is no budget and no prediction. "
    "A sidecar, or __launch_bounds__, says it."
)


def study(
    opened: Opened, stages: tuple[int, ...], wanted: tuple[str, ...] | None, progress: Callable[[str], None]
) -> Study:
    """Analyse, rewrite, build and prove."""
    spec, arch = opened.compiler.spec, load_arch(opened.compiler.arch)
    dynamic = bind(spec, "default", opened.kernel.constants.names()).shared_bytes if spec is not None else 0
    progress("reading the kernel")
    baseline_proof = proof_of(opened.baseline, opened.compiler)
    base = Study(
        toolchain=opened.baseline.toolchain or toolchain() or "",
        disassembler="nvdisasm" if find_nvdisasm(opened.compiler.settings) else "",
        kernel=record.Kernel(opened.source.file, opened.function.name, opened.function.line, template=opened.template),
        constants=opened.kernel.constants.names(),
        baseline=opened.baseline,
        baseline_proof=proof_record(baseline_proof, None),
        baseline_resources=resources_record(opened.baseline, dynamic),
        notes=opened.notes if spec is not None else (*opened.notes, NO_SIDECAR),
    )
    understood = other_instantiation(opened.source, opened.function, opened.template) or understand(
        opened.kernel, opened.block, opened.shared_bytes, opened.no_alias
    )
    if not isinstance(understood, Refusal):
        understood = confirm(understood, opened.compiler) or understood
    if isinstance(understood, Refusal):
        return replace(base, refusal=refusal_record(understood))
    understood = with_threads(understood, opened.function.launch_bounds)
    if understood.tile.threads is None:
        base = replace(base, notes=(*base.notes, NO_THREADS))
    return _full(base, opened, understood, arch, baseline_proof, stages, wanted, progress)


def _full(
    base: Study,
    opened: Opened,
    kernel: TiledKernel,
    arch: Arch,
    proof: OverlapProof,
    stages: tuple[int, ...],
    wanted: tuple[str, ...] | None,
    progress: Callable[[str], None],
) -> Study:
    spec = opened.compiler.spec
    plan = budget(
        arch,
        threads=kernel.tile.threads or 1,
        registers=opened.baseline.resources.registers,
        smem_single_bytes=base.baseline_resources.smem_bytes or 0,
        staged_bytes=sum(a.total_bytes for a in kernel.staged),
        grown_bytes=lambda count: grown_bytes(kernel, count),
    )
    bench = Bench(opened, arch, proof, kernel.tile.threads, base.constants)
    variants = build_variants(bench, kernel, plan, stages, wanted, progress)
    made = {record.variant_label(v.name, v.stages) for v in variants if v.refusal is None}
    num_tiles, blocks = _launch_facts(kernel, spec, base)
    facts = plan_facts(kernel, opened, proof, num_tiles, blocks, variants)
    rows, proposals = budget_records(plan)
    progress("predicting")
    builds = builds_of(bench, base.baseline_resources, variants, num_tiles)
    planned: Planned | None = Planned(facts, plan, builds, frozenset(made))
    if kernel.tile.threads is None:  # what fits a block can still be told, what fits an SM cannot
        rows, proposals, planned = (), (), None
    reduction, extra = trip_sets(kernel, spec, base.constants, stages)
    assumptions = [*kernel.assumptions]
    if spec is not None:
        assumptions += [f"{name} = {str(value).lower()} (sidecar)" for name, value in spec.assume.items()]
        if opened.block is not None and b"blockDim" in lexical.without_comments(opened.source.text):
            threads = " x ".join(map(str, opened.block))
            assumptions.append(
                f"a block has {threads} threads (sidecar): other launches would need variants of their own"
            )
    return replace(
        base,
        tile=tile_record(kernel, math_name(kernel, proof)),
        loop=loop_record(kernel, num_tiles),
        preconditions=preconditions_of(kernel, plan, num_tiles),
        budget=rows,
        proposals=proposals,
        decision=decided(planned, arch, assumed_card(arch.name)) if planned is not None else None,
        planned=planned,
        variants=tuple(variants),
        widened=widened_control(kernel, opened.compiler, variants),
        assumptions=tuple(assumptions),
        notes=(*base.notes, *kernel.steps, *((plan.cliff_text,) if rows else ())),
        extra_sets=extra,
        ragged_sets=ragged_sets(kernel, spec, base.constants) if any(v.halves_depth for v in variants) else {},
        reduction=reduction,
    )


def build_variants(
    bench: Bench,
    kernel: TiledKernel,
    plan: Budget,
    stages: tuple[int, ...],
    wanted: tuple[str, ...] | None,
    progress: Callable[[str], None],
) -> list[StudiedVariant]:
    """All that the idiom and the architecture allow; compiled side by side, listed in a fixed order."""
    jobs: list[tuple[str, Callable[[], list[StudiedVariant]]]] = []
    for name, count, rewriter in rewriters(kernel, bench.arch, stages):
        row = plan.row(count)
        fits = row is None or row.fits
        jobs.append((name, lambda n=name, c=count, r=rewriter, f=fits: [make(n, c, r, bench, f)]))  # type: ignore[misc]
    jobs += [
        ("widen", lambda: [widened(bench, kernel)]),
        ("retile", lambda: retiled(bench, kernel, stages, plan)),
        ("cap_registers", lambda: [capped(bench)]),
    ]

    def one(job: tuple[str, Callable[[], list[StudiedVariant]]]) -> list[StudiedVariant]:
        result = job[1]()
        for each in result:
            progress(f"built {record.variant_label(each.name, each.stages)}")
        return result

    # Two at a time: compiling and disassembling leave Python, and more would need more memory than they save time.
    with ThreadPoolExecutor(2) as pool:
        made = [v for some in pool.map(one, [j for j in jobs if wanted is None or j[0] in wanted]) for v in some]
    order = list(record.VARIANT_NAMES)
    return sorted(made, key=lambda v: order.index(v.name))


def _launch_facts(kernel: TiledKernel, spec: LaunchSpec | None, base: Study) -> tuple[int | None, int | None]:
    """(tiles, blocks) at the default sizes."""
    if spec is None:
        return None, None
    launch = bind(spec, "default", base.constants)
    x, y, z = launch.grid
    return trip_count(kernel, launch.scalars), x * y * z
