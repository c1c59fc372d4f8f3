"""A kernel for the bottleneck analysis whose A lies turned in shared memory: no asynchronous copy can bring it."""

from __future__ import annotations

from analyze_sample import Sample

TURNED = Sample(
    """#include <cuda_fp16.h>
const int BM = 64;
const int BN = 64;
const int BK = 16;
__global__ void __launch_bounds__(256)
f(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int M, int N, int K)
{
    __shared__ half as[BK][BM], bs[BK][BN];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += 256)
            as[i % BK][i / BK] = a[(blockIdx.y * BM + i / BK) * K + k0 + i % BK];
        for (int i = threadIdx.x; i < BK * BN; i += 256)
            bs[i / BN][i % BN] = b[(k0 + i / BN) * N + blockIdx.x * BN + i % BN];
        __syncthreads();
        for (int k = 0; k < BK; ++k)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j)
                    acc[i][j] += __half2float(as[k][ty * 4 + i]) * __half2float(bs[k][tx * 4 + j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            c[(blockIdx.y * BM + ty * 4 + i) * N + blockIdx.x * BN + tx * 4 + j] = acc[i][j];
}
""",
    ("N // 64", "M // 64"),
    ("256",),
    {"M": 2048, "N": 2048, "K": 2048},
    (("a", "float16", ("M", "K"), "in"), ("b", "float16", ("K", "N"), "in"), ("c", "float32", ("M", "N"), "out")),
    ("M", "N", "K"),
)
