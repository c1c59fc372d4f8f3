"""Timing on a real card: a kernel that waits twice as long takes twice the time, and one is as fast as itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_kernels import Compile

from tilewright.gpu.executor import GpuExecutor
from tilewright.launch.bind import LaunchChange
from tilewright.launch.sidecar import parse_sidecar
from tilewright.measure.measure import Plan, Work, measure
from tilewright.verification.baseline import baseline_runs
from tilewright.verification.variant import verify
from tilewright.verification.verdict import Passed

pytestmark = pytest.mark.gpu

SPIN = """extern "C" __global__ void spin(int* out) {
    long long begin = clock64();
    while (clock64() - begin < CYCLES) {}
    if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x;
}"""

SIDECAR = """
kernel = "spin"
[launch]
grid = "N"
block = 32
[sizes]
default = { N = 64 }
[[args]]
name = "out"
dtype = "int32"
shape = ["N"]
role = "out"
"""


def test_speedups(executor: GpuExecutor, compile_kernel: Compile) -> None:
    spec = parse_sidecar(SIDECAR, Path("spin.toml"))
    slow, fast = (compile_kernel(SPIN.replace("CYCLES", cycles), "spin") for cycles in ("200000", "100000"))
    record = baseline_runs(slow, spec, {}, executor, 1)
    change = LaunchChange()
    contenders = {
        "fast": Passed(fast, change, verify(record, fast, change, executor)),
        "same": Passed(slow, change, verify(record, slow, change, executor)),
    }
    baseline = Passed(slow, change, record.verification)
    results = measure(record, baseline, contenders, executor, Work(ops=1e6), plan=Plan(budget_s=5))
    assert [one.verdict for one in results.values()] == ["same", "faster", "same"], results
    assert results["fast"].speedup == pytest.approx(2.0, rel=0.1)
    one = results["baseline"]
    assert one.median_us is not None
    assert 80 < one.median_us < 1000  # 200,000 cycles at 0.2 to 2.5 GHz
    assert one.samples >= 30
    assert one.card == executor.info.name
    assert one.gflops == pytest.approx(1e6 / one.median_us / 1e3)
