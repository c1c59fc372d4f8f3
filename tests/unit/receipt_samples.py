"""Receipts for tests: a laptop's (nothing ran), a GPU machine's, and a refusal."""

from __future__ import annotations

from dataclasses import replace

from tilewright.receipt.checklist import build_checklist
from tilewright.receipt.evidence import Hazard, Measurement, Proof, Resources, SizeCheck, Stall, Verification
from tilewright.receipt.record import (
    Attribution,
    Baseline,
    BudgetRow,
    Choice,
    Control,
    Decision,
    Kernel,
    Launch,
    Loop,
    Phase,
    Precondition,
    PredictedGain,
    Prediction,
    Proposal,
    Receipt,
    Refusal,
    Tile,
    Tool,
    Variant,
)

NO_RUN = Verification(reason="no GPU here")
OVERLAP = Proof(
    verdict="overlap",
    tiles_in_flight=1,
    mma_while_in_flight=16,
    barriers_between=1,
    mma_per_tile=16,
    baseline_mma_per_tile=16,
    stalls=(Stall("IMMA", 16, 1, 4),),
    excerpt="/*0a10*/ LDGSTS ...   <- tile t+1\n/*0b20*/ IMMA ...     (16 of these)\n/*0c30*/ DEPBAR.LE SB0, 0x0",
)
NO_OVERLAP = Proof(verdict="no_overlap", tiles_in_flight=0, mma_while_in_flight=0, mma_per_tile=16)
RESOURCES = Resources(registers=88, smem_bytes=8192, spill_bytes=0, stack_bytes=0)


def _variants() -> tuple[Variant, ...]:
    launch = Launch(grid=(64, 64, 1), block=(128, 1, 1), shared_bytes=0)
    made = [("ldg", 2), ("cp_async", 2), ("cp_async", 3), ("cp_async", 4)]
    variants = [
        Variant(
            name,
            stages,
            "built",
            source=f"// {name} {stages}\n",
            diff="--- a\n+++ b\n",
            launch=launch,
            resources=RESOURCES,
            verify=NO_RUN,
            proof=OVERLAP,
            measure=Measurement(reason="no GPU here"),
        )
        for name, stages in made
    ]
    needs = Refusal("needs_arch", "TMA needs sm_90 or later; this is sm_86.", hint="Use --arch sm_90a.")
    return (*variants, Variant("tma", 2, "refused", refusal=needs))


def laptop() -> Receipt:
    """Everything built and proven, nothing run."""
    receipt = Receipt(
        tool=Tool("0.1.0", "NVRTC 13.5", "nvdisasm 13.5"),
        kernel=Kernel("igemm_tiled.cu", "igemm_tiled", 57),
        arch="sm_86",
        arch_reason="no GPU and no --arch",
        baseline=Baseline(proof=NO_OVERLAP, verify=NO_RUN, resources=replace(RESOURCES, registers=64, smem_bytes=4096)),
        tile=Tile(64, 64, 32, threads=128, elements={"A": "int8", "B": "int8", "acc": "int32"}, math="wmma"),
        loop=Loop(
            88, 131, (Phase("load", 90, 109), Phase("sync", 110, 110), Phase("compute", 112, 128)), num_tiles=128
        ),
        preconditions=(Precondition("num_tiles >= 4", True, {"num_tiles": 128}),),
        budget=(
            BudgetRow(1, 4096, 8, 32, "registers", True, False, 11776),
            BudgetRow(2, 8192, 8, 32, "registers", True, False, 11776),
            BudgetRow(3, 12288, 7, 28, "shared", True, True, 11776),
            BudgetRow(8, 212288, 0, 0, "shared", False, True, 11776),
        ),
        decision=Decision(
            "pipeline",
            64.0,
            1.1,
            32,
            {"ldg": Prediction(1.2, 1.1, 1.3), "cp_async2": Prediction(1.7, 1.5, 1.9)},
            PredictedGain(1.5, 1.1, 1.03),
            ("ops_per_load 1.1 is below 5", "32 warps per SM"),
        ),
        proposals=(Proposal("ldg_single", 1, 4096, 8, "The next tile waits in 8 more registers a thread."),),
        variants=_variants(),
        assumptions=("no_alias: out buffers do not overlap inputs (sidecar)",),
        timings_s={"parse": 0.1, "total": 17.8},
        notes=("1-byte loads: widen them first.",),
    )
    return replace(receipt, checklist=build_checklist(receipt))


def with_gpu() -> Receipt:
    """The same on a GPU machine: verified, timed, chosen."""
    base = laptop()
    passed = Verification(
        "passed",
        "gpu",
        ("default", "ragged", "small"),
        True,
        0.0,
        checks=(SizeCheck("small", "passed", True, 0.0, 0.5),),
    )
    time = Measurement(
        "default", 1000.0, 990.0, 4.0, 50, 137000.0, None, 0.07, 1.8, "H200", "580", "2026-11-30", "faster"
    )
    gain = Attribution(1.55, 1.15, 1.01, 1.0, 32, 32)
    variants = tuple(
        v
        if v.status == "refused"
        else replace(v, status="accepted", verify=passed, measure=time, attribution=gain, controls=(Control("widen"),))
        for v in base.variants
    )
    receipt = replace(
        base,
        arch="sm_90a",
        arch_reason="the GPU's",
        baseline=replace(base.baseline, verify=passed, measure=replace(time, median_us=1800.0, speedup=1.0)),
        variants=variants,
        choice=Choice("cp_async", 2, "1.80x and the fewest bytes"),
    )
    return replace(receipt, checklist=build_checklist(receipt))


def refused() -> Receipt:
    """A kernel that already pipelines, with a race for good measure."""
    base = laptop()
    return replace(
        base,
        refusal=Refusal("already_pipelined", "The loop copies asynchronously.", 92, "Use `tilewright prove`."),
        baseline=replace(
            base.baseline, hazards=(Hazard("read_after_write", 112, "no barrier between store and load"),)
        ),
        variants=(),
        decision=None,
        checklist=(),
    )
