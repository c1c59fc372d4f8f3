"""A small tiled GEMM with slots, for kernels that a careless rewrite gets wrong."""

from __future__ import annotations

from product_sidecars import product_sidecar

BLOCK = (16, 16, 1)
_TEXT = """\
#include <cuda_runtime.h>
#define T 16
<file>
__global__ void gemm(<params>)
{
    __shared__ float As[T][T];
    __shared__ float Bs[T][T];
    <shared>
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * T + ty;
    const int col = blockIdx.x * T + tx;
    float sum = 0.0f;
    <before>
    <loop> {
        <load>
        __syncthreads();
        <compute>
        <end>
    }
    <after>
    if (row < M && col < N) C[row * N + col] = sum;
    <last>
}
"""
LOAD_A = "As[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;"
LOAD_B = "Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;"
MATH = "for (int k = 0; k < T; ++k) sum += As[ty][k] * Bs[k][tx];"
PARAMS = "const float *A, const float *B, float *C, int M, int N, int K"
_SLOTS = {
    "file": "",
    "params": PARAMS,
    "shared": "",
    "before": "",
    "loop": "for (int k0 = 0; k0 < K; k0 += T)",
    "load": f"{LOAD_A}\n        {LOAD_B}",
    "compute": MATH,
    "end": "__syncthreads();",
    "after": "",
    "last": "",
}
LAUNCH = 'grid = ["ceil_div(N, 16)", "ceil_div(M, 16)", 1]\nblock = [16, 16, 1]'
SIZES = "default = { M = 19, N = 21, K = 37 }"
SIDECAR = product_sidecar("gemm", LAUNCH, SIZES)


def gemm(**slots: str) -> str:
    """The kernel with some slots filled; a slot may refer to what stands in it otherwise as ``{0}``."""
    out = _TEXT
    for name, usual in _SLOTS.items():
        text = slots[name].replace("{0}", usual) if name in slots else usual
        assert f"<{name}>" in out
        out = out.replace(f"<{name}>", text)
    assert not set(slots) - set(_SLOTS), slots
    return "\n".join(line for line in out.split("\n") if line.strip()) + "\n"


def line_of(text: str, part: str) -> int:
    """The 1-based line that holds a text; it must be the only one."""
    found = [i + 1 for i, line in enumerate(text.split("\n")) if part in line]
    assert len(found) == 1, (part, found)
    return found[0]
