// Long rows, read once: CLUSTER blocks hold a row in their registers and tell each other, through their shared
// memories, the maximum and the sum of their parts. No second launch, no second reading.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits: 512 KiB with 8 blocks of 512 threads and 8 packs.
#include "block.cuh"
#include "cluster.cuh"
#include "exponential.cuh"
#include "round.cuh"
#include "row.cuh"

#ifndef CLUSTER
#define CLUSTER 4    // blocks of a row
#define WORKERS 128  // threads of a block
#define PACKS 1      // packs of a thread
#endif
constexpr int PART = WORKERS * PACKS * (16 / TW_T_BYTES);  // elements of a block

template <bool PACKED>
__device__ __forceinline__ void make_part(const TW_T* x, TW_T* y, int columns) {
    __shared__ float maxima[WORKERS / 32], sums[WORKERS / 32];
    __shared__ float state[2];  // the part's largest element, and its sum: read by the other blocks
    const int worker = threadIdx.x;
    Pack packs[PACKS];
    load_row<PACKED, WORKERS>(packs, x, columns, worker, MINUS_INFINITY);

    float largest = MINUS_INFINITY;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i)
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) largest = fmaxf(largest, to_float(packs[i].at[j]));
    largest = block_max(largest, maxima);
    const float base = finite_base(largest);  // a part may be -inf throughout where the row is not

    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float power = exponential(to_float(packs[i].at[j]) - base);
            sum += power;
            if constexpr (TW_T_BYTES == 4) packs[i].at[j] = power;
        }
    }
    sum = block_sum(sum, sums);
    if (worker == 0) {
        state[0] = largest;
        state[1] = sum;
    }
    cluster_arrive();
    cluster_wait();

    // Every warp merges the parts, one a lane: the same order in all blocks.
    const int lane = worker % 32;
    const float part_largest = lane < CLUSTER ? load_of_block(&state[0], lane) : MINUS_INFINITY;
    const float part_sum = lane < CLUSTER ? load_of_block(&state[1], lane) : 0.0f;
    cluster_arrive();  // this block reads no other's memory from here on
    const float row_largest = warp_max(part_largest);
    const float row_sum = warp_sum(part_sum * exponential(part_largest - finite_base(row_largest)));
    // What is kept of a float is exp(x - base); of others, x. Of a part of -inf, 0 times exp(-inf) is 0.
    const float scale = (TW_T_BYTES == 4 ? exponential(largest - row_largest) : 1.0f) / row_sum;

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float value = to_float(packs[i].at[j]);
            results[j] = (TW_T_BYTES == 4 ? value : exponential(value - row_largest)) * scale;
        }
        store_in_row<PACKED, WORKERS>(y, rounded(results), i, columns, worker);
    }
    cluster_wait();  // and no other reads this block's: its shared memory may go
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    if (C > CLUSTER * PART) __trap();
    const long long row = blockIdx.x / CLUSTER;
    const int begin = cluster_rank() * PART;
    x += row * ld_x;
    y += row * C;
    const int columns = max(0, min(PART, C - begin));  // the last blocks may have none, but are waited for
    if (C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y)) make_part<true>(x + begin, y + begin, columns);
    else make_part<false>(x + begin, y + begin, columns);
}
