"""A tiled FP32 GEMM for the GPU tests, a double-buffered one, and broken ones. No header is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilewright.launch.executor import Program
from tilewright.launch.sidecar import parse_sidecar
from tilewright.launch.spec import LaunchSpec

Compile = Callable[[str, str], Program]  # source text, name of the kernel

GEMM = r"""
constexpr int TILE = 16;

extern "C" __global__ void gemm(float* a, float* b, float* c, int M, int N, int K, float alpha) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < LIMIT; k0 += TILE) {
        int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < M && ka < K ? a[row * K + ka] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = kb < K && col < N ? b[kb * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) { STORE; }
    EXTRA
}
"""

DOUBLE = r"""
constexpr int TILE = 16;

extern "C" __global__ void gemm(float* a, float* b, float* c, int M, int N, int K, float alpha) {
    extern __shared__ float ring[];  // two stages of (as, bs), then unused bytes up to what the launch asks for
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    int me = threadIdx.y * TILE + threadIdx.x;
    auto load = [&](int k0, float* stage) {
        int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        stage[me] = row < M && ka < K ? a[row * K + ka] : 0.0f;
        stage[TILE * TILE + me] = kb < K && col < N ? b[kb * N + col] : 0.0f;
    };
    float sum = 0.0f;
    int tiles = (K + TILE - 1) / TILE;
    if (tiles > 0) load(0, ring);
    __syncthreads();
    for (int t = 0; t < tiles; ++t) {
        float* now = ring + (t & 1) * 2 * TILE * TILE;
        if (t + 1 < tiles) load((t + 1) * TILE, ring + ((t + 1) & 1) * 2 * TILE * TILE);
        for (int k = 0; k < TILE; ++k)
            sum += now[threadIdx.y * TILE + k] * now[TILE * TILE + k * TILE + threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) c[row * N + col] = alpha * sum;
}
"""

SIDECAR = """
kernel = "gemm"
[launch]
grid = ["ceil_div(N, TILE)", "ceil_div(M, TILE)"]
block = ["TILE", "TILE"]
[sizes]
default = { M = 512, N = 512, K = 512 }
ragged = { M = 83, N = 50, K = 37 }
empty = { M = 20, N = 20, K = 0 }
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
[[args]]
name = "alpha"
dtype = "float32"
value = 0.75
"""

CONSTANTS = {"TILE": 16}
STAGED_BYTES = 64 * 1024  # more than 48 KiB, so that the launch needs the opt-in


def spec(*changes: tuple[str, str]) -> LaunchSpec:
    text = SIDECAR
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_sidecar(text, Path("gemm.toml"))


def gemm(limit: str = "K", store: str = "c[row * N + col] = alpha * sum", extra: str = "") -> str:
    """The baseline's source, or a broken one."""
    return GEMM.replace("LIMIT", limit).replace("STORE", store).replace("EXTRA", extra)
