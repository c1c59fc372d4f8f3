// Rows of 16-bit elements at odd distances: every other one begins in the middle of a word of 4 bytes. Its first
// element is peeled off, and its last one where that leaves an odd number; all between move in words, at half the
// accesses and half the registers. The weights begin where they begin: they come element by element, and from the
// caches.
//
// A row of up to 2 * WORKERS * PIECES elements fits. Arrays that begin differently within a word: element by element.
#include "block.cuh"
#include "dependent.cuh"
#include "share.cuh"

#ifndef WORKERS
#define WORKERS 128  // threads of a row: whole warps
#define PIECES 8     // words of a thread
#endif
#ifndef LATE
#define LATE 0  // 1: weights are asked for behind the barrier: fewer registers, and more blocks an SM
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of an SM, at least; 0 leaves it to the compiler, which keeps registers for more
#endif
constexpr int WARPS = WORKERS / 32, SLOTS = power_of_two_from(WARPS);
static_assert(WORKERS % 32 == 0 && TW_T_BYTES == 2, "whole warps, half words");

// Which element in no word a thread has; none, if it is negative.
__device__ __forceinline__ int loose_of(int half, int C) {
    if (threadIdx.x == WORKERS - 1) return half - 1;
    return threadIdx.x == WORKERS - 2 && (C - half) % 2 ? C - 1 : -1;
}

// `half`: 1 where the row begins in the middle of a word.
__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* residual, const TW_T* weight, TW_T* total, TW_T* y,
                                         int half, int C, float epsilon) {
    __shared__ float sums[WARPS];
    const int first = half + 2 * threadIdx.x, left = (C - half) / 2 * 2 + half - first;  // column; those in words
    const int loose = loose_of(half, C);
    TW_T *sums_to = found_once(total + first), *to = found_once(y + first);
    Bits<2> share[PIECES], others[PIECES];
    Bits<1> lower[PIECES], upper[PIECES], ends[3] = {};
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        lower[i] = upper[i] = {};
        if (!LATE && i * WORKERS * 2 < left) {
            lower[i] = load_bits_in_order<1>(weight + first + i * WORKERS * 2);
            upper[i] = load_bits_in_order<1>(weight + first + i * WORKERS * 2 + 1);
        }
    }
    if (loose >= 0) {
        ends[0] = load_bits_in_order<1>(weight + loose);
        ends[1] = load_bits_in_order<1>(residual + loose);
        ends[2] = load_bits_in_order<1>(x + loose);
    }
    load_share_in_order<WORKERS>(others, residual + first, left);
    load_share_in_order<WORKERS>(share, x + first, left);
    const float rate = found_first(1.0f / C);  // while the loads are under way

    float values[PIECES][2], end[1], other[1], squares = 0.0f;
    unpack(end, ends[2]);
    unpack(other, ends[1]);
    end[0] += other[0];
    if (loose >= 0) store_bits(total + loose, bits_of(end));
    unpack(end, bits_of(end));
    add_shares<WORKERS>(values, share, others, sums_to, left);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) squares += values[i][0] * values[i][0] + values[i][1] * values[i][1];
    squares += end[0] * end[0];
    const float sum = group_sum<SLOTS>(met(sums, warp_sum(squares)));
    const float scale = rsqrtf(sum * rate + epsilon);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        float factor[2][1];
        if (LATE && i * WORKERS * 2 < left) {
            lower[i] = load_bits<1>(weight + first + i * WORKERS * 2);
            upper[i] = load_bits<1>(weight + first + i * WORKERS * 2 + 1);
        }
        unpack(factor[0], lower[i]);
        unpack(factor[1], upper[i]);
        values[i][0] *= scale * factor[0][0];
        values[i][1] *= scale * factor[1][0];
        store_piece<WORKERS>(to, values[i], i, left);
    }
    unpack(other, ends[0]);
    end[0] *= scale * other[0];
    if (loose >= 0) store_bits(y + loose, bits_of(end));
}

// Arrays that begin differently: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* residual, const TW_T* weight,
                                                     TW_T* total, TW_T* y, int C, float epsilon) {
    __shared__ float sums[WARPS];
    float squares = 0.0f;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) {
        from_float(total[column], to_float(x[column]) + to_float(residual[column]));
        squares += to_float(total[column]) * to_float(total[column]);
    }
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS)
        from_float(y[column], to_float(total[column]) * scale * to_float(weight[column]));
}

extern "C" __global__ void __launch_bounds__(WORKERS, BLOCKS)
add_rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ residual, const TW_T* __restrict__ weight,
            TW_T* __restrict__ total, TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    x += blockIdx.x * ld_x;
    residual += (long long)blockIdx.x * C;
    total += (long long)blockIdx.x * C;
    y += (long long)blockIdx.x * C;
    const bool half = !is_aligned_for<2>(x);
    const bool is_alike = !is_aligned_for<2>(residual) == half && !is_aligned_for<2>(total) == half &&
                          !is_aligned_for<2>(y) == half;
    if (is_alike) make_row(x, residual, weight, total, y, half, C, epsilon);
    else make_row_by_elements(x, residual, weight, total, y, C, epsilon);
    if (C > 2 * WORKERS * PIECES) __trap();
}
