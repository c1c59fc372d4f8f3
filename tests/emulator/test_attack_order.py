"""Results that depend on the order of threads or blocks, though the values came out alike: each beside a right twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.emulator.checks.block_order import BlockOrder, can_order_blocks

SIDECAR = """
kernel = "k"
[launch]
grid = ["ceil_div(N, 256)", 1, 1]
block = [256, 1, 1]
[sizes]
default = {{ N = 1024 }}
small = {{ N = 512 }}
[[args]]
name = "x"
dtype = "{dtype}"
shape = ["N"]
[[args]]
name = "y"
dtype = "{dtype}"
shape = ["N"]
role = "{role}"
[[args]]
name = "n"
dtype = "int32"
value = "N"
"""


def verify(folder: Path, body: str, role: str = "out", dtype: str = "float32") -> tilewright.VerifyOutcome:
    c = {"float32": "float", "int32": "int"}[dtype]
    path = folder / "k.cu"
    head = f"__device__ unsigned ticket;\n__global__ void k(const {c}* x, {c}* y, int n) {{\n"
    path.write_text(head + "int t = threadIdx.x, b = blockIdx.x * 256, i = b + t;\n" + body + "\n}\n")
    path.with_suffix(".toml").write_text(SIDECAR.format(dtype=dtype, role=role))
    return tilewright.verify(path, seed=7)


def kinds(outcome: tilewright.VerifyOutcome) -> set[str]:
    return {hazard.kind for hazard in outcome.report.verify.hazards}


def test_blocks_write_one_element(tmp_path: Path) -> None:
    wrong = verify(tmp_path, "y[i] = x[i]; if (t == 0) y[0] = (float)blockIdx.x;")
    assert kinds(wrong) == {"overlapping_blocks"}
    assert wrong.exit_code == 1
    assert verify(tmp_path, "y[i] = x[i]; if (t == 0) y[b] = (float)blockIdx.x;").exit_code == 0
    # The same value from all of them is a flag, and no race.
    assert verify(tmp_path, "if (i) y[i] = x[i]; if (t == 0) y[0] = 1.f;").exit_code == 0


def test_the_tile_of_a_block_is_one_too_long(tmp_path: Path) -> None:
    wrong = verify(tmp_path, "y[i] = x[i]; if (t == 255 && i + 1 < n) y[i + 1] = 7.f;")
    assert kinds(wrong) == {"overlapping_blocks"}


def test_blocks_read_what_others_write(tmp_path: Path) -> None:
    wrong = verify(tmp_path, "y[i] = y[(i + 256) % n] + x[i];", role="inout")
    assert kinds(wrong) == {"race_between_blocks"}
    assert "another block" in wrong.report.verify.hazards[0].message
    assert verify(tmp_path, "y[i] = y[i] + x[i];", role="inout").exit_code == 0


def test_threads_of_a_block_read_what_others_write(tmp_path: Path) -> None:
    wrong = verify(tmp_path, "y[i] = y[b + (t + 32) % 256] + x[i];", role="inout")
    assert wrong.exit_code == 1
    assert "change from run to run" in wrong.report.verify.reason
    right = "float v = y[b + (t + 32) % 256]; __syncthreads(); y[i] = v + x[i];"
    assert verify(tmp_path, right, role="inout").exit_code == 0


def test_the_order_of_tickets(tmp_path: Path) -> None:
    wrong = verify(tmp_path, "y[atomicAdd(&ticket, 1) % n] = x[i];")
    assert wrong.exit_code == 1
    assert "change from run to run" in wrong.report.verify.reason


def test_sums_in_another_order_are_no_race(tmp_path: Path) -> None:
    outcome = verify(tmp_path, "atomicAdd(y + (i & 3), x[i]);", role="inout")
    assert outcome.exit_code == 0
    assert "not deterministic" in outcome.report.verify.tolerance


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_local_memory_that_nothing_wrote(tmp_path: Path, dtype: str) -> None:
    c = {"float32": "float", "int32": "int"}[dtype]
    body = f"volatile {c} a[8]; for (int j = 0; j < %s; ++j) a[j] = j; y[i] = a[(i + n) & 7] + x[i];"
    assert verify(tmp_path, body % "(n & 7)", dtype=dtype).exit_code == 1
    assert verify(tmp_path, body % "8", dtype=dtype).exit_code == 0


def test_messages_name_the_block_of_the_grid(tmp_path: Path) -> None:
    outcome = verify(tmp_path, "if (blockIdx.x == gridDim.x - 1 && t == 0) y[n] = 1.f; y[i] = x[i];")
    messages = [hazard.message for hazard in outcome.report.verify.hazards]
    assert "thread 0 of block 1:" in messages[0]  # small has two blocks
    assert "thread 0 of block 3:" in messages[1]  # of default's four, three run


def test_what_orders_blocks() -> None:
    assert not can_order_blocks(["ld.global.f32", "bar.sync", "redux.sync.add.s32", "fence.proxy.async"])
    for name in (
        "atom.global.add.u32",
        "red.global.add.f32",
        "membar.gl",
        "ld.volatile.global.f32",
        "fence.acq_rel.gpu",
    ):
        assert can_order_blocks([name])


def test_a_third_reader_is_not_forgotten() -> None:
    order = BlockOrder(64, 4)
    zero = np.zeros(1, np.int64)
    for block in (0, 1):
        assert order.read(zero + block, zero, 4) is None
    old, new = np.zeros((1, 4), np.uint8), np.ones((1, 4), np.uint8)
    found = order.write(zero + 1, zero, old, new)
    assert found is not None
    assert not found[0].any()
    assert found[1].all()
    assert order.write(zero + 1, zero + 4, old, new) is None
