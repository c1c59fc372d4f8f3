"""What the prediction has to know of every build: its K-loop as the pipes see it, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod

from tilewright.build.artifact import Artifact
from tilewright.launch.bind import LaunchChange, bind
from tilewright.plan.compiled import BASELINE, Built
from tilewright.receipt.evidence import Resources
from tilewright.receipt.record import variant_label
from tilewright.sass.proof import OverlapProof
from tilewright.sass.schedule import schedule_of
from tilewright.workflow.bench import Bench
from tilewright.workflow.running import early_label
from tilewright.workflow.study import StudiedVariant


def builds_of(
    bench: Bench, baseline: Resources, variants: Sequence[StudiedVariant], num_tiles: int | None
) -> dict[str, Built]:
    """By label, the baseline among them; those whose K-loop can be read.

    Args:
        num_tiles: of the baseline, at the default sizes.
    """
    per_tile = math_per_tile(bench.baseline, variants)
    math = num_tiles * per_tile if num_tiles is not None and per_tile else None
    jobs = [(BASELINE, bench.opened.baseline, LaunchChange(), baseline, "")]
    for v in variants:
        name = variant_label(v.name, v.stages)
        for label, each in ((name, v), (early_label(name), v.early)):
            if each is not None and each.artifact is not None:
                jobs.append((label, each.artifact, each.change, each.resources, v.side))
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda job: built(bench, job[1], job[2], job[3], math, job[4]), jobs)
        return {job[0]: each for job, each in zip(jobs, made, strict=True) if each is not None}


def math_per_tile(baseline: OverlapProof, variants: Sequence[StudiedVariant]) -> int:
    """Math of a warp in one of the baseline's tiles; where its own code could not be read, as in its variants.

    A tile is a trip of the source's K-loop here: all of what was counted as several (`Bench.math_for`).
    """
    if baseline.mma_per_tile:
        told = (v.proof.baseline_mma_per_tile or 0 for v in variants if not v.side)
        return max(baseline.mma_per_tile, *told, 0)
    return next((v.proof.mma_per_tile for v in variants if v.proof.mma_per_tile and not v.side), 0) or 0


def built(
    bench: Bench, artifact: Artifact, change: LaunchChange, used: Resources, math: float | None, side: str
) -> Built | None:
    """One build; None where its K-loop cannot be read, or its block is not known."""
    spec = bench.compiler.spec
    launch = bind(spec, "default", bench.constants, change) if spec is not None else None
    block = launch.block if launch is not None else (bench.threads, 1, 1)
    if block[0] is None:
        return None
    function = bench.compiler.function(artifact)
    boxes = tuple(rows_of(change))
    schedule = schedule_of(function, (block[0], block[1], block[2]), boxes) if function is not None else None
    if schedule is None:
        return None
    threads = block[0] * block[1] * block[2]
    return Built(
        schedule,
        used.registers or artifact.resources.registers,
        used.smem_bytes or 0,
        threads,
        prod(launch.grid) if launch is not None else None,
        warps_math(math, side, bench.threads or threads, threads) if math is not None else None,
    )


def warps_math(math: float, side: str, before: int, threads: int) -> float:
    """Math of a warp where the baseline's has ``math``.

    Half of the rows, twice the blocks: each has half of it. Fewer threads a block than before: each has more.
    """
    return (math / 2 if side == "BM" else math) * before / threads


def rows_of(change: LaunchChange) -> list[int]:
    """Rows of the boxes that tensor maps bring in."""
    return [prod(box.box[1:]) for box in change.tensor_maps]
