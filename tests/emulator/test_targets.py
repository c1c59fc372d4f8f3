"""Every target: a small kernel is built, its overlap proven in that target's machine code, and verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from move_samples import SIDECAR, edited

from tilewright.arch.arch import known_archs, load_arch
from tilewright.settings import Settings
from tilewright.workflow import pipeline

TARGETS = known_archs()


def test_all_that_are_promised_are_there() -> None:
    promised = "sm_75 sm_80 sm_86 sm_87 sm_89 sm_90a sm_100a sm_103a sm_110a sm_120a sm_121a"
    assert set(promised.split()) <= set(TARGETS)


# 32 x 32 tiles, 2 x 2 results a thread: little to run.
LITTLE = edited(
    ("BM = 64", "BM = 32"), ("BN = 64", "BN = 32"), ("[4]", "[2]"), ("j < 4", "j < 2"), ("col * 4", "col * 2")
)
SIZES = SIDECAR.replace("M = 64, N = 128, K = 48", "M = 32, N = 32, K = 48").replace("M = 64, N = 64", "M = 32, N = 32")


@pytest.mark.parametrize("arch", TARGETS)
def test_a_kernel_is_pipelined_for_it(arch: str, tmp_path: Path) -> None:
    path = tmp_path / "product.cu"
    path.write_text(LITTLE)
    path.with_suffix(".toml").write_text(SIZES)
    settings = Settings(cache_dir=tmp_path / "cache")
    names = ("cp_async",) if load_arch(arch).has_cp_async else ("cp_async", "ldg_single")
    outcome = pipeline(path, arch=arch, variants=names, stages=(3,), settings=settings, use_cache=False)
    made = {v.label: v for v in outcome.receipt.variants}
    assert outcome.exit_code == 0
    assert outcome.receipt.arch == arch
    assert outcome.receipt.baseline.verify.executor == "emulator"
    label, in_flight = ("cp_async3", 2) if load_arch(arch).has_cp_async else ("ldg_single", 1)
    one = made[label]
    assert one.status == "accepted", (one.refusal, one.verify.reason)
    assert one.verify.bit_identical
    assert (one.proof.verdict, one.proof.tiles_in_flight) == ("overlap", in_flight)
    assert one.proof.mma_per_tile == one.proof.baseline_mma_per_tile == 64
    if label != "cp_async3":
        refusal = made["cp_async3"].refusal
        assert refusal is not None
        assert refusal.code == "needs_arch"
