"""What `tilewright verify` counts of the examples, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.bind import bind
from tilewright.launch.executor import Program
from tilewright.launch.inputs import make_inputs, poisoned_outputs
from tilewright.receipt.drawing import Pen
from tilewright.receipt.verify_report import Counted
from tilewright.receipt.verify_text import _counted
from tilewright.settings import Settings
from tilewright.verification.baseline import baseline_runs
from tilewright.workflow.counting import count
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.reading import sidecar_for

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def opened(name: str) -> Opened:
    path = EXAMPLES / f"{name}.cu"
    return open_file(
        path.read_bytes(), path, None, sidecar_for(path, None, None), "sm_86", Settings.from_environment(), True
    )


def counted_example(name: str, extra: dict[str, dict[str, int]], sizes: dict[str, int]) -> Counted:
    made = opened(name)
    spec = sidecar_for(EXAMPLES / f"{name}.cu", None, None)
    assert spec is not None
    spec = replace(spec, sizes={"default": sizes, "small": sizes})
    built_ = made.baseline
    program = Program(built_.cubin, built_.ptx, built_.kernel, built_.arch)
    runner = EmulatorExecutor("sm_86", EmulatorOptions(checks=False, schedule="lockstep"), f"{name}.cu")
    kept = baseline_runs(program, spec, made.kernel.constants.names(), runner, 1, None, extra)
    found = count(program, kept, runner, reduction="K", extra_sets=extra)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "kind", "bm", "bn", "bk", "item"),
    [
        ("igemm_wmma", "tensor_s8", 64, 64, 32, 1),
        ("hgemm_wmma", "tensor_f16", 64, 64, 32, 2),
        ("hgemm_mma", "tensor_f16", 128, 128, 32, 2),
        ("sgemm_float4", "fp32", 128, 128, 8, 4),
    ],
)
def test_examples(name: str, kind: str, bm: int, bn: int, bk: int, item: int) -> None:
    m, n, k = 2 * bm, 2 * bn, 4 * bk
    extra = {"K=1": {"M": m, "N": n, "K": bk}, "K=2": {"M": m, "N": n, "K": 2 * bk}}
    found = counted_example(name, extra, {"M": m, "N": n, "K": k})
    assert found.blocks == 4
    # sgemm scales and adds at the end: alpha * sum + beta * c.
    epilogue = 3 * m * n if name == "sgemm_float4" else 0
    assert found.flops[kind] == 2 * m * n * k + epilogue
    assert found.global_bytes_read == item * (bm + bn) * k * 4 + (4 * m * n if name == "sgemm_float4" else 0)
    tile = found.per_tile
    assert tile is not None
    assert tile.flops == {kind: 2 * bm * bn * bk}
    assert (tile.global_bytes_read, tile.global_bytes_written) == (item * (bm + bn) * bk, 0)
    assert tile.sectors == tile.ideal_sectors == item * (bm + bn) * bk / 32
    text = "\n".join(_counted(found, Pen(100, False)))
    assert "per tile" in text
    assert f"{2 * bm * bn * bk:,} {kind}" in text


def test_a_twin_without_its_padding_has_conflicts() -> None:
    """hgemm_mma pads its rows against conflicts of ldmatrix."""
    source = (EXAMPLES / "hgemm_mma.cu").read_text()
    assert source.count("PAD = 8") == 1
    spec = sidecar_for(EXAMPLES / "hgemm_mma.cu", None, None)
    assert spec is not None
    conflicts = {}
    for pad in (8, 0):
        path = EXAMPLES / "hgemm_mma.cu"
        text = source.replace("PAD = 8", f"PAD = {pad}").encode()
        made = open_file(text, path, None, spec, "sm_86", Settings.from_environment(), True)
        launch = bind(spec, {"M": 128, "N": 128, "K": 32}, made.kernel.constants.names())
        arrays = {**make_inputs(launch, 1), **poisoned_outputs(launch, 0xFF)}
        program = Program(made.baseline.cubin, made.baseline.ptx, made.baseline.kernel, made.baseline.arch)
        executor = EmulatorExecutor("sm_86", EmulatorOptions(checks=False, counters=True), "hgemm_mma.cu")
        done = executor.run_counted(program, launch, arrays)[1]
        assert done is not None
        assert done.counters is not None
        lines = [traffic for traffic in done.counters.lines.values() if traffic.requests == 0 and traffic.wavefronts]
        conflicts[pad] = sum(x.wavefronts for x in lines) / sum(x.ideal_wavefronts for x in lines)
    assert conflicts[8] < 1.3 < conflicts[0]
