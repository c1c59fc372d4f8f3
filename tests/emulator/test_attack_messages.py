"""Out-of-bounds messages name the array that was meant; sidecars that do not fit each other are bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tilewright.errors import EXIT_BAD_INPUT, TilewrightError

KERNEL = "__global__ void k(const float* x, float* y, int n) {{ int t = threadIdx.x; {body} }}\n"
SIDECAR = """
kernel = "k"
[launch]
grid = [1]
block = [64]
[sizes]
default = { N = 64 }
[[args]]
name = "x"
dtype = "float32"
shape = ["N"]
[[args]]
name = "y"
dtype = "float32"
shape = ["N"]
role = "out"
[[args]]
name = "n"
dtype = "int32"
value = "N"
"""


def write(folder: Path, name: str, body: str, sidecar: str = SIDECAR) -> Path:
    path = folder / name
    path.write_text(KERNEL.format(body=body))
    path.with_suffix(".toml").write_text(sidecar)
    return path


@pytest.mark.parametrize("array", ["x", "y"])
def test_before_an_array(tmp_path: Path, array: str) -> None:
    body = "y[t] = x[t - 1];" if array == "x" else "y[t - 1] = x[t]; y[t] = x[t];"
    found = tilewright.verify(write(tmp_path, "k.cu", body), seed=1).report.verify.hazards
    assert found[0].kind == ("out_of_bounds_read" if array == "x" else "out_of_bounds_write")
    assert f"bytes -4..-1 of {array} (256 bytes)" in found[0].message


def test_behind_a_shared_array(tmp_path: Path) -> None:
    body = "__shared__ volatile float tile[64]; tile[t] = x[t]; __syncthreads(); y[t] = tile[t + (n > 0)];"
    found = tilewright.verify(write(tmp_path, "k.cu", body), seed=1).report.verify.hazards
    assert "of tile (256 bytes)" in found[0].message


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('role = "out"', 'role = "inout"', "'y' is float32 inout, not float32 out"),
        ('shape = ["N"]\nrole', 'shape = ["N + 1"]\nrole', "'y' has 65 elements at the set 'default'"),
    ],
)
def test_a_candidate_of_other_arrays(tmp_path: Path, old: str, new: str, what: str) -> None:
    baseline = write(tmp_path, "base.cu", "y[t] = x[t];")
    candidate = write(tmp_path, "k.cu", "y[t] = x[t];", SIDECAR.replace(old, new))
    with pytest.raises(TilewrightError, match="baseline") as raised:
        tilewright.verify(candidate, against=baseline, seed=1)
    assert what in raised.value.message
    assert raised.value.exit_code == EXIT_BAD_INPUT
    assert tilewright.verify(write(tmp_path, "k.cu", "y[t] = x[t];"), against=baseline, seed=1).exit_code == 0
