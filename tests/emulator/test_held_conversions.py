"""Conversions on the way into a tile: what they are made of is held in registers, so nothing waits for it before."""

from __future__ import annotations

from pathlib import Path

import pytest
from product_sidecars import product_sidecar

import tilewright
from tilewright.receipt.evidence import Proof
from tilewright.settings import Settings

KERNEL = """#include <cuda_fp16.h>
__global__ void halves(const float *__restrict__ A, const float *__restrict__ B, float *C, int M, int N, int K) {
    __shared__ __half As[32 * 16];
    __shared__ __half Bs[16 * 32];
    const int tid = threadIdx.x, row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    const int row = tid / 8 * 2, column = tid % 8 * 4;
    float sum[2][4] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        for (int i = tid; i < 32 * 16; i += 128) {
            const int r = row0 + i / 16, c = k0 + i % 16;
            As[i] = VALUE_A;
        }
        for (int i = tid; i < 16 * 32; i += 128) {
            const int r = k0 + i / 32, c = column0 + i % 32;
            Bs[i] = __float2half_rn(r < K && c < N ? B[r * N + c] : 0.0f);
        }
        __syncthreads();
        for (int k = 0; k < 16; k++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    sum[i][j] += __half2float(As[(row + i) * 16 + k]) * __half2float(Bs[k * 32 + column + j]);
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            if (row0 + row + i < M && column0 + column + j < N)
                C[(row0 + row + i) * N + column0 + column + j] = sum[i][j];
}
"""
GUARDED = "__float2half(\n                r < M && c < K ? A[r * K + c] : 0.0f)"
SIDECAR = product_sidecar(
    "halves",
    'grid = ["ceil_div(N, 32)", "ceil_div(M, 32)"]\nblock = [128]',
    "default = { M = 64, N = 64, K = 64 }\nragged = { M = 45, N = 51, K = 39 }",
    fill="",
)


def made(folder: Path, value: str) -> dict[str, tuple[str, Proof | None, str]]:
    """By variant: verdict, proof, source."""
    path = folder / "halves.cu"
    path.write_text(KERNEL.replace("VALUE_A", value), "utf-8")
    path.with_suffix(".toml").write_text(SIDECAR, "utf-8")
    settings = Settings(cache_dir=folder / "cache")
    outcome = tilewright.pipeline(path, arch="sm_86", variants=("ldg", "ldg_single"), settings=settings, run=True)
    assert outcome.receipt.refusal is None, outcome.receipt.refusal
    return {v.name: (v.verify.verdict, v.proof, v.source or "") for v in outcome.receipt.variants if not v.refusal}


def test_what_a_conversion_is_made_of_is_held(tmp_path: Path) -> None:
    found = made(tmp_path, GUARDED)
    assert sorted(found) == ["ldg", "ldg_single"]
    for verdict, proof, source in found.values():
        assert verdict == "passed"
        assert proof is not None
        assert proof.verdict == "overlap"
        assert "float As_next[" in source
        assert "As_next[pass] = r < M && c < K ? A[r * K + c] : 0.0f;" in source
        assert "As[i] = __float2half(As_next[pass]);" in source
        assert "Bs[i] = __float2half_rn(Bs_next[pass_2]);" in source or "__float2half_rn(Bs_next[" in source


@pytest.mark.parametrize(
    "value",
    [
        "__float2half(r < M && c < K ? A[r * K + c] * 2.0f : 0.0f)",  # computed as well
        "__floats2half2_rn(r < M && c < K ? A[r * K + c] : 0.0f, 0.0f).x",  # not of one float
        "__float2half(r < M && c < K ? A[r * K + c] : A[0])",  # the fill is loaded too
    ],
)
def test_anything_else_is_held_as_it_is_stored(tmp_path: Path, value: str) -> None:
    for verdict, _, source in made(tmp_path, value).values():
        assert verdict == "passed"
        assert "__half As_next[" in source
        assert "float Bs_next[" in source
