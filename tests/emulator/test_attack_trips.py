"""A race that only more tiles than the sidecar's sizes show is not put down to a size that the kernel cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright

KERNEL = """constexpr int BM = 16, BN = 16, BK = 16;
__global__ void __launch_bounds__(256) k(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[BM][BK];
    __shared__ float b[BK][BN];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    __shared__ volatile float z[256];
    float acc = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        a[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.f;
        b[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.f;
        __syncthreads();
        for (int kk = 0; kk < BK; kk++) acc += a[ty][kk] * b[kk][tx];
        __syncthreads();
    }
    EXTRA
    if (row < M && col < N) C[row * N + col] = acc;
}
"""
SIDECAR = """
kernel = "k"
[launch]
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)"]
block = [256]
[sizes]
default = { M = 64, N = 64, K = 32 }
small = { M = 32, N = 32, K = 16 }
[[args]]
name = "A"
dtype = "float32"
shape = ["M", "K"]
[[args]]
name = "B"
dtype = "float32"
shape = ["K", "N"]
[[args]]
name = "C"
dtype = "float32"
shape = ["M", "N"]
role = "out"
[[args]]
name = "M"
dtype = "int32"
value = "M"
[[args]]
name = "N"
dtype = "int32"
value = "N"
[[args]]
name = "K"
dtype = "int32"
value = "K"
"""


LAST = "if (K > 3 * BK) { z[threadIdx.x] = acc; %s acc += z[threadIdx.x ^ 32]; }"


@pytest.mark.parametrize(("extra", "code"), [("", 0), (LAST % "__syncthreads();", 0), (LAST % "", 1)])
def test_a_race_of_the_fourth_tile(tmp_path: Path, extra: str, code: int) -> None:
    path = tmp_path / "k.cu"
    path.write_text(KERNEL.replace("EXTRA", extra))
    path.with_suffix(".toml").write_text(SIDECAR)
    outcome = tilewright.verify(path, seed=1)
    assert outcome.exit_code == code
    if code:
        assert {h.kind for h in outcome.report.verify.hazards} & {"race_read_after_write", "race_write_after_read"}
