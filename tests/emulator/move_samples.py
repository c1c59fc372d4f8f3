"""A small product of matrices for the moves that are no pipelining, and ways of writing it that must be refused."""

from __future__ import annotations

from pathlib import Path

from tilewright.receipt.record import Receipt, Variant
from tilewright.settings import Settings
from tilewright.workflow import pipeline

SOURCE = """\
// 64 x 64 tiles of floats, 256 threads, 4 x 4 results a thread.
constexpr int BM = 64;
constexpr int BN = 64;
constexpr int BK = 16;  // deep
constexpr int ROWS = BM / 16;

__global__ void product(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int n, int k)
{
    __shared__ float as[BK][BM];
    __shared__ float bs[BK][BN];
    const int tid = threadIdx.x;
    const int row = tid / 16, col = tid % 16;
    float sum[ROWS][4] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = tid; i < BM * BK; i += 256) {
            as[i % BK][i / BK] = a[(blockIdx.y * BM + i / BK) * k + k0 + i % BK];
        }
        for (int i = tid; i < BK * BN; i += 256) {
            bs[i / BN][i % BN] = b[(k0 + i / BN) * n + blockIdx.x * BN + i % BN];
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += as[kk][row * ROWS + i] * bs[kk][col * 4 + j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j < 4; ++j) {
            c[(blockIdx.y * BM + row * ROWS + i) * n + blockIdx.x * BN + col * 4 + j] = sum[i][j];
        }
    }
}
"""
SIDECAR = """\
kernel = "product"
[launch]
grid = ["N // BN", "M // BM", 1]
block = [256, 1, 1]
[sizes]
default = { M = 64, N = 128, K = 48 }
small = { M = 64, N = 64, K = 32 }
[[args]]
name = "a"
dtype = "float32"
shape = ["M", "K"]
[[args]]
name = "b"
dtype = "float32"
shape = ["K", "N"]
[[args]]
name = "c"
dtype = "float32"
shape = ["M", "N"]
role = "out"
[[args]]
name = "n"
dtype = "int32"
value = "N"
[[args]]
name = "k"
dtype = "int32"
value = "K"
"""


def moved(
    folder: Path, source: str, *names: str, sidecar: str = SIDECAR, arch: str = "sm_86", run: bool = True
) -> tuple[Receipt, dict[str, Variant], int]:
    """The receipt, its variants by label and the exit code, for some moves alone."""
    path = folder / "product.cu"
    path.write_text(source)
    path.with_suffix(".toml").write_text(sidecar)
    outcome = pipeline(
        path, arch=arch, variants=names, settings=Settings(cache_dir=folder / "cache"), use_cache=False, run=run
    )
    return outcome.receipt, {v.label: v for v in outcome.receipt.variants}, outcome.exit_code


def edited(*pairs: tuple[str, str]) -> str:
    """The source with texts replaced, each of which has to be there."""
    text = SOURCE
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text
