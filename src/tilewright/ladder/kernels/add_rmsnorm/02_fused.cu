// The residual is added on the way: the sum is written, and normalised from the registers that it is in. One launch
// reads two arrays and writes two; the separate ones read three and write two.
//
// A row of up to WORKERS * PACKS * 16 bytes fits. Short rows are one warp's (WORKERS = 32, ROWS of them in a block).
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "block.cuh"
#include "dependent.cuh"
#include "round.cuh"
#include "row.cuh"

#ifndef WORKERS
#define WORKERS 256  // threads of a row
#define ROWS 1       // rows of a block; several only if a row is one warp's
#define PACKS 2      // packs of a thread
#endif
constexpr int THREADS = WORKERS * ROWS;
static_assert(ROWS == 1 || WORKERS == 32, "a row is one block's or one warp's");
// Of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int BLOCKS = 1024 / THREADS;

__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* residual, const TW_T* weight, TW_T* total,
                                         TW_T* y, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    Pack packs[PACKS], others[PACKS];
    load_row<WORKERS>(packs, x, C, worker, 0.0f);
    load_row<WORKERS>(others, residual, C, worker, 0.0f);

    // Sums are rounded to the element type, and it is what they are rounded to that is normalised.
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float added[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) added[j] = to_float(packs[i].at[j]) + to_float(others[i].at[j]);
        packs[i] = rounded(added);
        store_in_row<WORKERS>(total, packs[i], i, C, worker);
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
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    keep_packed(packs);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const Pack weights = load_shared_row<WORKERS>(weight, i, C, worker);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = to_float(packs[i].at[j]) * scale * to_float(weights.at[j]);
        store_in_row<WORKERS>(y, rounded(results), i, C, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* residual, const TW_T* weight,
                                                     TW_T* total, TW_T* y, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    float squares = 0.0f;
    for (int column = worker; column < C; column += WORKERS) {
        from_float(total[column], to_float(x[column]) + to_float(residual[column]));
        squares += to_float(total[column]) * to_float(total[column]);
    }
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    for (int column = worker; column < C; column += WORKERS)
        from_float(y[column], to_float(total[column]) * scale * to_float(weight[column]));
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
add_rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ residual, const TW_T* __restrict__ weight,
            TW_T* __restrict__ total, TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (C > WORKERS * PACKS * TW_PACK) __trap();
    if (row >= R) return;
    x += row * ld_x;
    residual += row * C;
    total += row * C;
    y += row * C;
    const bool packed = C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(residual) && is_pack_aligned(total) &&
                        is_pack_aligned(y) && is_pack_aligned(weight);
    if (packed) make_row(x, residual, weight, total, y, C, epsilon);
    else make_row_by_elements(x, residual, weight, total, y, C, epsilon);
}
