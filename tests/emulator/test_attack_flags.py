"""Several warps that set one flag do not race; recursion is refused, and says nothing about the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_REFUSED

SIDECAR = """
kernel = "k"
[launch]
grid = ["N / 256"]
block = [256]
[sizes]
default = { N = 1024 }
small = { N = 512 }
[[args]]
name = "x"
dtype = "float32"
shape = ["N"]
[[args]]
name = "y"
dtype = "float32"
shape = ["N"]
role = "out"
"""


def verify(folder: Path, body: str, before: str = "") -> tilewright.VerifyOutcome:
    path = folder / "k.cu"
    head = "__global__ void k(const float* x, float* y) { int t = threadIdx.x, i = blockIdx.x * 256 + t; "
    path.write_text(before + head + body + " }\n")
    path.with_suffix(".toml").write_text(SIDECAR)
    return tilewright.verify(path, seed=7)


FLAG = (
    "__shared__ %s f; if (t == 0) f = %s; __syncthreads(); if (x[i] > 0.f) f = %s; __syncthreads(); y[i] = %s + x[i];"
)


@pytest.mark.parametrize(
    ("kind", "zero", "value", "other", "read"),
    [
        ("int", "0", "1", "1 + t / 32", "f"),
        ("unsigned char", "0", "1", "1 + t / 32", "f"),
        ("float", "0.f", "1.f", "1.f + t / 32", "f"),
        ("float2", "float2{0, 0}", "float2{1, 2}", "float2{1, (float)(t / 32)}", "f.y"),
    ],
)
def test_a_flag_that_many_warps_set(tmp_path: Path, kind: str, zero: str, value: str, other: str, read: str) -> None:
    assert verify(tmp_path, FLAG % (kind, zero, value, read)).exit_code == EXIT_OK
    wrong = verify(tmp_path, FLAG % (kind, zero, other, read))
    assert wrong.exit_code == EXIT_CHECK_FAILED
    assert "race_write_after_write" in {hazard.kind for hazard in wrong.report.verify.hazards}


def test_recursion_is_not_run(tmp_path: Path) -> None:
    function = "__device__ __noinline__ float f(int t) { return t ? t * f(t - 1) + f(t - 2 < 0 ? 0 : t - 2) : 1; }\n"
    outcome = verify(tmp_path, "y[i] = f(t & 3) + x[i];", function)
    assert outcome.exit_code == EXIT_REFUSED
    assert "recursive" in outcome.report.verify.reason
