#include <cuda_pipeline.h>
// Two changes of where things stand in shared memory, so that no access to it takes more passes than its bytes need:
//   - A stays as it is in global memory, [row][k]. A thread reads four steps of K of a row as one float4, instead of four
//     rows of one step; the turned copy of A, whose stores met in a few banks, is gone. So is the turning: both tiles
//     are copied in 16-byte pieces as they are, which is what an asynchronous copy could do too.
//   - A thread's columns are four runs of four, 32 columns apart, so that a row of eight lanes reads 128 bytes in a piece.
#ifndef TW_BM
#define TW_BM 128
#endif
#ifndef TW_BN
#define TW_BN 256
#endif

constexpr int BM = TW_BM;  // multiples of WM and WN; smaller ones where there would be too few blocks for a card
constexpr int BN = TW_BN;
constexpr int BK = 16;
constexpr int WM = 32;
constexpr int WN = 128;
constexpr int TM = 8;
constexpr int TN = 16;
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int A_PIECES = BM * BK / 4 / THREADS;
constexpr int B_PIECES = BK * BN / 4 / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    constexpr int STAGES = 2;
    __shared__ __align__(16) float a_tile_ring[STAGES][BM][BK];
    __shared__ __align__(16) float b_tile_ring[STAGES][BK][BN];
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    // A thread makes every fourth row of its warp's 32, and four runs of four columns.
    const int patch_row = warp / (BN / WN) * WM + lane / 16 * 2 + lane % 2;
    const int patch_column = warp % (BN / WN) * WN + lane % 16 / 2 * 4;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    a += (long long)first_row * ld_a;
    b += first_column;

    float sums[TM][TN] = {};
    // Software pipeline: while a tile is computed, the copies of the next STAGES - 1 tiles are in flight.
    auto copy_tile = [&](int k0, int stage) {
        auto &a_tile = a_tile_ring[stage];
        auto &b_tile = b_tile_ring[stage];
        // K and N are multiples of 4, and rows begin at multiples of 16 bytes: a piece exists whole, or not at all.
        #pragma unroll
        for (int i = 0; i < A_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int row = piece / (BK / 4);
            const int k = piece % (BK / 4) * 4;
            __pipeline_memcpy_async(reinterpret_cast<float4*>(&a_tile[row][k]),
                reinterpret_cast<const float4*>(&a[row * ld_a + k]),
                16, (first_row + row < M && k0 + k < K) ? 0 : 16);
        }
        #pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int k = piece / (BN / 4);
            const int column = piece % (BN / 4) * 4;
            __pipeline_memcpy_async(reinterpret_cast<float4*>(&b_tile[k][column]),
                reinterpret_cast<const float4*>(&b[k * ld_b + column]),
                16, (k0 + k < K && first_column + column < N) ? 0 : 16);
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
        for (int k = 0; k < BK; k += 4) {
            float a_part[TM][4];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                const float4 read = *reinterpret_cast<const float4*>(&a_tile[patch_row + i * 4][k]);
                a_part[i][0] = read.x;
                a_part[i][1] = read.y;
                a_part[i][2] = read.z;
                a_part[i][3] = read.w;
            }
            #pragma unroll
            for (int step = 0; step < 4; ++step) {
                #pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    const float4 b_part = *reinterpret_cast<const float4*>(&b_tile[k + step][patch_column + j * 8]);
                    #pragma unroll
                    for (int i = 0; i < TM; ++i) {
                        sums[i][j + 0] = fmaf(a_part[i][step], b_part.x, sums[i][j + 0]);
                        sums[i][j + 1] = fmaf(a_part[i][step], b_part.y, sums[i][j + 1]);
                        sums[i][j + 2] = fmaf(a_part[i][step], b_part.z, sums[i][j + 2]);
                        sums[i][j + 3] = fmaf(a_part[i][step], b_part.w, sums[i][j + 3]);
                    }
                }
            }
        }

        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    __syncthreads();  // as behind every tile of the original: nobody still reads the last one

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = first_row + patch_row + i * 4;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int column = first_column + patch_column + j * 8;
            if (row < M && column < N) {
                *reinterpret_cast<float4*>(&c[(long long)row * N + column])
                    = make_float4(sums[i][j + 0], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
            }
        }
    }
}
