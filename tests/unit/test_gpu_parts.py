"""What of the gpu room needs no GPU: which code runs where, red zones, parameters, faults."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from launch_samples import CONSTANTS, gemm_spec

from tilewright.gpu.buffers import zone_byte, zone_hazards
from tilewright.gpu.device import arch_mismatch
from tilewright.gpu.driver import DeviceError, fault_of
from tilewright.gpu.executor import kernel_arguments
from tilewright.launch.bind import bind


@pytest.mark.parametrize(
    ("program", "device", "runs"),
    [
        ("sm_90a", "sm_90", True),
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_86", "sm_90", False),
        ("sm_120a", "sm_120", True),
        ("sm_120a", "sm_121", False),
        ("sm_120f", "sm_121", True),
        ("sm_100f", "sm_120", False),
        ("compute_90", "sm_90", False),
    ],
)
def test_what_runs_where(program: str, device: str, runs: bool) -> None:
    why = arch_mismatch(program, device)
    assert (why == "") is runs
    if not runs:
        assert program in why
        assert device in why


def test_zones() -> None:
    zones = np.full((2, 4096), 0xFE, np.uint8)
    assert zone_hazards("c", zones, 0xFE) == []
    zones[0, -12:-8] = 0
    zones[1, 40] = 1
    before, after = zone_hazards("c", zones, 0xFE)
    assert before.kind == after.kind == "out_of_bounds_write"
    assert before.message == "4 bytes were written before the start of 'c', the nearest 9 bytes before it."
    assert after.message == "1 bytes were written after the end of 'c', the nearest 40 bytes after it."
    assert len({zone_byte(index) for index in range(16)}) == 16


def test_parameters_are_raw_bits() -> None:
    changes = [('dtype = "float32"\nvalue', 'dtype = "bfloat16"\nvalue'), ('value = "M"', 'value = "0 - 1"')]
    alias = ('role = "out"', 'role = "out"\nalias_of = "b"\noffset = 3')
    spec = gemm_spec(
        *changes, alias, ('dtype = "float32"', 'dtype = "float16"'), ('shape = ["M", "N"]', 'shape = ["N"]')
    )
    launch = bind(spec, "ragged", CONSTANTS)
    address = {"a": 2**47, "b": 4096}
    values = kernel_arguments(launch, address.__getitem__)
    assert [value.dtype.name for value in values] == ["uint64"] * 3 + ["uint32"] * 3 + ["uint16"]
    assert [int(value) for value in values] == [2**47, 4096, 4096 + 6, 2**32 - 1, 9, 5, 0x3F00]


def test_faults() -> None:
    fault = fault_of(RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: While executing a kernel,\n  the device encountered …"))
    assert fault.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert fault.is_sticky
    assert str(fault) == "CUDA_ERROR_ILLEGAL_ADDRESS: While executing a kernel, the device encountered …"
    assert not DeviceError("CUDA_ERROR_INVALID_VALUE").is_sticky
    assert not DeviceError("CUDA_ERROR_OUT_OF_MEMORY").is_sticky


def test_asking_for_a_gpu_is_cheap_to_import_and_never_raises() -> None:
    code = (
        "import sys, tilewright.gpu.device as d, tilewright.gpu.executor\n"
        "assert 'cuda' not in sys.modules and 'numpy' not in sys.modules\n"
        "d.ctypes.CDLL = lambda name: (_ for _ in ()).throw(OSError('none'))\n"
        "assert d.find_gpu() is None\n"
        "d.ctypes.CDLL = lambda name: None\n"
        "d._describe = lambda index: 1 / 0\n"
        "assert d.find_gpu() is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
