"""A kernel that races by itself is refused by the main job, with the line: nothing could be held against it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tilewright.settings import Settings
from tilewright.workflow import PipelineOutcome, pipeline

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = "    const float scale = scale_a * scale_b;\n"
SHARED = """    __shared__ float last[NUM_THREADS];
    last[threadIdx.x] = scale_a;
    MEET
    const float scale = last[(threadIdx.x + 32) % NUM_THREADS] * scale_b;
"""


def run(folder: Path, meet: str) -> PipelineOutcome:
    folder.mkdir()
    for path in EXAMPLES.glob("igemm_wmma*"):
        shutil.copy(path, folder)
    kernel = folder / "igemm_wmma.cu"
    text = kernel.read_text()
    assert text.count(PLAIN) == 1
    kernel.write_text(text.replace(PLAIN, SHARED.replace("MEET", meet)))
    sidecar = kernel.with_suffix(".toml")
    lines = [x for x in sidecar.read_text().splitlines() if not x.startswith(("default", "small"))]
    sidecar.write_text("\n".join(lines).replace("ragged  =", "default ="))
    settings = Settings(cache_dir=folder / "cache")
    return pipeline(
        kernel, arch="sm_86", settings=settings, variants=("ldg", "cp_async"), stages=(2,), out=folder / "out"
    )


def test_a_race_of_the_baseline_is_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path / "racy", "")
    receipt = outcome.receipt
    assert outcome.exit_code == 1
    assert receipt.refusal is not None
    assert receipt.refusal.code == "baseline_race"
    assert receipt.refusal.line == 111
    assert "__syncthreads" in receipt.refusal.message
    assert receipt.baseline.hazards
    assert {v.status for v in receipt.variants} == {"refused"}
    assert not list((tmp_path / "racy" / "out").glob("*.cu"))


def test_its_twin_with_a_barrier_is_rewritten(tmp_path: Path) -> None:
    outcome = run(tmp_path / "mended", "__syncthreads();")
    assert outcome.exit_code == 0
    assert outcome.receipt.refusal is None
    assert {v.status for v in outcome.receipt.variants if v.name in ("ldg", "cp_async")} == {"accepted"}


def test_what_failed_is_looked_at_anew(tmp_path: Path) -> None:
    """A failure may be the machine's (a run that took too long), so only verdicts that passed are kept."""
    run(tmp_path / "racy", "")
    run(tmp_path / "mended", "__syncthreads();")
    kept = {name: list((tmp_path / name / "cache" / "emulated").rglob("*")) for name in ("racy", "mended")}
    assert not kept["racy"]
    assert kept["mended"]
