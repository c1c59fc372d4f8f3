"""Whether two texts of one kernel are the same program: by their PTX, or by what they compute."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from product_sidecars import product_sidecar

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.bind import bind
from tilewright.launch.executor import Program
from tilewright.launch.inputs import make_inputs
from tilewright.launch.sidecar import load_sidecar
from tilewright.settings import Settings
from tilewright.source.device_view import device_view

ARCH = "sm_86"
# Of the kernels in front_samples.
SIDECAR = product_sidecar(
    "k",
    'grid = ["ceil_div(N, 16)", "ceil_div(M, 16)", 1]\nblock = [16, 16, 1]',
    "default = { M = 20, N = 37, K = 35 }",
    fill="normal(0, 1)",
)
_NAME = re.compile(r"%\w+|\$L\w+|_Z\w+")
_SKIPPED = (".loc", ".file", "{", "}")


def compiled(text: str, kernel: str, folder: Path) -> Artifact:
    """The kernel, with the headers that lie in the folder."""
    view = device_view(text, folder / "k.cu")
    request = BuildRequest(view.text, "k.cu", ARCH, kernel, view.headers, (), "c++17", ())
    out = build(request, Settings(cache_dir=folder / "cache"))
    assert isinstance(out, Artifact), (out, text)
    return out


def same_ptx(one: Artifact, two: Artifact) -> bool:
    """Instruction by instruction, registers and labels renamed in the order of their first use."""
    return _plain(one.ptx) == _plain(two.ptx)


def _plain(ptx: str) -> list[str]:
    names: dict[str, str] = {}
    lines = [line.split("//")[0].strip() for line in ptx.split(".section")[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(_SKIPPED)]
    return [_NAME.sub(lambda m: names.setdefault(m[0], f"n{len(names)}"), line) for line in kept]


def results(one: Artifact, folder: Path) -> np.ndarray:
    """The bits of C after a run on the emulator, with nothing wrong on the way."""
    sidecar = folder / "k.toml"
    sidecar.write_text(SIDECAR)
    launch = bind(load_sidecar(sidecar), "default", {"TILE": 16})
    arrays = {k: np.ascontiguousarray(v).reshape(-1) for k, v in make_inputs(launch, 1).items()}
    for buffer in launch.buffers:
        filled = np.full(buffer.storage_elements * buffer.dtype.item_bytes, 255, np.uint8)
        arrays.setdefault(buffer.name, filled.view(buffer.dtype.numpy()))
    executor = EmulatorExecutor(ARCH, EmulatorOptions(max_seconds=20.0), "k.cu")
    done, _ = executor.run_counted(Program(one.cubin, one.ptx, one.kernel, one.arch), launch, arrays)
    assert not done.error, done.error
    assert not done.hazards, done.hazards
    return np.asarray(launch.view("C", done.arrays)).view(np.uint8)
