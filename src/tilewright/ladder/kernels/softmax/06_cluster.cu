// Long rows, read once: CLUSTER blocks hold a row in their registers and tell each other, through their shared
// memories, the maximum and the sum of their parts. No second launch, no second reading.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits: 512 KiB with 8 blocks of 512 threads and 8 packs.
#include "block.cuh"
#include "cluster.cuh"
#include "dependent.cuh"
#include "exponential.cuh"
#include "round.cuh"
#include "row.cuh"

#ifndef CLUSTER
#define CLUSTER 4    // blocks of a row
#define WORKERS 128  // threads of a block
#define PACKS 1      // packs of a thread
#endif
constexpr int PART = WORKERS * PACKS * (16 / TW_T_BYTES);  // elements of a block
// Of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int BLOCKS = (PACKS <= 4 ? 1536 : 1024) / WORKERS;

struct RowState {
    float largest, sum;
};

// What is known of a block's part, merged with what the other blocks know of theirs. They still may read this block's
// memory afterwards: it has to wait for them before it ends.
__device__ __forceinline__ RowState merged(float largest, float sum) {
    __shared__ float state[2];
    if (threadIdx.x == 0) {
        state[0] = largest;
        state[1] = sum;
    }
    cluster_arrive();
    cluster_wait();
    // Every warp merges the parts, one a lane: the same order in all blocks.
    const int lane = threadIdx.x % 32;
    const float part_largest = lane < CLUSTER ? load_of_block(&state[0], lane) : MINUS_INFINITY;
    const float part_sum = lane < CLUSTER ? load_of_block(&state[1], lane) : 0.0f;
    cluster_arrive();  // this block reads no other's memory from here on
    const float row_largest = warp_max(part_largest);
    return {row_largest, warp_sum(part_sum * exponential(part_largest - finite_base(row_largest)))};
}

__device__ __forceinline__ void make_part(const TW_T* x, TW_T* y, int columns) {
    __shared__ float maxima[WORKERS / 32], sums[WORKERS / 32];
    const int worker = threadIdx.x;
    Pack packs[PACKS];
    load_row<WORKERS>(packs, x, columns, worker, MINUS_INFINITY);

    float largest = MINUS_INFINITY;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i)
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) largest = fmaxf(largest, to_float(packs[i].at[j]));
    largest = block_max(largest, maxima);
    keep_packed(packs);
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
    keep_packed(packs);
    const RowState row = merged(largest, sum);
    // What is kept of a float is exp(x - base); of others, x. Of a part of -inf, 0 times exp(-inf) is 0.
    const float scale = (TW_T_BYTES == 4 ? exponential(largest - row.largest) : 1.0f) / row.sum;

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float value = to_float(packs[i].at[j]);
            results[j] = (TW_T_BYTES == 4 ? value : exponential(value - row.largest)) * scale;
        }
        store_in_row<WORKERS>(y, rounded(results), i, columns, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_part_by_elements(const TW_T* x, TW_T* y, int columns) {
    __shared__ float maxima[WORKERS / 32], sums[WORKERS / 32];
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (int column = threadIdx.x; column < columns; column += WORKERS) largest = fmaxf(largest, to_float(x[column]));
    largest = block_max(largest, maxima);
    const float base = finite_base(largest);
    for (int column = threadIdx.x; column < columns; column += WORKERS) sum += exponential(to_float(x[column]) - base);
    const RowState row = merged(largest, block_sum(sum, sums));
    for (int column = threadIdx.x; column < columns; column += WORKERS)
        from_float(y[column], exponential(to_float(x[column]) - row.largest) / row.sum);
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, BLOCKS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    if (C > CLUSTER * PART) __trap();
    const long long row = blockIdx.x / CLUSTER;
    const int begin = cluster_rank() * PART;
    x += row * ld_x;
    y += row * C;
    const int columns = max(0, min(PART, C - begin));  // the last blocks may have none, but are waited for
    if (C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y)) make_part(x + begin, y + begin, columns);
    else make_part_by_elements(x + begin, y + begin, columns);
    cluster_wait();  // no other block reads this one's: its shared memory may go
}
