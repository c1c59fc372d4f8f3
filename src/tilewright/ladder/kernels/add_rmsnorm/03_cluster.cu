// Long rows: CLUSTER blocks add the residual to a row's parts, keep the sums in their registers, and tell each other
// the sums of their squares through their shared memories. Nothing is read twice.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits: 512 KiB with 8 blocks of 512 threads and 8 packs.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "block.cuh"
#include "cluster.cuh"
#include "dependent.cuh"
#include "round.cuh"
#include "row.cuh"

#ifndef CLUSTER
#define CLUSTER 4    // blocks of a row
#define WORKERS 128  // threads of a block
#define PACKS 1      // packs of a thread
#endif
constexpr int PART = WORKERS * PACKS * (16 / TW_T_BYTES);  // elements of a block
// Of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int BLOCKS = 1024 / WORKERS;

// What a block found, added to what the other blocks did. They still may read this block's memory afterwards: it has to
// wait for them before it ends.
__device__ __forceinline__ float sum_of_parts(float part) {
    __shared__ float shared;
    if (threadIdx.x == 0) shared = part;
    cluster_arrive();
    cluster_wait();
    // In every warp, one part a lane: the same order in all blocks.
    const int lane = threadIdx.x % 32;
    const float found = lane < CLUSTER ? load_of_block(&shared, lane) : 0.0f;
    cluster_arrive();  // this block reads no other's memory from here on
    return warp_sum(found);
}

__device__ __forceinline__ void make_part(const TW_T* x, const TW_T* residual, const TW_T* weight, TW_T* total,
                                          TW_T* y, int columns, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32];
    const int worker = threadIdx.x;
    Pack packs[PACKS], others[PACKS];
    load_row<WORKERS>(packs, x, columns, worker, 0.0f);
    load_row<WORKERS>(others, residual, columns, worker, 0.0f);

    // Sums are rounded to the element type, and it is what they are rounded to that is normalised.
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float added[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) added[j] = to_float(packs[i].at[j]) + to_float(others[i].at[j]);
        packs[i] = rounded(added);
        store_in_row<WORKERS>(total, packs[i], i, columns, worker);
    }
    keep_packed(packs);

    float squares = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float value = to_float(packs[i].at[j]);
            squares += value * value;
        }
    }
    const float scale = rsqrtf(sum_of_parts(block_sum(squares, sums)) / C + epsilon);
    keep_packed(packs);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const Pack weights = load_shared_row<WORKERS>(weight, i, columns, worker);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = to_float(packs[i].at[j]) * scale * to_float(weights.at[j]);
        store_in_row<WORKERS>(y, rounded(results), i, columns, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_part_by_elements(const TW_T* x, const TW_T* residual, const TW_T* weight,
                                                      TW_T* total, TW_T* y, int columns, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32];
    float squares = 0.0f;
    for (int column = threadIdx.x; column < columns; column += WORKERS) {
        from_float(total[column], to_float(x[column]) + to_float(residual[column]));
        squares += to_float(total[column]) * to_float(total[column]);
    }
    const float scale = rsqrtf(sum_of_parts(block_sum(squares, sums)) / C + epsilon);
    for (int column = threadIdx.x; column < columns; column += WORKERS)
        from_float(y[column], to_float(total[column]) * scale * to_float(weight[column]));
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, BLOCKS)
add_rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ residual, const TW_T* __restrict__ weight,
            TW_T* __restrict__ total, TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    if (C > CLUSTER * PART) __trap();
    const long long row = blockIdx.x / CLUSTER;
    const int begin = cluster_rank() * PART;
    const int columns = max(0, min(PART, C - begin));  // the last blocks may have none, but are waited for
    x += row * ld_x + begin;
    residual += row * C + begin;
    total += row * C + begin;
    y += row * C + begin;
    weight += begin;
    const bool packed = C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(residual) && is_pack_aligned(total) &&
                        is_pack_aligned(y) && is_pack_aligned(weight);
    if (packed) make_part(x, residual, weight, total, y, columns, C, epsilon);
    else make_part_by_elements(x, residual, weight, total, y, columns, C, epsilon);
    cluster_wait();  // no other block reads this one's: its shared memory may go
}
