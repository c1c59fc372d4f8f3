"""What a pass rests on: bounds that follow the scale of the results, and plain words where there is no reference."""

from __future__ import annotations

from pathlib import Path

import tilewright
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_OK

SIDECAR = """
kernel = "k"
[launch]
grid = ["ceil_div(N, 64)"]
block = [64]
[sizes]
default = { N = 65536 }
small = { N = 4096 }
[[args]]
name = "x"
dtype = "float32"
shape = ["N"]
fill = "uniform(1, 2)"
[[args]]
name = "y"
dtype = "float32"
shape = ["N"]
role = "out"
"""
REFERENCE = '\n[reference]\nfile = "k_reference.py"\n'
SMALL = "__global__ void k(const float* x, float* y) { int i = blockIdx.x * 64 + threadIdx.x; y[i] = x[i] * FACTOR; }\n"


def write(folder: Path, factor: str, reference: str = REFERENCE) -> Path:
    folder.mkdir()
    path = folder / "k.cu"
    path.write_text(SMALL.replace("FACTOR", factor))
    path.with_suffix(".toml").write_text(SIDECAR + reference)
    (folder / "k_reference.py").write_text("def reference(x, **_):\n    return {'y': x.astype('float64') * 2e-5}\n")
    return path


def test_results_far_below_one_are_not_near_zeros(tmp_path: Path) -> None:
    """A thousandth of one would let a kernel pass that writes nothing but zeros where 2e-5 is needed."""
    assert tilewright.verify(write(tmp_path / "good", "2e-5f"), seed=1).exit_code == EXIT_OK
    zeros = tilewright.verify(write(tmp_path / "zeros", "0.0f"), seed=1)
    assert zeros.exit_code == EXIT_CHECK_FAILED
    assert "miss the reference" in zeros.report.verify.reason


def test_no_reference_is_said(tmp_path: Path) -> None:
    with_it = tilewright.verify(write(tmp_path / "with", "2e-5f"), seed=1).report
    without = tilewright.verify(write(tmp_path / "without", "2e-5f", ""), seed=1).report
    assert not any("compared with itself only" in note for note in with_it.notes)
    assert any("compared with itself only" in note for note in without.notes)


def test_a_candidate_is_told_what_ran_of_a_large_set(tmp_path: Path) -> None:
    path = write(tmp_path / "both", "2e-5f")
    report = tilewright.verify(str(path), against=str(path), seed=1).report  # type: ignore[arg-type]
    checks = {check.size: check for check in report.verify.checks}
    assert checks["default"].verdict == "passed"
    assert checks["default"].message.startswith("3 of 1,024 blocks ran")
    assert checks["small"].message == ""
