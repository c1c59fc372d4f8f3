"""Small kernels that the bottleneck analysis is judged by, each with its sidecar."""

from __future__ import annotations

from dataclasses import replace

from analyze_sample import Sample


def _gemm(
    source: str, bm: int, bn: int, threads: int, dtype: str, out: str = "float32", n: int = 3072, shared: str = "0"
) -> Sample:
    return Sample(
        source,
        (f"N // {bn}", f"M // {bm}"),
        (str(threads),),
        {"M": n, "N": n, "K": n},
        (("a", dtype, ("M", "K"), "in"), ("b", dtype, ("K", "N"), "in"), ("c", out, ("M", "N"), "out")),
        ("M", "N", "K"),
        shared,
    )


_WMMA = """#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
using namespace nvcuda;
const int BM = 128;
const int BN = 128;
const int BK = 32;
const int THREADS = 256;
"""
_FRAGMENTS = """    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4][2];
    for (int i = 0; i < 4; ++i) for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.0f);
    const int warp = threadIdx.x / 32, wm = warp / 4 * 64, wn = warp % 4 * 32;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
"""
_STORE = """    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(&c[(row0 + wm + 16 * i) * N + col0 + wn + 16 * j], acc[i][j], N,
                                    wmma::mem_row_major);
}
"""
_HEAD = "f(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int M, int N, int K)\n{\n"


def _multiply(a: str, b: str) -> str:
    return f"""        for (int kk = 0; kk < BK; kk += 16) {{
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb[2];
            for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(fa[i], &{a}[wm + 16 * i][kk], BK + 8);
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(fb[j], &{b}[kk][wn + 16 * j], BN + 8);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
        }}
"""


WMMA = _gemm(
    f"""{_WMMA}__global__ void __launch_bounds__(THREADS)
{_HEAD}    __shared__ half As[BM][BK + 8];
    __shared__ half Bs[BK][BN + 8];
{_FRAGMENTS}    for (int k0 = 0; k0 < K; k0 += BK) {{
        for (int i = threadIdx.x; i < BM * BK / 8; i += THREADS) {{
            const int r = i / (BK / 8), k = i % (BK / 8) * 8;
            *reinterpret_cast<uint4*>(&As[r][k]) = *reinterpret_cast<const uint4*>(&a[(row0 + r) * K + k0 + k]);
        }}
        for (int i = threadIdx.x; i < BK * BN / 8; i += THREADS) {{
            const int k = i / (BN / 8), n = i % (BN / 8) * 8;
            *reinterpret_cast<uint4*>(&Bs[k][n]) = *reinterpret_cast<const uint4*>(&b[(k0 + k) * N + col0 + n]);
        }}
        __syncthreads();
{_multiply("As", "Bs")}        __syncthreads();
    }}
{_STORE}""",
    128,
    128,
    256,
    "float16",
)

WMMA_CP_ASYNC = _gemm(
    f"""{_WMMA}const int STAGES = 3;
__device__ void fetch(half (*As)[BK + 8], half (*Bs)[BN + 8], const half* a, const half* b, int row0, int col0,
                      int k0, int N, int K)
{{
    for (int i = threadIdx.x; i < BM * BK / 8; i += THREADS) {{
        const int r = i / (BK / 8), k = i % (BK / 8) * 8;
        __pipeline_memcpy_async(&As[r][k], &a[(row0 + r) * K + k0 + k], 16);
    }}
    for (int i = threadIdx.x; i < BK * BN / 8; i += THREADS) {{
        const int k = i / (BN / 8), n = i % (BN / 8) * 8;
        __pipeline_memcpy_async(&Bs[k][n], &b[(k0 + k) * N + col0 + n], 16);
    }}
}}
__global__ void __launch_bounds__(THREADS)
{_HEAD}    extern __shared__ half pool[];
    half (*As)[BM][BK + 8] = reinterpret_cast<half (*)[BM][BK + 8]>(pool);
    half (*Bs)[BK][BN + 8] = reinterpret_cast<half (*)[BK][BN + 8]>(pool + STAGES * BM * (BK + 8));
{_FRAGMENTS}    const int tiles = K / BK;
    for (int s = 0; s < STAGES - 1; ++s) {{
        if (s < tiles) fetch(As[s], Bs[s], a, b, row0, col0, s * BK, N, K);
        __pipeline_commit();
    }}
    for (int t = 0; t < tiles; ++t) {{
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        const int next = t + STAGES - 1;
        if (next < tiles) fetch(As[next % STAGES], Bs[next % STAGES], a, b, row0, col0, next * BK, N, K);
        __pipeline_commit();
        const int s = t % STAGES;
{_multiply("As[s]", "Bs[s]")}    }}
{_STORE}""",
    128,
    128,
    256,
    "float16",
    shared=str(3 * 2 * (128 * 40 + 32 * 136)),
).at(K=1024)

