"""Barriers that count: no more threads pass than it says, and all have to say the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_executor import arrays, launch

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.executor import Program, RunResult
from tilewright.settings import Settings

SOURCE = """
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[t];
    BARRIER
    y[t] = s[(t + 128) % 256];
}
"""


def run(tmp_path: Path, barrier: str, schedule: str = "lockstep") -> RunResult:
    source = SOURCE.replace("BARRIER", barrier)
    built = build(BuildRequest(source, "k.cu", "sm_86", "k"), Settings.from_environment())
    assert isinstance(built, Artifact), built
    executor = EmulatorExecutor("sm_86", EmulatorOptions(schedule=schedule), "k.cu")  # type: ignore[arg-type]
    bound = launch(tmp_path, "k", 256, threads=256)
    return executor.run(Program(built.cubin, built.ptx, built.kernel, built.arch), bound, arrays(256))


def named(number: str, count: int) -> str:
    return f'asm volatile("bar.sync %0, {count};" :: "r"({number}) : "memory");'


@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_a_barrier_of_half_the_threads_orders_half_of_them(tmp_path: Path, schedule: str) -> None:
    """256 threads pass in two phases of 128: those of different phases have not met."""
    result = run(tmp_path, named("1", 128), schedule)
    assert {hazard.kind for hazard in result.hazards} & {"race_read_after_write", "race_write_after_read"}
    whole = run(tmp_path, named("1", 256), schedule)
    assert not whole.hazards
    assert (whole.arrays["y"] == np.roll(np.arange(256, dtype=np.float32), -128)).all()


def test_a_block_has_sixteen_barriers(tmp_path: Path) -> None:
    assert run(tmp_path, named("15 + n - 256", 256)).error is None
    result = run(tmp_path, named("16 + n - 256", 256))
    assert result.error is not None
    assert "barrier 16" in result.error
    assert [hazard.kind for hazard in result.hazards] == ["bad_barrier"]


def test_threads_must_agree_on_the_count(tmp_path: Path) -> None:
    both = f"if (t < 128) {{ {named('1', 256)} }} else {{ {named('1', 128)} }}"
    result = run(tmp_path, both)
    assert result.error is not None
    assert "is to count 128 and 256 threads" in result.error
