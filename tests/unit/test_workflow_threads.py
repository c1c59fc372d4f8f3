"""The thread count where no sidecar gives it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.settings import Settings
from tilewright.workflow import pipeline
from tilewright.workflow.threads import bound_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("text", "threads"),
    [("256", 256), ("NUM * W, 2", 128), ("(NUM * W)", 128), ("max(NUM, W), 1", 32), ("unknown", None), ("", None)],
)
def test_launch_bounds_are_evaluated(text: str, threads: int | None) -> None:
    assert bound_of(text, {"NUM": 4, "W": 32}) == threads


def test_without_any_thread_count_there_is_no_budget(tmp_path: Path) -> None:
    text = (EXAMPLES / "sgemm_float4.cu").read_text()
    assert "__launch_bounds__(THREADS)" in text
    kernel = tmp_path / "unbounded.cu"
    kernel.write_text(text.replace("__launch_bounds__(THREADS)", ""))
    settings = Settings(cache_dir=tmp_path / "c")
    receipt = pipeline(kernel, arch="sm_86", settings=settings, variants=("ldg",), run=False).receipt
    assert receipt.tile is not None
    assert (receipt.tile.threads, receipt.tile.BM) == (None, None)
    assert receipt.budget == ()
    assert receipt.decision is None
    assert any("threads" in note for note in receipt.notes)
    assert [v.status for v in receipt.variants] == ["built"]


def test_a_block_larger_than_its_launch_bounds_is_an_input_error(tmp_path: Path) -> None:
    for path in EXAMPLES.glob("sgemm_float4*"):
        shutil.copy(path, tmp_path)
    sidecar = tmp_path / "sgemm_float4.toml"
    sidecar.write_text(sidecar.read_text().replace("THREADS", "512"))
    with pytest.raises(TilewrightError, match="512"):
        pipeline(tmp_path / "sgemm_float4.cu", arch="sm_86", settings=Settings(cache_dir=tmp_path / "c"))
