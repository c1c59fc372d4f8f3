"""Options that cannot be meant, files that are not there, and blocks that wait for blocks that do not run."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tilewright.errors import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_OK, TilewrightError

SIDECAR = """
kernel = "k"
[launch]
grid = ["N / 32"]
block = [32]
[sizes]
default = { N = 512 }
small = { N = 128 }
[[args]]
name = "x"
dtype = "float32"
shape = ["N"]
[[args]]
name = "y"
dtype = "float32"
shape = [1]
role = "inout"
"""
IN_TURN = """__device__ unsigned turn;
__global__ void k(const float* x, float* y) {
    if (threadIdx.x == 0) {
        while (atomicAdd(&turn, 0) != blockIdx.x);
        __threadfence();
        ((volatile float*)y)[0] += x[32 * blockIdx.x];
        __threadfence();
        atomicAdd(&turn, 1);
    }
}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "k.cu"
    path.write_text(text)
    path.with_suffix(".toml").write_text(SIDECAR)
    return path


def test_blocks_in_turn(tmp_path: Path) -> None:
    outcome = tilewright.verify(write(tmp_path, IN_TURN), seed=1, max_seconds=2.0)
    assert outcome.exit_code == EXIT_OK
    assert outcome.report.verify.sizes == ("small",)
    assert any("5 of 16 blocks ran" in note or "3 of 16 blocks ran" in note for note in outcome.report.notes)


def test_a_turn_that_never_comes_fails(tmp_path: Path) -> None:
    text = IN_TURN.replace("!= blockIdx.x", "!= blockIdx.x + 1")
    assert tilewright.verify(write(tmp_path, text), seed=1, max_seconds=2.0).exit_code == 1


@pytest.mark.parametrize("options", [{"max_seconds": 0.0}, {"shared_bytes": -4}, {"shared_bytes": 1024}])
def test_options_that_cannot_be_meant(tmp_path: Path, options: dict[str, float]) -> None:
    with pytest.raises(TilewrightError) as raised:
        tilewright.verify(write(tmp_path, IN_TURN), seed=1, **options)  # type: ignore[arg-type]
    assert raised.value.exit_code == EXIT_BAD_INPUT


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError) as raised:
        tilewright.verify(tmp_path / "none.cu")
    assert raised.value.exit_code == EXIT_BAD_INPUT
    assert raised.value.code != "verify/no_sidecar"


RACY = """__global__ void k(const float* x, float* y) {
    __shared__ float s[32];
    s[threadIdx.x] = x[32 * blockIdx.x + threadIdx.x];
    MEET
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = y[0] + s[31];
}
"""


def test_a_baseline_with_a_race_is_a_failed_check(tmp_path: Path) -> None:
    """Not a refusal: who skips on exit code 4 must not take it for fine."""
    good, bad = (tmp_path / "good", tmp_path / "bad")
    for folder, meet in ((good, "__syncwarp();"), (bad, "")):
        folder.mkdir()
        write(folder, RACY.replace("MEET", meet))
    outcome = tilewright.verify(good / "k.cu", against=bad / "k.cu", seed=1)
    assert outcome.exit_code == EXIT_CHECK_FAILED
    assert outcome.report.verify.verdict == "not_run"
    assert outcome.report.baseline is not None
    assert outcome.report.baseline.hazards
    assert tilewright.verify(good / "k.cu", against=good / "k.cu", seed=1).exit_code == EXIT_OK
