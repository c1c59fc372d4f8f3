// Long rows: CLUSTER blocks hold a row in their registers, and tell each other the sums of their squares through their
// shared memories. The row is still read once.
//
// A row of up to CLUSTER * WORKERS * PACKS * 16 bytes fits: 512 KiB with 8 blocks of 512 threads and 8 packs.
#include "block.cuh"
#include "cluster.cuh"
#include "round.cuh"
#include "row.cuh"

#ifndef CLUSTER
#define CLUSTER 4    // blocks of a row
#define WORKERS 128  // threads of a block
#define PACKS 1      // packs of a thread
#endif
constexpr int PART = WORKERS * PACKS * (16 / TW_T_BYTES);  // elements of a block

template <bool PACKED>
__device__ __forceinline__ void make_part(const TW_T* x, const TW_T* weight, TW_T* y, int columns, int C,
                                          float epsilon) {
    __shared__ float sums[WORKERS / 32];
    __shared__ float part_squares;  // read by the other blocks
    const int worker = threadIdx.x;
    Pack packs[PACKS];
    load_row<PACKED, WORKERS>(packs, x, columns, worker, 0.0f);

    float squares = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float value = to_float(packs[i].at[j]);
            squares += value * value;
        }
    }
    squares = block_sum(squares, sums);
    if (worker == 0) part_squares = squares;
    cluster_arrive();
    cluster_wait();

    // Every warp adds up the parts, one a lane: the same order in all blocks.
    const int lane = worker % 32;
    squares = lane < CLUSTER ? load_of_block(&part_squares, lane) : 0.0f;
    cluster_arrive();  // this block reads no other's memory from here on
    const float scale = rsqrtf(warp_sum(squares) / C + epsilon);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const Pack weights = load_shared_row<PACKED, WORKERS>(weight, i, columns, worker);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = to_float(packs[i].at[j]) * scale * to_float(weights.at[j]);
        store_in_row<PACKED, WORKERS>(y, rounded(results), i, columns, worker);
    }
    cluster_wait();  // and no other reads this block's: its shared memory may go
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS)
rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int R, int C, long long ld_x,
        float epsilon) {
    if (C > CLUSTER * PART) __trap();
    const long long row = blockIdx.x / CLUSTER;
    const int begin = cluster_rank() * PART;
    const int columns = max(0, min(PART, C - begin));  // the last blocks may have none, but are waited for
    x += row * ld_x;
    y += row * C;
    const bool packed = C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) && is_pack_aligned(weight);
    if (packed) make_part<true>(x + begin, weight + begin, y + begin, columns, C, epsilon);
    else make_part<false>(x + begin, weight + begin, y + begin, columns, C, epsilon);
}
