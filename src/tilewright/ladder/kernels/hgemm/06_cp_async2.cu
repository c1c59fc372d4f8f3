// ldmatrix reads 8 rows of 16 bytes at a time. Rows of a tile begin in the same banks, or in two groups of them, so
// that these reads wait for each other. A piece of 16 bytes therefore lies where its number, XORed with its row's,
// says: 8 rows that are read together are then in 8 groups of banks, and no memory is lost to padding.
#include "mma.cuh"
#include <cuda_pipeline.h>

#ifndef TW_BM
#define TW_BM 128
#define TW_BN 128
#define TW_WM 64
#define TW_WN 64
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 32;
constexpr int WM = TW_WM;  // what a warp makes
constexpr int WN = TW_WN;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int A_ROWS = THREADS / (BK / 8);  // that all threads copy at a time
constexpr int B_ROWS = THREADS / (BN / 8);
static_assert(A_ROWS % 8 == 0 && B_ROWS % 8 == 0, "the XOR is the same in all rows that a thread copies");

extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    constexpr int STAGES = 2;
    __shared__ __align__(16) TW_T a_tile_ring[STAGES][BM][BK];
    __shared__ __align__(16) TW_T b_tile_ring[STAGES][BK][BN];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int a_row = tid / (BK / 8);
    const int a_k = tid % (BK / 8) * 8;
    const int b_k = tid / (BN / 8);
    const int b_column = tid % (BN / 8) * 8;
    const int a_place = (a_k / 8 ^ a_row / 2 % 4) * 8;
    const int b_place = (b_column / 8 ^ b_k % 8) * 8;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    float sums[WM / 16][WN / 8][4] = {};
    // Software pipeline: while a tile is computed, the copies of the next STAGES - 1 tiles are in flight.
    auto copy_tile = [&](int k0, int stage) {
        auto &a_tile = a_tile_ring[stage];
        auto &b_tile = b_tile_ring[stage];
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            __pipeline_memcpy_async(reinterpret_cast<uint4*>(&a_tile[a_row + i][a_place]),
                reinterpret_cast<const uint4*>(&a[(a_row + i) * ld_a + a_k]),
                16, (first_row + a_row + i < M && k0 + a_k < K) ? 0 : 16);
        }
        #pragma unroll
        for (int i = 0; i < BK; i += B_ROWS) {
            __pipeline_memcpy_async(reinterpret_cast<uint4*>(&b_tile[b_k + i][b_place]),
                reinterpret_cast<const uint4*>(&b[(b_k + i) * ld_b + b_column]),
                16, (k0 + b_k + i < K && first_column + b_column < N) ? 0 : 16);
        }

        a += BK;
        b += (long long)BK * ld_b;
    };

    // Prologue: fill all stages but one. Each commits, even with no tile left: the wait counts groups.
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        int k0 = stage * BK;
        if (k0 < K) copy_tile(k0, stage);
        __pipeline_commit();
    }

    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        __pipeline_wait_prior(STAGES - 2);  // this tile has landed
        __syncthreads();  // for every thread; and nobody still reads the stage that is filled next
        const int k0_ahead = k0 + (STAGES - 1) * BK;
        if (k0_ahead < K) copy_tile(k0_ahead, write_stage);
        __pipeline_commit();

        auto &a_tile = a_tile_ring[read_stage];
        auto &b_tile = b_tile_ring[read_stage];
        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned a_part[WM / 16][4];
            unsigned b_part[WN / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                const int row = warp_row + i * 16 + lane % 16;
                load_matrices(a_part[i], &a_tile[row][((k / 8 + lane / 16) ^ row / 2 % 4) * 8]);
            }
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                const int row = k + lane % 16;
                load_turned_matrices(b_part[j], &b_tile[row][((warp_column + j * 16) / 8 + lane / 16 ^ row % 8) * 8]);
            }
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                #pragma unroll
                for (int j = 0; j < WN / 8; ++j) {
                    multiply_add(sums[i][j], a_part[i], b_part[j / 2][j % 2 * 2], b_part[j / 2][j % 2 * 2 + 1]);
                }
            }
        }

        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    __syncthreads();  // as behind every tile of the original: nobody still reads the last one

    #pragma unroll
    for (int i = 0; i < WM / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < WN / 8; ++j) {
            const int row = first_row + warp_row + i * 16 + lane / 4;
            const int column = first_column + warp_column + j * 8 + lane % 4 * 2;
            if (column < N && row < M) store_pair(&c[(long long)row * N + column], sums[i][j][0], sums[i][j][1]);
            if (column < N && row + 8 < M) {
                store_pair(&c[(long long)(row + 8) * N + column], sums[i][j][2], sums[i][j][3]);
            }
        }
    }
}
