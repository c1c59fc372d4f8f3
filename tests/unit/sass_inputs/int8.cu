// INT8 GEMM with WMMA: C[M,N] = A[M,K] B[K,N], 64x64x32 tiles, 128 threads, one 16-byte copy per thread and operand.
#include <mma.h>
#include <cuda_pipeline.h>
using namespace nvcuda;
constexpr int BM = 64, BN = 64, BK = 32, THREADS = 128;
enum Style { PLAIN, ROLLED, STRIDED, GUARDED, FALLBACK };

template <int STAGES>
struct Buffers {
    signed char a[STAGES][BM * BK];
    signed char b[STAGES][BK * BN];
};
#define PARAMETERS const signed char* __restrict__ A, const signed char* __restrict__ B, int* __restrict__ C, int M, int Ncols, int K
#define ARGUMENTS A, B, C, M, Ncols, K

template <int STAGES, int STYLE = PLAIN>
struct Tile {
    Buffers<STAGES>& shared;
    const signed char *A, *B;
    int *C, M, Ncols, K, row0, col0, count;
    int4 kept_a, kept_b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> sums[2][2];

    __device__ Tile(Buffers<STAGES>& s, PARAMETERS)
        : shared(s), A(A), B(B), C(C), M(M), Ncols(Ncols), K(K), row0(blockIdx.y * BM), col0(blockIdx.x * BN),
          count((K + BK - 1) / BK) {
#pragma unroll
        for (int i = 0; i < 4; ++i) wmma::fill_fragment(sums[i / 2][i % 2], 0);
    }
    __device__ void move(signed char* to, const signed char* from, bool inside) {
        if (STYLE == FALLBACK) {
            if (inside && (reinterpret_cast<unsigned long long>(from) & 15) == 0) {
                __pipeline_memcpy_async(to, from, 16);
            } else {
                for (int i = 0; i < 16; ++i) to[i] = inside ? from[i] : 0;
            }
        } else if (STYLE == GUARDED) {
            if (inside) __pipeline_memcpy_async(to, from, 16);
            else *reinterpret_cast<int4*>(to) = int4{0, 0, 0, 0};
        } else {
            __pipeline_memcpy_async(to, from, 16);
        }
    }
    __device__ void copy(int tile, int stage) {
        if (STYLE == STRIDED) {
            for (int i = threadIdx.x * 16; i < BM * BK; i += blockDim.x * 16)
                move(&shared.a[stage][i], A + size_t(row0 + i / BK) * K + tile * BK + i % BK, true);
            for (int i = threadIdx.x * 16; i < BK * BN; i += blockDim.x * 16)
                move(&shared.b[stage][i], B + size_t(tile * BK + i / BN) * Ncols + col0 + i % BN, true);
            return;
        }
        const int i = threadIdx.x * 16;
        const int row = row0 + i / BK, k = tile * BK + i % BK, kb = tile * BK + i / BN, col = col0 + i % BN;
        move(&shared.a[stage][i], A + size_t(row) * K + k, row < M && k < K);
        move(&shared.b[stage][i], B + size_t(kb) * Ncols + col, kb < K && col < Ncols);
    }
    __device__ void fetch(int tile) {
        if (STYLE == STRIDED) { kept_a.x = tile; return; }
        const int i = threadIdx.x * 16;
        const int row = row0 + i / BK, k = tile * BK + i % BK, kb = tile * BK + i / BN, col = col0 + i % BN;
        const bool in_a = STYLE != GUARDED || (row < M && k < K), in_b = STYLE != GUARDED || (kb < K && col < Ncols);
        kept_a = in_a ? __ldcg(reinterpret_cast<const int4*>(A + size_t(row) * K + k)) : int4{0, 0, 0, 0};
        kept_b = in_b ? __ldcg(reinterpret_cast<const int4*>(B + size_t(kb) * Ncols + col)) : int4{0, 0, 0, 0};
    }
    __device__ void store(int stage) {
        if (STYLE == STRIDED) {  // byte by byte, as people write it first
            const int tile = kept_a.x;
            for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
                const int row = row0 + i / BK, k = tile * BK + i % BK;
                shared.a[stage][i] = row < M && k < K ? A[size_t(row) * K + k] : 0;
            }
            for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
                const int k = tile * BK + i / BN, col = col0 + i % BN;
                shared.b[stage][i] = k < K && col < Ncols ? B[size_t(k) * Ncols + col] : 0;
            }
            return;
        }
        *reinterpret_cast<int4*>(&shared.a[stage][threadIdx.x * 16]) = kept_a;
        *reinterpret_cast<int4*>(&shared.b[stage][threadIdx.x * 16]) = kept_b;
    }
    __device__ void step(int stage, int k) {
        const int warp = threadIdx.x / 32, y = warp / 2 * 32, x = warp % 2 * 32;
        wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> a[2];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::row_major> b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(a[i], &shared.a[stage][(y + i * 16) * BK + k], BK);
            wmma::load_matrix_sync(b[i], &shared.b[stage][k * BN + x + i * 16], BN);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) wmma::mma_sync(sums[i / 2][i % 2], a[i / 2], b[i % 2], sums[i / 2][i % 2]);
    }
    __device__ void compute(int stage) {
        if (STYLE == ROLLED) {
#pragma unroll 1
            for (int k = 0; k < BK; k += 16) step(stage, k);
        } else {
#pragma unroll
            for (int k = 0; k < BK; k += 16) step(stage, k);
        }
    }
    __device__ void finish() {
        const int warp = threadIdx.x / 32;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wmma::store_matrix_sync(C + size_t(row0 + warp / 2 * 32 + i / 2 * 16) * Ncols + col0 + warp % 2 * 32 + i % 2 * 16,
                                    sums[i / 2][i % 2], Ncols, wmma::mem_row_major);
    }
};
#include "orders.cuh"
