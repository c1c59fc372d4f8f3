"""Verification on a real card: the good variant passes, each broken one is caught, a fault is survived."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels import CONSTANTS, DOUBLE, STAGED_BYTES, Compile, gemm, spec

from tilewright.gpu.device import GpuInfo
from tilewright.gpu.executor import GpuExecutor
from tilewright.launch.bind import LaunchChange, bind
from tilewright.launch.executor import Program
from tilewright.verification.baseline import BaselineRecord, baseline_runs
from tilewright.verification.reference import Reference
from tilewright.verification.variant import trip_count_sets, verify

pytestmark = pytest.mark.gpu

EXTRA_SETS = trip_count_sets({"M": 40, "N": 24, "K": 0}, "K", 16, 2)
STAGED = LaunchChange(shared_bytes=STAGED_BYTES)


def _reference(a: np.ndarray, b: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    return {"c": alpha * (a.astype(np.float64) @ b.astype(np.float64))}


REFERENCE = Reference(Path("gemm_reference.py"), _reference, frozenset({"a", "b", "alpha"}))


@pytest.fixture(scope="module")
def record(executor: GpuExecutor, compile_kernel: Compile) -> BaselineRecord:
    program = compile_kernel(gemm(), "gemm")
    return baseline_runs(program, spec(), CONSTANTS, executor, 2, REFERENCE, EXTRA_SETS)


def test_the_card_describes_itself(card: GpuInfo) -> None:
    assert card.name
    assert card.arch.startswith("sm_")
    assert card.sms > 0
    assert card.l2_bytes > 1 << 18
    assert card.smem_per_block_bytes >= 48 * 1024
    assert card.driver[0].isdigit() or card.driver.startswith("CUDA")


def test_baseline_and_double_buffer(record: BaselineRecord, executor: GpuExecutor, compile_kernel: Compile) -> None:
    assert record.verification.verdict == "passed", record.verification
    assert record.is_deterministic
    assert record.left_out == ()
    assert record.verification.max_abs_error is not None
    assert 0 < record.verification.max_abs_error < 1e-3
    verdict = verify(record, compile_kernel(DOUBLE, "gemm"), STAGED, executor)
    assert (verdict.verdict, verdict.bit_identical) == ("passed", True), verdict
    assert set(verdict.sizes) == {"default", "ragged", "empty", *EXTRA_SETS}


BROKEN = {
    "skips the last tile": (gemm(limit="K - TILE"), "differ from the baseline"),
    "leaves a row": (gemm(store="if (row != M - 1) c[row * N + col] = alpha * sum"), "was not written"),
    "writes past the end": (gemm(extra="if (row == 0 && col == 0) c[M * N + 5] = 1.0f;"), "20 bytes after it"),
    "writes before the start": (gemm(extra="if (row == 0 && col == 0) c[-1] = 1.0f;"), "before the start of 'c'"),
    "changes an input": (
        gemm(extra="if (row == 0 && col == 0 && K > 0) b[0] += 1.0f;"),
        "of the input 'b' were changed",
    ),
    "one bit": (
        gemm(extra="if (row == 1 && col == 1) c[N + 1] = __int_as_float(__float_as_int(alpha * sum) ^ 1);"),
        "1 of",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_variants(fault: str, record: BaselineRecord, executor: GpuExecutor, compile_kernel: Compile) -> None:
    source, words = BROKEN[fault]
    verdict = verify(record, compile_kernel(source, "gemm"), None, executor)
    assert verdict.verdict == "failed"
    assert words in " ".join([verdict.reason, *(hazard.message for hazard in verdict.hazards)])


def test_float_atomics_get_a_tolerance(executor: GpuExecutor, compile_kernel: Compile) -> None:
    """Some dozen blocks add into each of the sums, in an order that changes."""
    store = "atomicAdd(&c[row % 8 * N + col], alpha * sum)"
    changes = spec(('role = "out"', 'role = "inout"\nfill = "zeros()"'))
    atomics = baseline_runs(compile_kernel(gemm(store=store), "gemm"), changes, CONSTANTS, executor, 3)
    assert atomics.verification.verdict == "passed"
    if atomics.is_deterministic:
        pytest.skip("the additions happened to come in the same order twice")
    verdict = verify(atomics, compile_kernel(gemm(store=store), "gemm"), None, executor)
    assert (verdict.verdict, verdict.bit_identical) == ("passed", None)


def test_an_output_that_is_read_first_is_found(executor: GpuExecutor, compile_kernel: Compile) -> None:
    program = compile_kernel(gemm(store="c[row * N + col] += alpha * sum + 1.0f"), "gemm")
    found = baseline_runs(program, spec(), CONSTANTS, executor, 4)
    assert found.verification.verdict == "failed"
    assert "its role is inout" in found.verification.reason


def test_launches_that_cannot_be_made(record: BaselineRecord, executor: GpuExecutor, compile_kernel: Compile) -> None:
    program = compile_kernel(gemm(), "gemm")
    huge = verify(record, program, LaunchChange(shared_bytes=1 << 20), executor)
    assert "1,048,576 dynamic bytes" in huge.reason
    other = Program(program.cubin, program.ptx, program.kernel, "sm_75")
    assert "built for sm_75" in verify(record, other, None, executor).reason
    nameless = Program(program.cubin, program.ptx, "no_such_kernel", program.arch)
    assert "NOT_FOUND" in verify(record, nameless, None, executor).reason
    rubbish = Program(b"no cubin at all", "", "gemm", program.arch)
    assert verify(record, rubbish, None, executor).verdict == "failed"
    fewer = spec(('[[args]]\nname = "alpha"\ndtype = "float32"\nvalue = 0.75\n', ""))
    assert "parameters" in baseline_runs(program, fewer, CONSTANTS, executor, 5).verification.reason
    assert verify(record, program, None, executor).verdict == "passed"  # none of it has hurt the context


def test_scalars_arrive_bit_for_bit(executor: GpuExecutor, compile_kernel: Compile) -> None:
    source = """
    extern "C" __global__ void scalars(unsigned* out, unsigned char a, unsigned short h, double d, long long l) {
        out[0] = a; out[1] = h; out[2] = __double2hiint(d); out[3] = (unsigned)(l >> 32); out[4] = (unsigned)l; }"""
    from tilewright.launch.sidecar import parse_sidecar

    rows = [("a", "int8", "0 - 2"), ("h", "bfloat16", "1.5"), ("d", "float64", "0.1"), ("l", "int64", "0 - 3")]
    text = 'kernel = "scalars"\n[launch]\ngrid = 1\nblock = 1\n[[args]]\nname = "out"\ndtype = "uint32"\nshape = [5]\n'
    text += 'role = "out"\n'
    text += "".join(f'[[args]]\nname = "{name}"\ndtype = "{dtype}"\nvalue = "{value}"\n' for name, dtype, value in rows)
    launch = bind(parse_sidecar(text, Path("scalars.toml")), "default", {})
    result = executor.run(compile_kernel(source, "scalars"), launch, {"out": np.zeros(5, np.uint32)})
    assert result.error is None
    high = np.float64(0.1).view(np.uint64) >> np.uint64(32)
    assert result.arrays["out"].tolist() == [254, 0x3FC0, int(high), 2**32 - 1, 2**32 - 3]


# What ends the context must run in a process of its own.
_SCRIPT = """
import os, sys
sys.path[:0] = {paths!r}
import pickle
from gpu_kernels import CONSTANTS, spec
from tilewright.gpu import driver
from tilewright.gpu.executor import GpuExecutor
from tilewright.verification.baseline import baseline_runs
driver.synchronize.__defaults__ = (3.0,)
good, bad = pickle.loads(open({programs!r}, "rb").read())
executor = GpuExecutor()
print(baseline_runs(bad, spec(), CONSTANTS, executor, 1).verification.reason)
print(baseline_runs(good, spec(), CONSTANTS, executor, 1).verification.reason, flush=True)
os._exit(0)  # an orderly exit would wait for a kernel that never ends
"""


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ("if (row == 0 && col == 0) *(volatile float*)16 = 1.0f;", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("if (row == 0 && col == 0) while (*(volatile float*)c != 12345.0f) {}", "TIMED_OUT"),
    ],
)
def test_a_fault_is_reported_and_the_next_run_says_why_it_cannot(
    extra: str, name: str, compile_kernel: Compile, tmp_path: Path
) -> None:
    import pickle

    programs = tmp_path / "programs"
    programs.write_bytes(pickle.dumps([compile_kernel(gemm(), "gemm"), compile_kernel(gemm(extra=extra), "gemm")]))
    script = _SCRIPT.format(paths=[str(Path(__file__).parent), *sys.path], programs=str(programs))
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert name in lines[0]
    assert f"context is gone after an earlier fault ({name})" in lines[1]
