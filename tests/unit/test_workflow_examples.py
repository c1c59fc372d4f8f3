"""The four examples through the main job, for every target: built, proven, no spills, the baseline's math.

This is the acceptance of the static half: the baselines do not overlap, every variant does, and each variant's twin
whose wait stands before the compute phase does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.receipt.record import Receipt, Variant
from tilewright.settings import Settings
from tilewright.workflow import pipeline

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("igemm_wmma", "hgemm_mma", "sgemm_float4", "hgemm_wmma")
# Every example on the two targets of the acceptance; each of the other two on one of the two that differ most.
CASES = [(n, a) for n in NAMES for a in ("sm_86", "sm_90a")] + [("igemm_wmma", "sm_120a"), ("sgemm_float4", "sm_80")]
MATH = {
    "igemm_wmma": ("IMMA", 16),
    "hgemm_mma": ("HMMA", 32),
    "sgemm_float4": ("FFMA", 512),
    "hgemm_wmma": ("HMMA", 16),
}
IN_FLIGHT = {"ldg": 1, "ldg_single": 1, "cp_async2": 1, "cp_async3": 2, "cp_async4": 3}

NAMED = ("ldg", "ldg_single", "cp_async")

Run = Callable[[str, str], Receipt]


@pytest.fixture(scope="module")
def receipt_of(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = Settings(cache_dir=tmp_path_factory.mktemp("cache"))

    def run(name: str, arch: str) -> Receipt:
        return pipeline(EXAMPLES / f"{name}.cu", arch=arch, variants=NAMED, settings=settings, run=False).receipt

    return run


def made(receipt: Receipt) -> dict[str, Variant]:
    return {v.label: v for v in receipt.variants if v.status == "built"}


@pytest.mark.parametrize(("name", "arch"), CASES)
def test_every_variant_is_built_and_proven(receipt_of: Run, name: str, arch: str) -> None:
    receipt = receipt_of(name, arch)
    kind, math = MATH[name]
    assert receipt.refusal is None
    assert receipt.choice is None
    base = receipt.baseline.proof
    assert (base.verdict, base.tiles_in_flight, base.math_kind, base.mma_per_tile) == ("no_overlap", 0, kind, math)
    variants = made(receipt)
    assert set(variants) == set(IN_FLIGHT)
    for label, variant in variants.items():
        assert variant.proof.verdict == "overlap", label
        assert variant.proof.tiles_in_flight == IN_FLIGHT[label], label
        assert variant.proof.mma_per_tile == variant.proof.baseline_mma_per_tile == math, label
        assert (variant.resources.spill_bytes, variant.resources.stack_bytes) == (0, 0), label
        assert variant.verify.verdict == "not_run"
        assert variant.verify.bit_identical is None


@pytest.mark.parametrize(("name", "arch"), CASES[:8])
def test_the_controls_do_not_overlap(receipt_of: Run, name: str, arch: str) -> None:
    """The mutants of the proof: the same source with its wait moved, and the baseline with only its loads widened."""
    for label, variant in made(receipt_of(name, arch)).items():
        controls = {c.name: c.proof for c in variant.controls}
        assert ("waited" in controls) == (label != "ldg_single")
        assert ("widened" in controls) == (name in ("igemm_wmma", "hgemm_wmma"))
        for control in controls.values():
            assert (control.verdict, control.tiles_in_flight, control.mma_while_in_flight) == ("no_overlap", 0, 0), (
                label
            )


def test_moves_on_the_examples(tmp_path: Path) -> None:
    """What is refused says why: 16-byte copies are wide, 128 rows of 8 are covered once, registers are needed."""
    settings = Settings(cache_dir=tmp_path)
    names = ("widen", "retile", "cap_registers")
    receipts = [
        pipeline(EXAMPLES / f"{n}.cu", arch="sm_86", variants=names, settings=settings, run=False).receipt
        for n in ("igemm_wmma", "sgemm_float4")
    ]
    bytewise, vectors = ({v.label: v for v in receipt.variants} for receipt in receipts)
    assert bytewise["widen"].status == bytewise["retile"].status == "built"
    assert bytewise["widen"].controls == ()
    assert bytewise["retile"].proof.mma_per_tile == 8
    assert bytewise["retile"].notes == ("BK = 16 instead of 32 (line 20)",)
    # The ring that costs a block per SM with the whole tile, at half of it.
    assert (bytewise["retile3"].proof.verdict, bytewise["retile3"].proof.tiles_in_flight) == ("overlap", 2)
    refusals = {label: v.refusal for label, v in vectors.items()}
    assert refusals["widen"] is not None
    assert "16 bytes each already" in refusals["widen"].message
    assert refusals["retile"] is not None
    assert "at BK = 4 the threads copy something else than a tile of 128 x 128 x 4" in refusals["retile"].message
    assert "at BM = 64 the threads copy a tile of 64 x 64 x 8, not 64 x 128 x 8" in refusals["retile"].message
    assert refusals["cap_registers"] is not None
    assert refusals["cap_registers"].code == "budget_exceeded"


def test_only_a_ring_above_48_kib_changes_the_launch(receipt_of: Run) -> None:
    variants = made(receipt_of("hgemm_mma", "sm_86"))
    dynamic = {label: v.launch.shared_bytes for label, v in variants.items() if v.launch is not None}
    assert dynamic == {"ldg": 0, "ldg_single": 0, "cp_async2": 0, "cp_async3": 56832, "cp_async4": 75776}
    assert variants["cp_async3"].resources.smem_bytes == 56832
    assert "56832" in variants["cp_async3"].source


def test_the_budget_and_its_cliff(receipt_of: Run) -> None:
    receipt = receipt_of("hgemm_mma", "sm_86")
    rows = {r.stages: r for r in receipt.budget}
    assert rows[1].smem_bytes == 18944
    assert rows[2].smem_bytes == 37888
    assert not rows[2].crosses_cliff
    assert rows[3].crosses_cliff  # 56,832 B: above 49 KiB the second block is lost on sm_86
    assert (rows[2].blocks_per_sm, rows[3].blocks_per_sm) == (2, 1)
    assert not rows[8].fits


def test_stages_that_cannot_fit_are_refused(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path)
    outcome = pipeline(
        EXAMPLES / "hgemm_mma.cu", arch="sm_86", settings=settings, run=False, stages=(2, 6), variants=("cp_async",)
    )
    by = {v.stages: v for v in outcome.receipt.variants if v.name == "cp_async"}
    assert by[2].status == "built"
    assert by[6].status == "refused"
    assert by[6].refusal is not None
    assert by[6].refusal.code == "budget_exceeded"
    assert outcome.exit_code == 0


def test_num_tiles_and_trip_counts_come_from_the_sidecar(receipt_of: Run) -> None:
    loop = receipt_of("igemm_wmma", "sm_86").loop
    assert loop is not None
    assert loop.num_tiles == 128
    assert [p.kind for p in loop.phases] == ["load", "sync", "compute", "sync"]
