"""What the rewriter makes, with one thing broken at a time, on a real card: verification has to see it.

Races that a card happens to win are not here: values cannot show them every time. They are the emulator's to find.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.gpu.executor import GpuExecutor
from tilewright.launch.bind import LaunchChange
from tilewright.launch.executor import Program
from tilewright.launch.sidecar import load_sidecar
from tilewright.settings import Settings
from tilewright.verification.baseline import BaselineRecord, baseline_runs
from tilewright.verification.reference import load_reference
from tilewright.verification.variant import trip_count_sets, verify

EXAMPLES = Path(__file__).parents[2] / "examples"
# What the sidecars' expressions use of the sources.
CONSTANTS = {
    "igemm_wmma": {"BM": 64, "BN": 64, "BK": 32, "NUM_THREADS": 128},
    "hgemm_mma": {"BM": 128, "BN": 128, "BK": 32, "NUM_THREADS": 256},
    "sgemm_float4": {"BM": 128, "BN": 128, "BK": 8, "THREADS": 256},
    "hgemm_wmma": {"BM": 64, "BN": 64, "BK": 32, "BLOCK_SIZE": 128},
}
Mutate = Callable[[str], str]


def swap(old: str, new: str) -> Mutate:
    return lambda text: re.sub(old, new, text, count=1, flags=re.MULTILINE)


RING: dict[str, Mutate] = {
    "wait removed": swap(r"^.*__pipeline_wait_prior\(STAGES - 2\).*\n", ""),
    "wait one group short": swap(r"__pipeline_wait_prior\(STAGES - 2\)", "__pipeline_wait_prior(STAGES - 1)"),
    "barrier removed": swap(r"(__pipeline_wait_prior\(STAGES - 2\).*\n).*__syncthreads\(\);.*\n", r"\1"),
    "wrong read stage": swap(r"int read_stage = 0;", "int read_stage = 1;"),
    "wrong write stage": swap(r"int write_stage = STAGES - 1;", "int write_stage = 0;"),
    "wrong tile": swap(r"(_ahead = \w+ \+) ", r"\1 BK + "),
    "last tile skipped": swap(
        r"(for \(int (\w+) = 0; \2 < )(\w+)(;[^\n]*\n[^\n]*wait_prior)", r"\1(\3 > BK ? \3 - BK : \3)\4"
    ),
    "prologue commit dropped": swap(r"(copy_tile\([^\n]*stage\);\n)\s*__pipeline_commit\(\);\n", r"\1"),
}
REGISTERS: dict[str, Mutate] = {
    "barrier removed": swap(r"^.*__syncthreads\(\);  // the next tile.*\n", ""),
    "stage not toggled": swap(r"^.*stage \^= 1;\n", ""),
    "store to the same stage": swap(r"stage \^ 1\)", "stage)"),
    "prologue store dropped": swap(r"\n *store_tile\([^\n]*0\);\n", "\n"),
}
CASES = [("cp_async3", m) for m in RING] + [("ldg", m) for m in REGISTERS]


class Bench:
    """One example on the card: its baseline's record, and verification of any source against it."""

    def __init__(self, name: str, card: GpuInfo, executor: GpuExecutor) -> None:
        from tilewright.workflow import pipeline

        path = EXAMPLES / f"{name}.cu"
        settings = Settings.from_environment()
        receipt = pipeline(path, arch=card.arch, settings=settings, run=False).receipt
        self.path, self.arch, self.executor, self.settings = path, receipt.arch, executor, settings
        self.variants = {v.label: v for v in receipt.variants if v.source}
        spec = load_sidecar(path.with_suffix(".toml"))
        small = spec.sizes["small"]
        self.spec = replace(spec, sizes={**spec.sizes, "default": small})
        constants = CONSTANTS[name]
        extra = trip_count_sets(small, "K", constants["BK"], 3)
        assert spec.reference is not None
        baseline = self.program(path.read_text())
        self.record: BaselineRecord = baseline_runs(
            baseline, self.spec, constants, executor, 7, load_reference(spec.reference), extra
        )

    def program(self, text: str) -> Program:
        from tilewright.build.artifact import Artifact, BuildRequest
        from tilewright.build.build import build
        from tilewright.source.device_view import device_view

        view = device_view(text, self.path)
        request = BuildRequest(view.text, self.path.name, self.arch, self.spec.kernel, headers=view.headers)
        artifact = build(request, self.settings, use_cache=False)
        if not isinstance(artifact, Artifact):
            raise TilewrightError("test/does_not_compile", f"{artifact.file}:{artifact.line}: {artifact.message}")
        return Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)

    def verdict(self, label: str, text: str) -> str:
        launch = self.variants[label].launch
        change = LaunchChange(shared_bytes=launch.shared_bytes if launch is not None else None)
        return verify(self.record, self.program(text), change, self.executor).verdict


@pytest.fixture(scope="module", params=tuple(CONSTANTS))
def bench(request: pytest.FixtureRequest, card: GpuInfo, executor: GpuExecutor) -> Bench:
    try:
        return Bench(request.param, card, executor)
    except (TilewrightError, ImportError) as error:
        # A card without the parser, or with CUDA headers of another version than its NVRTC.
        pytest.skip(f"the baseline or its variants cannot be made here: {error}")


@pytest.mark.gpu
def test_every_variant_passes_unbroken(bench: Bench) -> None:
    assert bench.record.verification.verdict == "passed", bench.record.verification.reason
    for label, variant in bench.variants.items():
        assert bench.verdict(label, variant.source) == "passed", label


@pytest.mark.gpu
@pytest.mark.parametrize(("label", "mutant"), CASES)
def test_a_broken_one_is_caught(bench: Bench, label: str, mutant: str) -> None:
    whole = bench.variants[label].source
    broken = (RING if label == "cp_async3" else REGISTERS)[mutant](whole)
    assert broken != whole
    assert bench.verdict(label, broken) == "failed"
