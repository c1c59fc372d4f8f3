// FP32 GEMM with FMA: C[M,N] = A[M,K] B[K,N], 64x64x16 tiles, 256 threads, 4x4 results per thread; the loads through
// registers store A transposed, the asynchronous copies leave it as it lies.
#include <cuda_pipeline.h>
constexpr int BM = 64, BN = 64, BK = 16, THREADS = 256;
enum Style { PLAIN, ROLLED, STRIDED, GUARDED, FALLBACK };

template <int STAGES>
struct Buffers {
    float a[STAGES][BK][BM];
    float b[STAGES][BK][BN];
};
#define PARAMETERS const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int Ncols, int K
#define ARGUMENTS A, B, C, M, Ncols, K

template <int STAGES, int STYLE = PLAIN>
struct Tile {
    Buffers<STAGES>& shared;
    const float *A, *B;
    float* C;
    int M, Ncols, K, row0, col0, count;
    float4 kept_a, kept_b;
    float sums[4][4] = {};

    __device__ Tile(Buffers<STAGES>& s, PARAMETERS)
        : shared(s), A(A), B(B), C(C), M(M), Ncols(Ncols), K(K), row0(blockIdx.y * BM), col0(blockIdx.x * BN),
          count((K + BK - 1) / BK) {}
    template <int BYTES>
    __device__ void move(float* to, const float* from, bool inside) {
        if (STYLE == FALLBACK) {
            if (inside && Ncols % 4 == 0) __pipeline_memcpy_async(to, from, BYTES);
            else
                for (int e = 0; e < BYTES / 4; ++e) to[e] = inside ? from[e] : 0.f;
        } else if (STYLE == GUARDED) {
            if (inside) __pipeline_memcpy_async(to, from, BYTES);
            else
                for (int e = 0; e < BYTES / 4; ++e) to[e] = 0.f;
        } else {
            __pipeline_memcpy_async(to, from, BYTES);
        }
    }
    __device__ void copy(int tile, int stage) {
        if (STYLE == STRIDED) {
            for (int i = threadIdx.x; i < BM * BK; i += blockDim.x)
                move<4>(&shared.a[stage][i % BK][i / BK], A + size_t(row0 + i / BK) * K + tile * BK + i % BK, true);
            for (int i = threadIdx.x * 4; i < BK * BN; i += blockDim.x * 4)
                move<16>(&shared.b[stage][i / BN][i % BN], B + size_t(tile * BK + i / BN) * Ncols + col0 + i % BN, true);
            return;
        }
        const int i = threadIdx.x * 4, row = i / BK, k = i % BK, kb = i / BN, col = i % BN;
#pragma unroll
        for (int e = 0; e < 4; ++e)  // transposed: four copies of 4 bytes
            move<4>(&shared.a[stage][k + e][row], A + size_t(row0 + row) * K + tile * BK + k + e, row0 + row < M && tile * BK + k + e < K);
        move<16>(&shared.b[stage][kb][col], B + size_t(tile * BK + kb) * Ncols + col0 + col, tile * BK + kb < K && col0 + col < Ncols);
    }
    __device__ void fetch(int tile) {
        const int i = threadIdx.x * 4, row = row0 + i / BK, k = tile * BK + i % BK, kb = tile * BK + i / BN, col = col0 + i % BN;
        const bool in_a = STYLE != GUARDED || (row < M && k < K), in_b = STYLE != GUARDED || (kb < K && col < Ncols);
        kept_a = in_a ? __ldcg(reinterpret_cast<const float4*>(A + size_t(row) * K + k)) : float4{0, 0, 0, 0};
        kept_b = in_b ? __ldcg(reinterpret_cast<const float4*>(B + size_t(kb) * Ncols + col)) : float4{0, 0, 0, 0};
    }
    __device__ void store(int stage) {
        const int i = threadIdx.x * 4, row = i / BK, k = i % BK;
        shared.a[stage][k][row] = kept_a.x;
        shared.a[stage][k + 1][row] = kept_a.y;
        shared.a[stage][k + 2][row] = kept_a.z;
        shared.a[stage][k + 3][row] = kept_a.w;
        *reinterpret_cast<float4*>(&shared.b[stage][i / BN][i % BN]) = kept_b;
    }
    __device__ void step(int stage, int k) {
        const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
        const float4 a = *reinterpret_cast<const float4*>(&shared.a[stage][k][y]);
        const float4 b = *reinterpret_cast<const float4*>(&shared.b[stage][k][x]);
        const float u[4] = {a.x, a.y, a.z, a.w}, v[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] += u[i / 4] * v[i % 4];
    }
    __device__ void compute(int stage) {
        if (STYLE == ROLLED) {
#pragma unroll 1
            for (int k = 0; k < BK; ++k) step(stage, k);
        } else {
#pragma unroll
            for (int k = 0; k < BK; ++k) step(stage, k);
        }
    }
    __device__ void finish() {
        const int row = row0 + threadIdx.x / 16 * 4, col = col0 + threadIdx.x % 16 * 4;
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (row + i / 4 < M && col + i % 4 < Ncols) C[size_t(row + i / 4) * Ncols + col + i % 4] = sums[i / 4][i % 4];
    }
};
#include "orders.cuh"