# One block per SM of an H200 because of its tiles: 137 KB of shared memory.
BIG_TILES = WMMA.changed(
    ("const int BK = 32;", "const int BK = 256;"),
    (
        "    __shared__ half As[BM][BK + 8];\n    __shared__ half Bs[BK][BN + 8];\n",
        "    extern __shared__ half pool[];\n    half (*As)[BK + 8] = reinterpret_cast<half (*)[BK + 8]>(pool);\n"
        "    half (*Bs)[BN + 8] = reinterpret_cast<half (*)[BN + 8]>(pool + BM * (BK + 8));\n",
    ),
)
BIG_TILES = replace(BIG_TILES, shared_bytes=str(2 * (128 * 264 + 256 * 136))).at(K=4096)
# ptxas keeps ten steps' fragments of this one in registers: 165 of them, and 84 KB, each leave one block on an A100.
BIG_PATCHES = BIG_TILES.changed(("const int BK = 256;", "const int BK = 160;")).at(K=3840)
BIG_PATCHES = replace(BIG_PATCHES, shared_bytes=str(2 * (128 * 168 + 160 * 136)))

BYTES = _gemm(
    """#include <mma.h>
using namespace nvcuda;
const int BM = 64;
const int BN = 64;
const int BK = 32;
const int THREADS = 128;
__global__ void __launch_bounds__(THREADS)
f(const signed char* __restrict__ a, const signed char* __restrict__ b, int* __restrict__ c, int M, int N, int K)
{
    __shared__ __align__(32) signed char As[BM][BK + 16];
    __shared__ __align__(32) signed char Bs[BK][BN + 16];
    const int warp = threadIdx.x / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> acc[2][2];
    for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0);
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += THREADS)
            As[i / BK][i % BK] = a[(row0 + i / BK) * K + k0 + i % BK];
        for (int i = threadIdx.x; i < BK * BN; i += THREADS)
            Bs[i / BN][i % BN] = b[(k0 + i / BN) * N + col0 + i % BN];
        __syncthreads();
        for (int kk = 0; kk < BK; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::row_major> fb[2];
            for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(fa[i], &As[wm + 16 * i][kk], BK + 16);
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(fb[j], &Bs[kk][wn + 16 * j], BN + 16);
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(&c[(row0 + wm + 16 * i) * N + col0 + wn + 16 * j], acc[i][j], N,
                                    wmma::mem_row_major);
}
""",
    64,
    64,
    128,
    "int8",
    "int32",
    2048,
)
# The same with 16-byte copies in the K-loop; only a table is read byte by byte, in front of it.
BYTES_IN_THE_PROLOGUE = BYTES.changed(
    (
        "        for (int i = threadIdx.x; i < BM * BK; i += THREADS)\n"
        "            As[i / BK][i % BK] = a[(row0 + i / BK) * K + k0 + i % BK];\n"
        "        for (int i = threadIdx.x; i < BK * BN; i += THREADS)\n"
        "            Bs[i / BN][i % BN] = b[(k0 + i / BN) * N + col0 + i % BN];\n",
        "        for (int i = threadIdx.x; i < BM * BK / 16; i += THREADS)\n"
        "            *reinterpret_cast<uint4*>(&As[i / 2][i % 2 * 16]) =\n"
        "                *reinterpret_cast<const uint4*>(&a[(row0 + i / 2) * K + k0 + i % 2 * 16]);\n"
        "        for (int i = threadIdx.x; i < BK * BN / 16; i += THREADS)\n"
        "            *reinterpret_cast<uint4*>(&Bs[i / 4][i % 4 * 16]) =\n"
        "                *reinterpret_cast<const uint4*>(&b[(k0 + i / 4) * N + col0 + i % 4 * 16]);\n",
    ),
    (
        "    for (int k0 = 0; k0 < K; k0 += BK) {\n",
        "    __shared__ signed char scale[1024];\n"
        "    for (int i = threadIdx.x; i < 1024; i += THREADS) scale[i] = a[i];\n    __syncthreads();\n"
        "    for (int k0 = 0; k0 < K; k0 += BK) {\n",
    ),
    ("wmma::store_matrix_sync(&c[", "acc[i][j].x[0] += scale[threadIdx.x],\n            wmma::store_matrix_sync(&c["),
)

