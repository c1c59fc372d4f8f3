"""Kernels as the planning room sees them; figures read from SASS of sm_90a."""

from __future__ import annotations

from tilewright.arch.arch import Arch, load_arch
from tilewright.plan.budget import Budget, budget
from tilewright.plan.facts import CopyFacts, PlanFacts

SM_90 = load_arch("sm_90a")


def igemm(load_bytes: int = 1, widened_bytes: int | None = 16, async_bytes: int | None = 16) -> PlanFacts:
    """INT8 WMMA 64x64x32, 128 threads, byte-wise guarded copies: examples/igemm_wmma.cu."""
    copy = CopyFacts(2048, load_bytes, widened_bytes, async_bytes)
    return PlanFacts(
        copies=(copy, copy),
        element_bytes=1,
        math_kind="wmma",
        BM=64,
        BN=64,
        BK=32,
        num_tiles=128,
        ops_per_load=1.1,
        math_per_tile=16,
        compute_instructions=130,
        load_instructions=768,
        loads_in_flight=2,
        shared_loads={"LDS.U8": 32, "LDSM.16.M88.2": 4},
        pitch_a_bytes=32,
        pitch_b_bytes=64,
    )


def igemm_budget(arch: Arch = SM_90) -> Budget:
    return budget(arch, threads=128, registers=64, smem_single_bytes=4096, staged_bytes=4096)


def sgemm() -> PlanFacts:
    """FP32 128x128x8, 256 threads, float4, A transposed through registers: examples/sgemm_float4.cu."""
    return PlanFacts(
        copies=(
            CopyFacts(4096, 16, 16, 4, guarded=False, scattered=True),
            CopyFacts(4096, 16, 16, 16, guarded=False),
        ),
        element_bytes=4,
        math_kind="fma",
        BM=128,
        BN=128,
        BK=8,
        num_tiles=512,
        ops_per_load=256.0,
        math_per_tile=512,
        compute_instructions=550,
        load_instructions=15,
        loads_in_flight=2,
        shared_loads={"LDS.128": 32},
        pitch_a_bytes=512,
        pitch_b_bytes=512,
    )


def sgemm_budget(arch: Arch = SM_90) -> Budget:
    return budget(arch, threads=256, registers=115, smem_single_bytes=8192, staged_bytes=8192)
