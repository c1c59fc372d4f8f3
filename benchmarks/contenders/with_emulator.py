"""Tilewright's emulator on one of the examples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import product

from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.bind import bind
from tilewright.launch.executor import Program
from tilewright.launch.inputs import make_inputs, poisoned_outputs
from tilewright.launch.spec import LaunchSpec
from tilewright.settings import Settings
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.reading import sidecar_for

ARCH = "sm_86"
POISON = 0xFF
EXAMPLES = Path(__file__).parents[2] / "examples"
MODES = {
    "values": EmulatorOptions(checks=False, schedule="lockstep"),
    "checks": EmulatorOptions(checks=True, schedule="lockstep"),
    "checks_warp_serial": EmulatorOptions(checks=True, schedule="warp_serial"),
}


def opened(example: str) -> tuple[Opened, LaunchSpec]:
    path = EXAMPLES / f"{example}.cu"
    spec = sidecar_for(path, None, None)
    assert spec is not None
    return open_file(path.read_bytes(), path, None, spec, ARCH, Settings.from_environment(), True), spec


def prepare(example: str, size: int, mode: str) -> tuple[Callable[[], Any], Callable[[Any], str]]:
    """One launch at M = N = K = size, and what is wrong with its outcome (an empty text: nothing)."""
    kernel, spec = opened(example)
    launch = bind(spec, {"M": size, "N": size, "K": size}, kernel.kernel.constants.names())
    arrays = {**poisoned_outputs(launch, POISON), **make_inputs(launch, 1)}
    is_product = example == "igemm_wmma"
    if is_product:
        arrays["matrix_a"], arrays["matrix_b"] = (m.reshape(-1) for m in product.operands(size))
    built = kernel.baseline
    program = Program(built.cubin, built.ptx, built.kernel, built.arch)
    executor = EmulatorExecutor(ARCH, MODES[mode], str(EXAMPLES / f"{example}.cu"))

    def fault(result: Any) -> str:
        if result.error or result.hazards:
            return result.error or str(result.hazards[0])
        if is_product and not product.is_exact(result.arrays["matrix_c"], size):
            return "the product is wrong"
        return "" if all(np.isfinite(a).all() for a in result.arrays.values()) else "an element was not written"

    return lambda: executor.run(program, launch, arrays), fault


def versions() -> dict[str, str]:
    return {"numpy": np.__version__}


if __name__ == "__main__":
    # Compile what is named into the cache, so that no timed process has had the compiler in its memory.
    for name in sys.argv[1:]:
        opened(name)