# What is added to the product waits in 20 registers all the while: 153 of them, one block of 256 threads.
REGISTERS = WMMA.changed(
    (
        "    for (int k0 = 0; k0 < K; k0 += BK) {\n",
        "    float keep[20];\n    for (int i = 0; i < 20; ++i) keep[i] = c[threadIdx.x + 256 * i];\n"
        "    for (int k0 = 0; k0 < K; k0 += BK) {\n",
    ),
    (
        "            wmma::store",
        "        {\n            for (int e = 0; e < 8; ++e) acc[i][j].x[e] += keep[(8 * i + 4 * j + e) % 20];\n"
        "            wmma::store",
    ),
    ("wmma::mem_row_major);\n", "wmma::mem_row_major);\n        }\n"),
)
REGISTERS = replace(REGISTERS, arrays=(*REGISTERS.arrays[:2], ("c", "float32", ("M", "N"), "inout")))

_VECTOR = (("x", "float32", ("N",), "in"), ("y", "float32", ("N",), "out"))
STREAM = Sample(
    """__global__ void f(const float4* __restrict__ x, float4* __restrict__ y, int N)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N / 4) {
        const float4 v = x[i];
        y[i] = make_float4(2.0f * v.x + 1.0f, 2.0f * v.y + 1.0f, 2.0f * v.z + 1.0f, 2.0f * v.w + 1.0f);
    }
}
""",
    ("ceil_div(N, 1024)",),
    ("256",),
    {"N": 9 << 20},
    _VECTOR,
    ("N",),
)
TINY = STREAM.at(N=4096)

NAIVE_GEMM = Sample(
    """__global__ void f(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int N)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < N; ++k) sum += a[row * N + k] * b[k * N + col];
    c[row * N + col] = sum;
}
""",
    ("N // 16", "N // 16"),
    ("16", "16"),
    {"N": 1024},
    (("a", "float32", ("N", "N"), "in"), ("b", "float32", ("N", "N"), "in"), ("c", "float32", ("N", "N"), "out")),
    ("N",),
)

# int32 words of four bytes each; the sibling multiplies floats.
DOT_BYTES = Sample(
    """const int T = 32;
__global__ void f(const int* __restrict__ a, const int* __restrict__ b, int* __restrict__ c, int N)
{
    __shared__ int As[T][T + 1], Bs[T][T + 1];
    const int row = blockIdx.y * T + threadIdx.y, col0 = blockIdx.x * T;
    int sum = 0;
    for (int k0 = 0; k0 < N; k0 += T) {
        As[threadIdx.y][threadIdx.x] = a[row * N + k0 + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = b[(col0 + threadIdx.y) * N + k0 + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < T; ++k) sum = __dp4a(As[threadIdx.y][k], Bs[threadIdx.x][k], sum);
        __syncthreads();
    }
    c[row * N + col0 + threadIdx.x] = sum;
}
""",
    ("N // 32", "N // 32"),
    ("32", "32"),
    {"N": 1024},
    (("a", "int32", ("N", "N"), "in"), ("b", "int32", ("N", "N"), "in"), ("c", "int32", ("N", "N"), "out")),
    ("N",),
)
DOT_FLOATS = replace(
    DOT_BYTES.changed(
        ("const int*", "const float*"),
        ("int* __restrict__ c", "float* __restrict__ c"),
        ("__shared__ int", "__shared__ float"),
        ("int sum", "float sum"),
        ("__dp4a(As[threadIdx.y][k], Bs[threadIdx.x][k], sum)", "As[threadIdx.y][k] * Bs[threadIdx.x][k] + sum"),
    ),
    arrays=tuple((name, "float32", shape, role) for name, _, shape, role in DOT_BYTES.arrays),
)

