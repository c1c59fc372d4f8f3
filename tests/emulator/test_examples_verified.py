"""Every example with every variant through the main job, on a machine without a GPU: verified, not merely built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.settings import Settings
from tilewright.workflow import pipeline

EXAMPLES = Path(__file__).parents[2] / "examples"
STEP = {"igemm_wmma": 32, "hgemm_mma": 32, "sgemm_float4": 8, "hgemm_wmma": 32}
# Rings of every depth for the example that is quickest to emulate, one of three stages for the others.
STAGES = {name: (2, 3, 4) if name == "igemm_wmma" else (3,) for name in STEP}
# All moves on the quickest; the slowest by far does without what the others, and the ladder's SGEMM, have shown.
VARIANTS = {
    "igemm_wmma": ("ldg", "ldg_single", "cp_async", "widen"),
    "hgemm_mma": ("ldg", "cp_async", "widen"),
    "hgemm_wmma": ("ldg_single", "cp_async", "widen"),
    "sgemm_float4": ("cp_async",),
}


@pytest.mark.parametrize("name", STEP)
def test_every_variant_has_the_bits_of_its_baseline_and_no_hazard(name: str, tmp_path: Path) -> None:
    outcome = pipeline(
        EXAMPLES / f"{name}.cu",
        arch="sm_86",
        variants=VARIANTS[name],
        stages=STAGES[name],
        settings=Settings(cache_dir=tmp_path),
        out=tmp_path / "out",
    )
    receipt = outcome.receipt
    trips = {f"K={n * STEP[name]}" for n in range(max(STAGES[name]) + 2)}  # 0, 1, S-1, S, S+1 of every ring
    assert outcome.exit_code == 0
    assert receipt.baseline.verify.verdict == "passed"
    assert receipt.baseline.verify.executor == "emulator"
    assert not receipt.baseline.hazards
    made = {v.label: v for v in receipt.variants if v.status != "refused"}
    asked = {
        label for label in VARIANTS[name] if label.startswith("ldg") or (label == "widen" and name.endswith("_wmma"))
    }
    labels = asked | {f"cp_async{n}" for n in STAGES[name]}
    assert set(made) == labels
    for label, variant in made.items():
        assert variant.status == "accepted", (label, variant.verify.reason)
        assert variant.verify.executor == "emulator"
        assert variant.verify.bit_identical, label
        assert not variant.verify.hazards, label
        assert set(variant.verify.sizes) == trips | {"ragged", "small", "default"}
        assert variant.verify.races_at == variant.verify.sizes
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {f"{name}.{label}.cu" for label in labels} <= names
    assert not any("unverified" in n for n in names)
    assert receipt.choice is None  # nothing was timed
