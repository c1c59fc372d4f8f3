#include <cuda_pipeline.h>
// The same multiply-adds in another order: down a column of the thread's patch, and up the next one. Two that follow each
// other share an operand, that of A at the turns and that of B in between, and the compiler marks what the next one has
// in the same place (.reuse in the machine code): it is kept, and not read from the registers again.
// A multiply-add has three operands, and registers lie in two banks, the even and the odd ones: the two that are left to
// read should come from different banks. So nothing else may tie sums to banks. Stored as they are, 16 bytes at a time,
// they would have to be in runs of four registers; they are multiplied by a one that the compiler does not know, once.
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
constexpr int B_PIECES = BK * BN / 4 / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    constexpr int STAGES = 2;
    // Above 48 KiB, so dynamic: launch with 49664 bytes, and raise the kernel's
    // cudaFuncAttributeMaxDynamicSharedMemorySize first (cudaFuncSetAttribute).
    extern __shared__ __align__(128) unsigned char tile_ring[];
    auto &a_tile_ring = *reinterpret_cast<float (*)[STAGES][BK][BM + 4]>(tile_ring);  // turned
    auto &b_tile_ring = *reinterpret_cast<float (*)[STAGES][BK][BN]>(tile_ring + sizeof(a_tile_ring));
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    // A thread makes two runs of four rows, 16 apart, and four runs of four columns, 32 apart.
    const int patch_row = warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
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
        #pragma unroll
        for (int i = 0; i < BM; i += THREADS / 8) {
            const int row = tid / 8 + i;
            const int k = tid % 8;
            __pipeline_memcpy_async(&a_tile[k][row],
                &a[row * ld_a + k],
                4, (first_row + row < M && k0 + k < K) ? 0 : 4);
            __pipeline_memcpy_async(&a_tile[k + 8][row],
                &a[row * ld_a + k + 8],
                4, (first_row + row < M && k0 + k + 8 < K) ? 0 : 4);
        }
        // N is a multiple of 4, and rows of B begin at multiples of 16 bytes: a piece exists whole, or not at all.
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
        for (int k = 0; k < BK; ++k) {
            float a_part[TM];
            float b_part[TN];
            #pragma unroll
            for (int i = 0; i < TM; i += 4) {
                const float4 read = *reinterpret_cast<const float4*>(&a_tile[k][patch_row + i * (WM / TM)]);
                a_part[i + 0] = read.x;
                a_part[i + 1] = read.y;
                a_part[i + 2] = read.z;
                a_part[i + 3] = read.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const float4 read = *reinterpret_cast<const float4*>(&b_tile[k][patch_column + j * (WN / TN)]);
                b_part[j + 0] = read.x;
                b_part[j + 1] = read.y;
                b_part[j + 2] = read.z;
                b_part[j + 3] = read.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                #pragma unroll
                for (int step = 0; step < TM; ++step) {
                    const int i = j % 2 == 0 ? step : TM - 1 - step;
                    sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }

        read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
        write_stage = write_stage + 1 == STAGES ? 0 : write_stage + 1;
    }
    __syncthreads();  // as behind every tile of the original: nobody still reads the last one

    const float one = K > 0 ? 1.0f : 0.0f;  // without terms, the sums are zeros
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = first_row + patch_row + i / 4 * (4 * WM / TM) + i % 4;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int column = first_column + patch_column + j * (WN / TN);
            if (row < M && column < N) {
                *reinterpret_cast<float4*>(&c[(long long)row * N + column]) = make_float4(
                    one * sums[i][j + 0], one * sums[i][j + 1], one * sums[i][j + 2], one * sums[i][j + 3]);
            }
        }
    }
}