GEMV = Sample(
    """__global__ void f(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int N)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int k = lane; k < N; k += 32) sum += a[row * N + k] * x[k];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) y[row] = sum;
}
""",
    ("N // 8",),
    ("256",),
    {"N": 4096},
    (("a", "float32", ("N", "N"), "in"), ("x", "float32", ("N",), "in"), ("y", "float32", ("N",), "out")),
    ("N",),
)

SOFTMAX = Sample(
    """__global__ void f(const float* __restrict__ x, float* __restrict__ y, int R, int C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float most = -3.4e38f, sum = 0.0f;
    for (int k = lane; k < C; k += 32) most = fmaxf(most, x[row * C + k]);
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    for (int k = lane; k < C; k += 32) sum += __expf(x[row * C + k] - most);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    for (int k = lane; k < C; k += 32) y[row * C + k] = __expf(x[row * C + k] - most) / sum;
}
""",
    ("R // 8",),
    ("256",),
    {"R": 4096, "C": 1024},
    (("x", "float32", ("R", "C"), "in"), ("y", "float32", ("R", "C"), "out")),
    ("R", "C"),
)

_SQUARE = (("x", "float32", ("N", "N"), "in"), ("y", "float32", ("N", "N"), "out"))
TRANSPOSE = Sample(
    """__global__ void f(const float* __restrict__ x, float* __restrict__ y, int N)
{
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    y[col * N + row] = x[row * N + col];
}
""",
    ("N // 32", "N // 8"),
    ("32", "8"),
    {"N": 2048},
    _SQUARE,
    ("N",),
)
TILED_TRANSPOSE = Sample(
    """const int PAD = 0;
__global__ void f(const float* __restrict__ x, float* __restrict__ y, int N)
{
    __shared__ float tile[32][32 + PAD];
    const int col = blockIdx.x * 32, row = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = x[(row + j) * N + col + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8) y[(col + j) * N + row + threadIdx.x] = tile[threadIdx.x][j];
}
""",
    ("N // 32", "N // 32"),
    ("32", "8"),
    {"N": 2048},
    _SQUARE,
    ("N",),
)
PADDED_TRANSPOSE = TILED_TRANSPOSE.changed(("PAD = 0", "PAD = 1"))

# 64 values a thread that live through a loop, in 32 registers.
SPILLED = Sample(
    """__global__ void __launch_bounds__(256, 8)
f(const float* __restrict__ x, float* __restrict__ y, int N)
{
    float v[64];
    const int i = blockIdx.x * 256 + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < 64; ++k) v[k] = x[i + k];
    #pragma unroll 1
    for (int t = 0; t < 16; ++t) {
        const float s = x[i + t];
        #pragma unroll
        for (int k = 0; k < 64; ++k) v[k] = v[k] * s + v[(k + 7) % 64];
    }
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 64; ++k) sum += v[k];
    y[i] = sum;
}
""",
    ("N // 256",),
    ("256",),
    {"N": 1 << 20},
    (("x", "float32", ("N + 64",), "in"), ("y", "float32", ("N",), "out")),
    ("N",),
)
ROOMY = SPILLED.changed(("__launch_bounds__(256, 8)", "__launch_bounds__(256, 2)"))
