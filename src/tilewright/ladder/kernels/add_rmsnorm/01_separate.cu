// The residual is added in one launch and the sum normalised in the next, as two operations of a framework are: the sum
// is written, and read again.
#include "block.cuh"
#include "round.cuh"
#include "row.cuh"

#ifndef THREADS
#define THREADS 256
#define PACKS 2  // of a thread
#endif
// Elements of a row that is kept in registers; longer ones go element by element, too.
constexpr int LONGEST = THREADS * PACKS * (16 / TW_T_BYTES);

// Sums are rounded to the element type, and it is what they are rounded to that is normalised.
__device__ __forceinline__ void add_row(const TW_T* x, const TW_T* residual, TW_T* total, int C) {
    Pack packs[PACKS], others[PACKS];
    load_row<THREADS>(packs, x, C, threadIdx.x, 0.0f);
    load_row<THREADS>(others, residual, C, threadIdx.x, 0.0f);
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float sums[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sums[j] = to_float(packs[i].at[j]) + to_float(others[i].at[j]);
        store_in_row<THREADS>(total, rounded(sums), i, C, threadIdx.x);
    }
}

__device__ __forceinline__ void normalise_row(const TW_T* total, const TW_T* weight, TW_T* y, int C, float epsilon) {
    __shared__ float sums[THREADS / 32];
    Pack packs[PACKS];
    load_row<THREADS>(packs, total, C, threadIdx.x, 0.0f);

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
        const Pack weights = load_shared_row<THREADS>(weight, i, C, threadIdx.x);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = to_float(packs[i].at[j]) * scale * to_float(weights.at[j]);
        store_in_row<THREADS>(y, rounded(results), i, C, threadIdx.x);
    }
}

// Other rows, element by element: what is read again comes from the caches.
__device__ __forceinline__ void normalise_row_by_elements(const TW_T* total, const TW_T* weight, TW_T* y, int C,
                                                          float epsilon) {
    __shared__ float sums[THREADS / 32];
    float squares = 0.0f;
    for (int column = threadIdx.x; column < C; column += THREADS)
        squares += to_float(total[column]) * to_float(total[column]);
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    for (int column = threadIdx.x; column < C; column += THREADS)
        from_float(y[column], to_float(total[column]) * scale * to_float(weight[column]));
}

extern "C" __global__ void __launch_bounds__(THREADS)
add(const TW_T* __restrict__ x, const TW_T* __restrict__ residual, TW_T* __restrict__ total, int C, long long ld_x) {
    x += blockIdx.x * ld_x;
    residual += (long long)blockIdx.x * C;
    total += (long long)blockIdx.x * C;
    const bool packed = C <= LONGEST && C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(residual) &&
                        is_pack_aligned(total);
    if (packed) add_row(x, residual, total, C);
    else
        for (int column = threadIdx.x; column < C; column += THREADS)
            from_float(total[column], to_float(x[column]) + to_float(residual[column]));
}

extern "C" __global__ void __launch_bounds__(THREADS)
rmsnorm(const TW_T* __restrict__ total, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int C, float epsilon) {
    total += (long long)blockIdx.x * C;
    y += (long long)blockIdx.x * C;
    const bool packed = C <= LONGEST && C % TW_PACK == 0 && is_pack_aligned(total) && is_pack_aligned(y) &&
                        is_pack_aligned(weight);
    if (packed) normalise_row(total, weight, y, C, epsilon);
    else normalise_row_by_elements(total, weight, y, C, epsilon);
}
