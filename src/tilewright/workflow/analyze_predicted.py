"""The plan's decision from compiled builds: what the analysis expects of pipelining and of wider loads in a K-loop."""

from __future__ import annotations

from dataclasses import replace

from tilewright.analyze.strategies.compute import MIN_TILES
from tilewright.arch.arch import load_arch
from tilewright.arch.card import Card
from tilewright.plan.decide import Decision
from tilewright.sass.proof import OverlapProof
from tilewright.workflow.analyze_sized import Sized
from tilewright.workflow.analyze_subject import Say, Subject
from tilewright.workflow.analyze_tiled import Tiled

# The fewest stages stand for all: what more of them bring beside two is seldom worth much. Registers go where no
# asynchronous copy can (what is converted or transposed on its way), and beside one where it loses.
STAGES = (2,)
PIPELINES = ("cp_async", "ldg")


def decision_of(
    subject: Subject, tiled: Tiled, proof: OverlapProof, sized: Sized, card: Card, say: Say
) -> Decision | None:
    """Build two pipelined variants and the widened loads, and let the plan judge them; None where none is asked for.

    Nothing is built where copies overlap the math already, where there is no second tile, or where the launch is not
    the sidecar's own.

    Args:
        card: what it is decided for.
    """
    kernel, facts, plan, opened = tiled.kernel, tiled.facts, tiled.budget, subject.opened
    if kernel is None or facts is None or plan is None or opened is None or kernel.tile.threads is None:
        return None
    spec = opened.compiler.spec
    if proof.verdict == "overlap" or spec is None or sized.is_given:
        return None
    if tiled.num_tiles is not None and tiled.num_tiles < MIN_TILES:
        return None
    from tilewright.plan.decide import decide_built
    from tilewright.receipt.evidence import Resources
    from tilewright.workflow.bench import Bench
    from tilewright.workflow.built import builds_of
    from tilewright.workflow.studying import build_variants

    arch = load_arch(subject.target.arch)
    here = replace(spec, sizes={**spec.sizes, "default": sized.sizes})
    bench = Bench(
        replace(opened, compiler=replace(opened.compiler, spec=here)),
        arch,
        proof,
        kernel.tile.threads,
        opened.kernel.constants.names(),
    )
    wanted = (*PIPELINES, "widen")
    say("building what is to be predicted")
    variants = build_variants(bench, kernel, plan, STAGES, wanted, say)
    used = Resources(subject.registers, subject.smem_bytes + sized.launch.shared_bytes, subject.spill_bytes, None)
    builds = builds_of(bench, used, variants, tiled.num_tiles)
    return decide_built(facts, plan, arch, builds, card=card)
