"""Small tiled kernels whose rows bulk copies can move, and siblings of theirs whose rows they cannot.

``KERNELS``: by name, source and sidecar. Sizes are given by the tests.
"""

from __future__ import annotations

from product_sidecars import product_sidecar


def sidecar(name: str, bm: int, bn: int, block: str = "64, 1, 1", dtype: str = "float32", out: str = "float32") -> str:
    launch = f'grid = ["ceil_div(N, {bn})", "ceil_div(M, {bm})", 1]\nblock = [{block}]'
    sizes, elements = "default = { M = 64, N = 64, K = 64 }", (dtype, dtype, out)
    return product_sidecar(name, launch, sizes, names="abc", elements=elements, fill="randint(-4, 5)")


# A thread for every element of a 16 x 16 tile; rows of the tiles are 64 bytes.
SQUARE = """
#define TILE 16
extern "C" __global__ void square(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                                  int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int ty = threadIdx.y, tx = threadIdx.x;
    int row = blockIdx.y * TILE + ty;
    int col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[ty][tx] = (row < M && t * TILE + tx < K) ? a[row * K + t * TILE + tx] : 0.0f;
        Bs[ty][tx] = (t * TILE + ty < K && col < N) ? b[(t * TILE + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += As[ty][i] * Bs[i][tx];
        __syncthreads();
    }
    if (row < M && col < N) c[row * N + col] = sum;
}
"""

# Copy loops over elements, half, padded rows; the guard the other way round.
HALVES = """
#include <cuda_fp16.h>
const int BM = 32, BN = 32, BK = 16, PAD = 8, THREADS = 64;
extern "C" __global__ void __launch_bounds__(THREADS)
halves(const half *__restrict__ a, const half *__restrict__ b, float *__restrict__ c, int M, int N, int K) {
    __shared__ __align__(16) half As[BM][BK + PAD];
    __shared__ __align__(16) half Bs[BK][BN + PAD];
    const int tid = threadIdx.x;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float sum[16] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = tid; i < BM * BK; i += THREADS) {
            int r = i / BK, k = i % BK;
            As[r][k] = (row0 + r >= M || k0 + k >= K) ? __float2half(0.0f) : a[(row0 + r) * K + k0 + k];
        }
        for (int i = tid; i < BK * BN; i += THREADS) {
            int k = i / BN, n = i % BN;
            Bs[k][n] = (k0 + k >= K || col0 + n >= N) ? __float2half(0.0f) : b[(k0 + k) * N + col0 + n];
        }
        __syncthreads();
        for (int e = 0; e < 16; ++e) {
            int r = (tid + e * THREADS) / BN, n = (tid + e * THREADS) % BN;
            for (int k = 0; k < BK; ++k) sum[e] += __half2float(As[r][k]) * __half2float(Bs[k][n]);
        }
        __syncthreads();
    }
    for (int e = 0; e < 16; ++e) {
        int r = row0 + (tid + e * THREADS) / BN, n = col0 + (tid + e * THREADS) % BN;
        if (r < M && n < N) c[r * N + n] = sum[e];
    }
}
"""

# int8, 16 bytes a thread, pointers that move along with the tiles, no guard: whole tiles only.
MOVING = """
constexpr int BM = 64, BN = 64, BK = 16;
extern "C" __global__ void __launch_bounds__(64)
moving(const signed char *a, const signed char *b, int *__restrict__ c, int M, int N, int K) {
    __shared__ __align__(16) signed char As[BM * BK];
    __shared__ __align__(16) signed char Bs[BK * BN];
    const int tid = threadIdx.x;
    const int b_row = tid / (BN / 16), b_col = tid % (BN / 16) * 16;
    a += blockIdx.y * BM * K;
    b += blockIdx.x * BN;
    int sum[BN] = {};
    for (int k = 0; k < K; k += BK) {
        *reinterpret_cast<int4 *>(&As[tid * BK]) = *reinterpret_cast<const int4 *>(&a[tid * K]);
        int4 part = *reinterpret_cast<const int4 *>(&b[b_row * N + b_col]);
        *reinterpret_cast<int4 *>(&Bs[b_row * BN + b_col]) = part;
        a += BK;
        b += BK * N;
        __syncthreads();
        for (int n = 0; n < BN; ++n)
            for (int i = 0; i < BK; ++i) sum[n] += As[tid * BK + i] * Bs[i * BN + n];
        __syncthreads();
    }
    for (int n = 0; n < BN; ++n) c[(blockIdx.y * BM + tid) * N + blockIdx.x * BN + n] = sum[n];
}
"""

# A block makes several tiles of C, one after the other.
PERSISTENT = """
#define TILE 16
extern "C" __global__ void persistent(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                                      int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int ty = threadIdx.y, tx = threadIdx.x;
    int across = (N + TILE - 1) / TILE, down = (M + TILE - 1) / TILE;
    for (int job = blockIdx.x; job < across * down; job += gridDim.x) {
        int row0 = job / across * TILE, col0 = job % across * TILE;
        float sum = 0.0f;
        for (int k0 = 0; k0 < K; k0 += TILE) {
            As[ty][tx] = (row0 + ty < M && k0 + tx < K) ? a[(row0 + ty) * K + k0 + tx] : 0.0f;
            Bs[ty][tx] = (k0 + ty < K && col0 + tx < N) ? b[(k0 + ty) * N + col0 + tx] : 0.0f;
            __syncthreads();
            for (int i = 0; i < TILE; ++i) sum += As[ty][i] * Bs[i][tx];
            __syncthreads();
        }
        if (row0 + ty < M && col0 + tx < N) c[(row0 + ty) * N + col0 + tx] = sum;
    }
}
"""


