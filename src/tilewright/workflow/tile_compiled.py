"""The first candidates of `tilewright tile` with what ptxas gave the kernels that they would be written as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.build.artifact import Artifact, BuildRequest, Resources
from tilewright.build.build import build
from tilewright.settings import Settings
from tilewright.tile.candidate import Candidate, fit
from tilewright.tile.choice import heads
from tilewright.tile.gemm import candidate, timed_space
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Convolution, Gemm, Op
from tilewright.tile.parameters import CostParameters
from tilewright.tile.selection import Selection, selected
from tilewright.workflow.tile_skeletons import gemm_tile, skeleton_of


def compiled(
    found: Selection,
    machine: Machine,
    cost: CostParameters,
    top: int,
    settings: Settings,
    say: Callable[[str], None],
) -> Selection:
    """The first ``top`` candidates in CUDA again, fastest first, spills last; the rest follows as estimated."""
    shown = heads(found.candidates, top)
    rows: list[Candidate] = []
    for number, row in enumerate(shown, 1):
        say(f"compiling candidate {number} of {len(shown)}")
        made = skeleton_of(found.op, row, machine, "cuda")
        if made.refusal:
            rows.append(row)
            continue
        artifact = build(BuildRequest(made.source, f"{made.kernel}.cu", machine.arch.name, made.kernel), settings)
        if isinstance(artifact, Artifact):
            rows.append(_with_resources(found.op, row, artifact.resources, machine, cost))
        else:
            rows.append(replace(row, warnings=(*row.warnings, f"It does not compile: {artifact.message}")))
    head = tuple(sorted(rows, key=lambda c: (c.registers_compiled is None or bool(c.spill_bytes), c.time_us)))
    rest = tuple(c for c in found.candidates if c not in shown)
    return replace(selected(found.op, head, machine, "cuda"), candidates=head + rest)


def _with_resources(op: Op, row: Candidate, given: Resources, machine: Machine, cost: CostParameters) -> Candidate:
    if isinstance(op, Gemm | Convolution):
        product = op.as_gemm() if isinstance(op, Convolution) else op
        timed = timed_space(product, machine, cost, [gemm_tile(row)], [given.registers])
        row = candidate(timed, 0, given.spill_bytes, compiled=True)
    else:  # the times of these ops know no registers
        now = fit(machine.arch, machine.device.sms, row.threads, given.registers, row.smem_bytes, row.blocks)
        row = replace(
            row,
            registers_compiled=given.registers,
            spill_bytes=given.spill_bytes,
            blocks_per_sm=now.blocks_per_sm,
            warps_per_sm=now.warps_per_sm,
            occupancy=now.share,
            limiter=now.limiter,
            waves=now.waves,
            tail=now.tail,
        )
    spilled = (f"{given.spill_bytes} B spill.",) if given.spill_bytes else ()
    return replace(row, warnings=(*row.warnings, *spilled))
