// Where an operation has fewer tiles than a card has room for, the blocks of a cluster share a tile. Each takes a part of
// K; in the end each adds up some rows of all of them, which it reads from their shared memories, in the order of the
// parts. No partial sum goes through global memory, and no second launch is needed. The main loop is that of the rung
// with three stages; the size of the tile and the number of parts come from outside.
#include <cuda_pipeline.h>

#include "cluster.cuh"

#ifndef TW_BM
#define TW_BM 64
#define TW_BN 64
#define TW_TN 8
#define TW_PARTS 2
#endif

constexpr int BM = TW_BM;
constexpr int BN = TW_BN;
constexpr int BK = 16;
constexpr int TM = 8;
constexpr int TN = TW_TN;
constexpr int WM = 4 * TM;
constexpr int WN = 8 * TN;
constexpr int PARTS = TW_PARTS;  // of K: 1, 2, 4 or 8
constexpr int STAGES = 3;
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int B_PIECES = BK * BN / 4 / THREADS;
static_assert(TM % PARTS == 0, "every block adds up as many rows as the others");

extern "C" __cluster_dims__(1, 1, PARTS) __global__ void __launch_bounds__(THREADS)
sgemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K, int ld_a,
      int ld_b) {
    extern __shared__ __align__(128) unsigned char tile_ring[];
    auto& a_tile_ring = *reinterpret_cast<float (*)[STAGES][BK][BM + 4]>(tile_ring);  // turned
    auto& b_tile_ring = *reinterpret_cast<float (*)[STAGES][BK][BN]>(tile_ring + sizeof(a_tile_ring));
    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int patch_row = warp / (BN / WN) * WM + (lane / 16 * 2 + lane % 2) * 4;
    const int patch_column = warp % (BN / WN) * WN + lane % 16 / 2 * 4;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    // A part is whole tiles; the last ones may have fewer, or none.
    const int part_length = ((K + BK - 1) / BK + PARTS - 1) / PARTS * BK;
    const int begin = min(K, blockIdx.z * part_length);
    const int end = min(K, begin + part_length);
    a += (long long)first_row * ld_a + begin;
    b += (long long)begin * ld_b + first_column;

    float sums[TM][TN] = {};
    auto copy_tile = [&](int k0, int stage) {
        auto& a_tile = a_tile_ring[stage];
        auto& b_tile = b_tile_ring[stage];
        #pragma unroll
        for (int i = 0; i < BM; i += THREADS / 8) {
            const int row = tid / 8 + i;
            const int k = tid % 8;
            __pipeline_memcpy_async(&a_tile[k][row], &a[row * ld_a + k], 4, first_row + row < M && k0 + k < K ? 0 : 4);
            __pipeline_memcpy_async(&a_tile[k + 8][row], &a[row * ld_a + k + 8], 4,
                                    first_row + row < M && k0 + k + 8 < K ? 0 : 4);
        }
        #pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            const int piece = tid + i * THREADS;
            const int k = piece / (BN / 4);
            const int column = piece % (BN / 4) * 4;
            __pipeline_memcpy_async(&b_tile[k][column], &b[k * ld_b + column], 16,
                                    k0 + k < K && first_column + column < N ? 0 : 16);
        }
        a += BK;
        b += (long long)BK * ld_b;
    };

    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (begin + stage * BK < end) copy_tile(begin + stage * BK, stage);
        __pipeline_commit();
    }

    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int k0 = begin; k0 < end; k0 += BK) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        const int k0_ahead = k0 + (STAGES - 1) * BK;
        if (k0_ahead < end) copy_tile(k0_ahead, write_stage);
        __pipeline_commit();

        auto& a_tile = a_tile_ring[read_stage];
        auto& b_tile = b_tile_ring[read_stage];
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

    const float one = K > 0 ? 1.0f : 0.0f;  // unknown to the compiler, as in 07_operand_reuse
    auto store = [&](int i, int j, float4 four) {
        const int row = first_row + patch_row + i / 4 * (4 * WM / TM) + i % 4;
        const int column = first_column + patch_column + j * (WN / TN);
        if (row < M && column < N) *reinterpret_cast<float4*>(&c[(long long)row * N + column]) = four;
    };
    auto four_sums = [&](int i, int j) {
        return make_float4(one * sums[i][j], one * sums[i][j + 1], one * sums[i][j + 2], one * sums[i][j + 3]);
    };
    if (PARTS == 1) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; j += 4) store(i, j, four_sums(i, j));
        }
        return;
    }
    // The ring is done with: it holds the block's sums, quads of a thread THREADS apart, so that a warp's lie together.
    __syncthreads();
    float4* quads = reinterpret_cast<float4*>(tile_ring) + tid;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; j += 4) quads[(i * TN + j) / 4 * THREADS] = four_sums(i, j);
    }
    cluster_arrive();
    cluster_wait();
    #pragma unroll
    for (int own = 0; own < TM / PARTS; ++own) {
        const int i = blockIdx.z * (TM / PARTS) + own;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            float4 four = load4_of_block(&quads[(i * TN + j) / 4 * THREADS], 0);
            #pragma unroll
            for (int part = 1; part < PARTS; ++part) {
                const float4 more = load4_of_block(&quads[(i * TN + j) / 4 * THREADS], part);
                four = make_float4(four.x + more.x, four.y + more.y, four.z + more.z, four.w + more.w);
            }
            store(i, j, four);
        }
    }
    cluster_arrive();  // nobody reads this block's memory any more when it ends
    cluster_wait();
}
