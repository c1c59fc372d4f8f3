"""The emulator behind the Executor protocol: what it refuses, what bounds it, what a partial run tells."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.executor import Program
from tilewright.launch.sidecar import load_sidecar
from tilewright.settings import Settings

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
extern "C" __global__ void spin(const float* x, float* y, int n) {
    while (y[0] != 1.0e30f) { if (x[0] == 1.0e30f) y[threadIdx.x] = n; __threadfence(); }
}
extern "C" __global__ void __launch_bounds__(64) bounded(const float* x, float* y, int n) { y[threadIdx.x] = x[0]; }
extern "C" __global__ void shared(const float* x, float* y, int n) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void counts(const float* x, float* y, int n) {
    for (int i = 0; y[0] != 1.0e30f; ++i) { y[threadIdx.x] = i + x[0]; __threadfence(); }
}
"""
SIDECAR = """
kernel = "{kernel}"
[launch]
grid = ["ceil_div(N, {threads})", 1, 1]
block = [{threads}, 1, 1]
shared_bytes = {shared}
[sizes]
default = {{ N = {n} }}
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
dtype = "{scalar}"
value = "N"
"""


def program(kernel: str) -> Program:
    built = build(BuildRequest(SOURCE, "k.cu", "sm_86", kernel), Settings.from_environment())
    assert isinstance(built, Artifact), built
    return Program(built.cubin, built.ptx, built.kernel, built.arch)


def launch(
    tmp_path: Path, kernel: str, n: int, threads: int = 64, shared: int = 0, scalar: str = "int32"
) -> BoundLaunch:
    path = tmp_path / "k.toml"
    path.write_text(SIDECAR.format(kernel=kernel, n=n, threads=threads, shared=shared, scalar=scalar))
    return bind(load_sidecar(path), "default", {})


def arrays(n: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(n, dtype=np.float32), "y": np.full(n, np.nan, np.float32)}


def executor(**options: object) -> EmulatorExecutor:
    return EmulatorExecutor("sm_86", EmulatorOptions(**options), "k.cu")  # type: ignore[arg-type]


def test_runs_and_leaves_the_given_arrays_alone(tmp_path: Path) -> None:
    given = arrays(1000)
    result = executor().run(program("scale"), launch(tmp_path, "scale", 1000), given)
    assert result.error is None
    assert not result.hazards
    assert (result.arrays["y"] == 2 * given["x"]).all()
    assert np.isnan(given["y"]).all()


def test_a_kernel_that_never_ends_is_stopped_in_time(tmp_path: Path) -> None:
    start = time.monotonic()
    result = executor(max_seconds=0.5).run(program("counts"), launch(tmp_path, "counts", 64), arrays(64))
    assert time.monotonic() - start < 10
    assert result.error is not None
    assert "had not ended" in result.error
    assert "line 17" in result.error
    assert not result.arrays


def test_one_that_only_looks_for_ever_is_told_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    result = executor().run(program("spin"), launch(tmp_path, "spin", 64), arrays(64))
    assert time.monotonic() - start < 10
    assert (result.error, result.is_unsupported) == ("the kernel hangs", False)
    assert [(hazard.kind, hazard.line) for hazard in result.hazards if hazard.kind == "deadlock"] == [("deadlock", 7)]


@pytest.mark.parametrize(
    ("kernel", "change", "needed"),
    [
        ("bounded", {"threads": 128}, "bounded to 64"),
        ("shared", {"shared": 200 * 1024}, "may have 101,376"),
        ("scale", {"scalar": "int64"}, "parameters of [8, 8, 4] bytes, the sidecar gives [8, 8, 8]"),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(
    tmp_path: Path, kernel: str, change: dict[str, object], needed: str
) -> None:
    given = launch(tmp_path, kernel, 256, **change)  # type: ignore[arg-type]
    result = executor().run(program(kernel), given, arrays(256))
    assert result.error is not None
    assert needed in result.error
    assert executor().run(program(kernel), launch(tmp_path, kernel, 64, shared=256), arrays(64)).error is None


def test_too_little_dynamic_shared_memory_is_out_of_bounds(tmp_path: Path) -> None:
    found = executor().run(program("shared"), launch(tmp_path, "shared", 64, shared=128), arrays(64)).hazards
    assert {(h.kind, h.line) for h in found} >= {("out_of_bounds_write", 12), ("out_of_bounds_read", 14)}


def test_damaged_ptx_is_an_error_not_an_exception(tmp_path: Path) -> None:
    good = program("scale")
    for ptx in ("", "nonsense", good.ptx[: len(good.ptx) // 2], good.ptx.replace("ld.global", "ld.globule")):
        result = executor().run(replace(good, ptx=ptx), launch(tmp_path, "scale", 64), arrays(64))
        assert result.error, ptx[:40]


def test_an_unknown_opcode_says_so_and_is_no_verdict_on_the_kernel(tmp_path: Path) -> None:
    good = program("scale")
    strange = replace(good, ptx=good.ptx.replace("ret;", "frobnicate.f32 %f1, %f1;\n\tret;"))
    result = executor().run(strange, launch(tmp_path, "scale", 64), arrays(64))
    assert result.is_unsupported
    assert result.error is not None
    assert "frobnicate.f32" in result.error


def test_a_partial_run_tells_what_was_written(tmp_path: Path) -> None:
    n = 64 * 100
    result = executor().run(program("scale"), launch(tmp_path, "scale", n), arrays(n), part="corners")
    assert result.touched is not None
    blocks = result.touched["y"].reshape(100, 64)
    assert list(np.flatnonzero(blocks.all(axis=1))) == [0, 50, 99]
    assert blocks.any(axis=1).sum() == 3
    assert result.ran.startswith("3 of 100 blocks")
    assert "x" not in result.touched


def test_attempts_take_other_orders(tmp_path: Path) -> None:
    """Threads of one warp after the other, or all together: a race that lock-step hides shows in one of them."""
    racy = SOURCE.replace("__syncthreads();", "")
    built = build(BuildRequest(racy, "k.cu", "sm_86", "shared"), Settings.from_environment())
    assert isinstance(built, Artifact)
    broken = Program(built.cubin, built.ptx, built.kernel, built.arch)
    given, bound = arrays(128), launch(tmp_path, "shared", 128, threads=128, shared=512)
    results = [executor(checks=False).run(broken, bound, given, attempt=k).arrays["y"] for k in (0, 1)]
    assert not np.array_equal(results[0], results[1], equal_nan=True)
    found = executor().run(broken, bound, given).hazards
    assert {h.kind for h in found} == {"race_read_after_write"}
    assert all("__syncthreads" in h.message for h in found)
