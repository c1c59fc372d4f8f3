"""Runs small kernels and their variants in the emulator: values against the baseline, hazards of both."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tilewright.build.artifact import Artifact
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions, Schedule
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.bind import LaunchChange, bind
from tilewright.launch.executor import Program
from tilewright.launch.inputs import make_inputs
from tilewright.launch.sidecar import load_sidecar
from tilewright.rewrite import bulk, cp_async, ldg
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.settings import Settings
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.understanding import understand

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # its small kernels
from trap_kernels import SIDECAR

ARCH = "sm_86"
LIMIT = 48 * 1024
Sizes = Mapping[str, int]
EARLY = Remedy(early_loads=True)
VARIANTS = {
    "ldg": lambda k: ldg.rewrite(k, False, LIMIT),
    "ldg_early": lambda k: ldg.rewrite(k, False, LIMIT, EARLY),
    "ldg_single": lambda k: ldg.rewrite(k, True, LIMIT),
    "cp_async3": lambda k: cp_async.rewrite(k, 3, LIMIT),
    "bulk2": lambda k: bulk.rewrite(k, 2, LIMIT),
}
SINGLE = ("ldg_single",)
ANYWHERE = ("ldg", "ldg_early", "ldg_single", "cp_async3")


@dataclass(frozen=True)
class Outcome:
    """Bytes of every buffer behind a run, and the kinds of hazards that were seen."""

    arrays: tuple[bytes, ...]
    hazards: frozenset[str]


@dataclass(frozen=True, eq=False)
class Bench:
    """One kernel file with its sidecar."""

    opened: Opened
    found: TiledKernel | Refusal
    schedules: tuple[Schedule, ...] = ("warp_serial",)
    arch: str = ARCH

    @property
    def kernel(self) -> TiledKernel:
        assert isinstance(self.found, TiledKernel), self.found
        return self.found

    def written(self, variant: str) -> RewrittenSource:
        out = VARIANTS[variant](self.kernel)
        assert isinstance(out, RewrittenSource), (variant, out)
        return out

    def refused(self, variant: str) -> Refusal:
        out = VARIANTS[variant](self.kernel)
        assert isinstance(out, Refusal), variant
        return out

    def run(self, text: str | None, sizes: Sizes, change: LaunchChange | None = None) -> Outcome:
        """``text``: another form of the file; None for the file as it is."""
        artifact = self.opened.baseline if text is None else self.opened.compiler.build(text)
        assert isinstance(artifact, Artifact), artifact
        spec = self.opened.compiler.spec
        assert spec is not None
        program = Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)
        launch = bind(spec, sizes, self.opened.kernel.constants.names(), change)
        hazards: set[str] = set()
        arrays: tuple[bytes, ...] = ()
        for schedule in self.schedules:
            given = {k: np.ascontiguousarray(v).reshape(-1) for k, v in make_inputs(launch, 1).items()}
            for buffer in launch.buffers:
                if buffer.name not in given:
                    count = buffer.storage_elements * buffer.dtype.item_bytes
                    given[buffer.name] = np.full(count, 255, np.uint8).view(buffer.dtype.numpy())
            executor = EmulatorExecutor(self.arch, EmulatorOptions(schedule=schedule, max_seconds=60.0), "trap.cu")
            result, _ = executor.run_counted(program, launch, given)
            assert not result.error, result.error
            hazards |= {h.kind for h in result.hazards}
            arrays = (*arrays, *(result.arrays[n].tobytes() for n in sorted(result.arrays)))
        return Outcome(arrays, frozenset(hazards))

    def same(self, variant: str, sizes: Sizes) -> None:
        """The variant gives the bits of the baseline, and neither shows a hazard."""
        baseline = self.baseline(tuple(sorted(sizes.items())))
        assert not baseline.hazards
        written = self.written(variant)
        assert self.run(written.text, sizes, written.launch) == baseline, variant

    def differs(self, text: str, sizes: Sizes, change: LaunchChange | None = None) -> frozenset[str]:
        """What gives a broken text away: kinds of hazards, and ``values``."""
        baseline = self.baseline(tuple(sorted(sizes.items())))
        outcome = self.run(text, sizes, change)
        return outcome.hazards | ({"values"} if outcome.arrays != baseline.arrays else set())

    @cache  # noqa: B019  a bench lives as long as its test module
    def baseline(self, sizes: tuple[tuple[str, int], ...]) -> Outcome:
        return self.run(None, dict(sizes))


def bench(folder: Path, text: str, sidecar: str = SIDECAR, arch: str = ARCH) -> Bench:
    path = folder / "trap.cu"
    path.write_text(text)
    (folder / "trap.toml").write_text(sidecar)
    spec = load_sidecar(folder / "trap.toml")
    opened = open_file(path.read_bytes(), path, None, spec, arch, Settings(cache_dir=folder / "cache"), True)
    return Bench(opened, understand(opened.kernel, opened.block, opened.shared_bytes, opened.no_alias), arch=arch)
