// FP16 GEMM with mma.sync and ldmatrix: C[M,N] = A[M,K] B[N,K]^T, 64x64x32 tiles, 128 threads, padded rows.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
constexpr int BM = 64, BN = 64, BK = 32, PITCH = 40, THREADS = 128;
enum Style { PLAIN, ROLLED, STRIDED, GUARDED, FALLBACK };

template <int STAGES>
struct Buffers {  // rows of A, then rows of B
    half rows[STAGES][BM + BN][PITCH];
};
#define PARAMETERS const half* A, const half* B, half* C, int M, int Ncols, int K
#define ARGUMENTS A, B, C, M, Ncols, K

template <int STAGES, int STYLE = PLAIN>
struct Tile {
    Buffers<STAGES>& shared;
    const half *A, *B;
    half* C;
    int M, Ncols, K, row0, col0, count;
    int4 kept[4];
    float sums[2][4][4] = {};
    static constexpr int CHUNKS = BK / 8, TURNS = (BM + BN) * CHUNKS / THREADS;

    __device__ Tile(Buffers<STAGES>& s, PARAMETERS)
        : shared(s), A(A), B(B), C(C), M(M), Ncols(Ncols), K(K), row0(blockIdx.y * BM), col0(blockIdx.x * BN),
          count((K + BK - 1) / BK) {}
    __device__ const half* source(int i, int tile, bool& inside) {
        const int row = i / CHUNKS, k = tile * BK + i % CHUNKS * 8;
        inside = k < K && (row < BM ? row0 + row < M : col0 + row - BM < Ncols);
        return row < BM ? A + size_t(row0 + row) * K + k : B + size_t(col0 + row - BM) * K + k;
    }
    __device__ half* place(int i, int stage) { return &shared.rows[stage][i / CHUNKS][i % CHUNKS * 8]; }
    __device__ void move(half* to, const half* from, bool inside) {
        if (STYLE == FALLBACK) {
            if (inside && K % 8 == 0) __pipeline_memcpy_async(to, from, 16);
            else
                for (int e = 0; e < 8; ++e) to[e] = inside ? from[e] : half(0);
        } else if (STYLE == GUARDED) {
            __pipeline_memcpy_async(to, inside ? from : A, 16, inside ? 0 : 16);
        } else {
            __pipeline_memcpy_async(to, from, 16);
        }
    }
    __device__ void copy(int tile, int stage) {
        bool inside;
        if (STYLE == STRIDED) {
            for (int i = threadIdx.x; i < (BM + BN) * CHUNKS; i += blockDim.x) {
                const half* from = source(i, tile, inside);
                move(place(i, stage), from, true);
            }
        } else {
#pragma unroll
            for (int n = 0; n < TURNS; ++n) {
                const half* from = source(threadIdx.x + n * THREADS, tile, inside);
                move(place(threadIdx.x + n * THREADS, stage), from, inside);
            }
        }
    }
    __device__ void fetch(int tile) {
        bool inside;
#pragma unroll
        for (int n = 0; n < TURNS; ++n) {
            const half* from = source(threadIdx.x + n * THREADS, tile, inside);
            kept[n] = STYLE != GUARDED || inside ? __ldcg(reinterpret_cast<const int4*>(from)) : int4{0, 0, 0, 0};
        }
    }
    __device__ void store(int stage) {
#pragma unroll
        for (int n = 0; n < TURNS; ++n) *reinterpret_cast<int4*>(place(threadIdx.x + n * THREADS, stage)) = kept[n];
    }
    __device__ void step(int stage, int k) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, y = warp / 2 * 32, x = BM + warp % 2 * 32;
        unsigned a[2][4], b[4][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned at = __cvta_generic_to_shared(&shared.rows[stage][y + i % 2 * 16 + lane % 16][k + lane / 16 * 8]);
            if (i < 2) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(a[i % 2][0]), "=r"(a[i % 2][1]), "=r"(a[i % 2][2]), "=r"(a[i % 2][3]) : "r"(at));
            at = __cvta_generic_to_shared(&shared.rows[stage][x + i * 8 + lane % 8][k + lane / 8 % 2 * 8]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                         : "=r"(b[i][0]), "=r"(b[i][1]) : "r"(at));
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float* c = sums[i / 4][i % 4];
            unsigned *u = a[i / 4], *v = b[i % 4];
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                         : "r"(u[0]), "r"(u[1]), "r"(u[2]), "r"(u[3]), "r"(v[0]), "r"(v[1]));
        }
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
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = row0 + warp / 2 * 32 + i / 4 * 16 + lane / 4, col = col0 + warp % 2 * 32 + i % 4 * 8 + lane % 4 * 2;
            const float* c = sums[i / 4][i % 4];
            if (col + 1 < Ncols) {
                if (row < M) *reinterpret_cast<half2*>(C + size_t(row) * Ncols + col) = __floats2half2_rn(c[0], c[1]);
                if (row + 8 < M) *reinterpret_cast<half2*>(C + size_t(row + 8) * Ncols + col) = __floats2half2_rn(c[2], c[3]);
            }
        }
    }
};
#include "orders.cuh"