def _square(name: str, *edits: tuple[str, str]) -> tuple[str, str]:
    """A sibling of ``square``: each edit replaces a text that stands there once."""
    source = SQUARE
    for old, new in (("void square", f"void {name}"), *edits):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source, sidecar(name, 16, 16, "16, 16, 1")


_A = "As[ty][tx] = (row < M && t * TILE + tx < K) ? a[row * K + t * TILE + tx] : 0.0f;"
_GUARD = "(row < M && t * TILE + tx < K)"
# A load phase that is taken as a whole: loops in loops, registers that are cleared and loaded.
NESTED = """
#define TILE 16
extern "C" __global__ void nested(const float *a, const float *b, float *__restrict__ c, int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    int ty = threadIdx.y, tx = threadIdx.x;
    float sum[4] = {};
    for (int k0 = 0; k0 < K; k0 += TILE) {
        for (int r = ty; r < TILE; r += 4)
            for (int q = tx; q < TILE; q += 16) {
                float value = 0.0f;
                if (row0 + r < M && k0 + q < K) value = a[(row0 + r) * K + k0 + q];
                As[r][q] = value;
            }
        for (int r = ty; r < TILE; r += 4) {
            float value = 0.0f;
            if (k0 + r < K && col0 + tx < N) value = b[(k0 + r) * N + col0 + tx];
            Bs[r][tx] = value;
        }
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            for (int e = 0; e < 4; ++e) sum[e] += As[ty + e * 4][i] * Bs[i][tx];
        __syncthreads();
    }
    for (int e = 0; e < 4; ++e)
        if (row0 + ty + e * 4 < M && col0 + tx < N) c[(row0 + ty + e * 4) * N + col0 + tx] = sum[e];
}
"""

# Siblings of ``square`` that no bulk copy may be made of.
SIBLINGS: dict[str, tuple[str, str]] = {
    "transposed": _square("transposed", ("As[ty][tx] = (", "As[tx][ty] = ("), ("As[ty][i]", "As[i][ty]")),
    "swizzled": _square(
        "swizzled", ("As[ty][tx] = (", "As[ty][tx ^ (ty & 3)] = ("), ("As[ty][i]", "As[ty][i ^ (ty & 3)]")
    ),
    "scaled": _square("scaled", ("? a[row * K + t * TILE + tx] :", "? 2.0f * a[row * K + t * TILE + tx] :")),
    "strided": _square("strided", ("a[row * K + t * TILE + tx] :", "a[row * K + t * TILE + tx / 2] :")),
    "narrow": _square("narrow", ("float As[TILE][TILE]", "float As[TILE][TILE + 1]")),
    "parity": _square("parity", (_GUARD, "(row < M && (t * TILE + tx) % 3 != 0 && t * TILE + tx < K)")),
    "product": _square("product", (_GUARD, "(row * K + t * TILE + tx < M * K)")),
    "leaving": _square("leaving", ("    float sum = 0.0f;", "    if (row >= M) return;\n    float sum = 0.0f;")),
    "early": _square(
        "early",
        ("    float sum = 0.0f;", "    const float *from = a;\n    float sum = 0.0f;"),
        (_A, "from += TILE;\n        " + _A.replace("a[row * K + t * TILE + tx]", "from[row * K + tx - TILE]")),
    ),
}  # fmt: skip
# ... and those that only TMA may not: the guard is not that of a matrix, or zero is not what lies outside.
UNBOXED: dict[str, tuple[str, str]] = {
    "ones": _square("ones", ("a[row * K + t * TILE + tx] : 0.0f", "a[row * K + t * TILE + tx] : 1.0f")),
    "wider": _square("wider", (_GUARD, "(row < M && t * TILE + tx < K + 0 * M && row < M + 1)")),
    "half_guarded": _square("half_guarded", (_GUARD, "(t * TILE + tx < K)")),
    "shifted": _square("shifted", (_GUARD, "(row < M && t * TILE + tx + 1 < K + 1)")),
    "padded_by_one": _square(
        "padded_by_one",
        ("float As[TILE][TILE]", "float As[TILE][TILE + 4]"),
        ("float Bs[TILE][TILE]", "float Bs[TILE + 1][TILE]"),
    ),
}  # fmt: skip

KERNELS: dict[str, tuple[str, str]] = {
    "square": (SQUARE, sidecar("square", 16, 16, "16, 16, 1")),
    "halves": (HALVES, sidecar("halves", 32, 32, "64, 1, 1", "float16")),
    "moving": (MOVING, sidecar("moving", 64, 64, "64, 1, 1", "int8", "int32")),
    "persistent": (
        PERSISTENT,
        sidecar("persistent", 16, 16, "16, 16, 1").replace('["ceil_div(N, 16)", "ceil_div(M, 16)", 1]', "[2, 1, 1]"),
    ),
    "nested": (NESTED, sidecar("nested", 16, 16, "16, 4, 1")),
    **SIBLINGS,
    **UNBOXED,
}
