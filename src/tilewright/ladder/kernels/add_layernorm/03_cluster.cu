// Long rows: CLUSTER blocks add the residual to a row's parts, keep the sums in their registers, and tell each other
// their means and squares through their shared memories. Nothing is read twice.
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

struct Normal {
    float mean, scale;
};

// The mean and the sum of squares around it of a block's part, merged with those of the others' by Chan's formula. They
// still may read this block's memory afterwards: it has to wait for them before it ends.
__device__ __forceinline__ Normal merged(float part_mean, float part_square, int C, float epsilon) {
    __shared__ float moments[2];
    if (threadIdx.x == 0) {
        moments[0] = part_mean;
        moments[1] = part_square;
    }
    cluster_arrive();
    cluster_wait();
    // In every warp, one part a lane: the same order in all blocks.
    const int lane = threadIdx.x % 32;
    const float count = lane < CLUSTER ? max(0, min(PART, C - lane * PART)) : 0;
    const float lane_mean = lane < CLUSTER ? load_of_block(&moments[0], lane) : 0.0f;
    const float lane_square = lane < CLUSTER ? load_of_block(&moments[1], lane) : 0.0f;
    cluster_arrive();  // this block reads no other's memory from here on
    const float mean = warp_sum(lane_mean * count) / C;
    const float apart = count > 0 ? lane_mean - mean : 0.0f;
    return {mean, rsqrtf(warp_sum(lane_square + apart * apart * count) / C + epsilon)};
}

__device__ __forceinline__ void make_part(const TW_T* x, const TW_T* residual, const TW_T* weight, const TW_T* bias,
                                          TW_T* total, TW_T* y, int columns, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32], squares[WORKERS / 32];
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

    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i)
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sum += to_float(packs[i].at[j]);
    const float part_mean = block_sum(sum, sums) / max(columns, 1);
    keep_packed(packs);

    float square = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const bool inside = column_of<WORKERS>(i, worker) < columns;
            const float left = inside ? to_float(packs[i].at[j]) - part_mean : 0.0f;
            square += left * left;
        }
    }
    square = block_sum(square, squares);
    keep_packed(packs);
    const Normal row = merged(part_mean, square, C, epsilon);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const Pack weights = load_shared_row<WORKERS>(weight, i, columns, worker);
        const Pack biases = load_shared_row<WORKERS>(bias, i, columns, worker);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float value = (to_float(packs[i].at[j]) - row.mean) * row.scale;
            results[j] = value * to_float(weights.at[j]) + to_float(biases.at[j]);
        }
        store_in_row<WORKERS>(y, rounded(results), i, columns, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_part_by_elements(const TW_T* x, const TW_T* residual, const TW_T* weight,
                                                      const TW_T* bias, TW_T* total, TW_T* y, int columns, int C,
                                                      float epsilon) {
    __shared__ float sums[WORKERS / 32], squares[WORKERS / 32];
    float sum = 0.0f, square = 0.0f;
    for (int column = threadIdx.x; column < columns; column += WORKERS) {
        from_float(total[column], to_float(x[column]) + to_float(residual[column]));
        sum += to_float(total[column]);
    }
    const float part_mean = block_sum(sum, sums) / max(columns, 1);
    for (int column = threadIdx.x; column < columns; column += WORKERS) {
        const float left = to_float(total[column]) - part_mean;
        square += left * left;
    }
    const Normal row = merged(part_mean, block_sum(square, squares), C, epsilon);
    for (int column = threadIdx.x; column < columns; column += WORKERS) {
        const float value = (to_float(total[column]) - row.mean) * row.scale;
        from_float(y[column], value * to_float(weight[column]) + to_float(bias[column]));
    }
}

extern "C" __cluster_dims__(CLUSTER, 1, 1) __global__ void __launch_bounds__(WORKERS, BLOCKS)
add_layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ residual, const TW_T* __restrict__ weight,
              const TW_T* __restrict__ bias, TW_T* __restrict__ total, TW_T* __restrict__ y, int R, int C,
              long long ld_x, float epsilon) {
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
    bias += begin;
    const bool packed = C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(residual) && is_pack_aligned(total) &&
                        is_pack_aligned(y) && is_pack_aligned(weight) && is_pack_aligned(bias);
    if (packed) make_part(x, residual, weight, bias, total, y, columns, C, epsilon);
    else make_part_by_elements(x, residual, weight, bias, total, y, columns, C, epsilon);
    cluster_wait();  // no other block reads this one's: its shared memory may go
}
