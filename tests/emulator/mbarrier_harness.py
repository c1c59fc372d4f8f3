"""Small kernels through the variants that fill their ring by bulk copies, held against themselves in the emulator."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mbarrier_kernels import KERNELS

from tilewright.build.artifact import Artifact
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.bind import LaunchChange
from tilewright.launch.executor import Program
from tilewright.launch.sidecar import parse_sidecar
from tilewright.rewrite import bulk, tma
from tilewright.rewrite.result import RewrittenSource
from tilewright.settings import Settings
from tilewright.verification.baseline import BaselineRecord, baseline_runs
from tilewright.verification.variant import verify
from tilewright.verification.verdict import Verification
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.reading import sidecar_for
from tilewright.workflow.understanding import understand

ARCH = "sm_90a"
STATIC_BYTES = 48 * 1024
EXAMPLES = Path(__file__).parents[2] / "examples"
REWRITE = {"bulk": bulk.rewrite, "tma": tma.rewrite}


@dataclass(frozen=True)
class Found:
    """What verification of one text found: the verdict, and the kinds of hazards."""

    verification: Verification

    @property
    def kinds(self) -> set[str]:
        return {h.kind for h in self.verification.hazards}

    @property
    def is_clean(self) -> bool:
        return self.verification.verdict == "passed" and self.verification.bit_identical and not self.kinds


@cache
def opened(name: str) -> Opened:
    """A kernel of ``mbarrier_kernels``, or an example."""
    if name in KERNELS:
        source, sidecar = KERNELS[name]
        path = Path(tempfile.gettempdir()) / f"{name}.cu"
        spec = parse_sidecar(sidecar, path.with_suffix(".toml"))
        raw = source.encode()
    else:
        path = EXAMPLES / f"{name}.cu"
        raw, spec = path.read_bytes(), sidecar_for(path, None, None)
    return open_file(raw, path, None, spec, ARCH, Settings.from_environment(), True)


@cache
def read(name: str) -> TiledKernel | Refusal:
    found = opened(name)
    return understand(found.kernel, found.block, found.shared_bytes)


def tiled(name: str) -> TiledKernel:
    kernel = read(name)
    assert isinstance(kernel, TiledKernel), kernel
    return kernel


@cache
def rewritten(name: str, variant: str, stages: int) -> RewrittenSource:
    written = REWRITE[variant](tiled(name), stages, STATIC_BYTES)
    assert isinstance(written, RewrittenSource), written
    return written


def refused(name: str, variant: str, stages: int = 2) -> Refusal:
    kernel = read(name)
    if isinstance(kernel, Refusal):
        return kernel
    written = REWRITE[variant](kernel, stages, STATIC_BYTES)
    assert isinstance(written, Refusal), written
    return written


def executor(name: str, seconds: float) -> EmulatorExecutor:
    return EmulatorExecutor(ARCH, EmulatorOptions(max_seconds=seconds), f"{name}.cu")


@cache
def _record(name: str, sizes: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]) -> BaselineRecord:
    found = opened(name)
    assert found.compiler.spec is not None
    spec = replace(found.compiler.spec, sizes={k: dict(v) for k, v in sizes})
    names = found.kernel.constants.names()
    return baseline_runs(_program(found.baseline), spec, names, executor(name, 60), 1)


def check(
    name: str, text: str, change: LaunchChange, sizes: Mapping[str, Mapping[str, int]], seconds: float = 20
) -> Found:
    """Build a text and hold it against its baseline at every size."""
    record = _record(name, tuple((k, tuple(v.items())) for k, v in sizes.items()))
    assert record.verification.verdict == "passed", record.verification
    built = opened(name).compiler.build(text)
    return Found(verify(record, _program(built), change, executor(name, seconds)))


def check_variant(name: str, variant: str, stages: int, sizes: Mapping[str, Mapping[str, int]]) -> Found:
    written = rewritten(name, variant, stages)
    return check(name, written.text, written.launch, sizes)


def _program(artifact: object) -> Program:
    assert isinstance(artifact, Artifact), artifact
    return Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)
