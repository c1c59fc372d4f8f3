// Rows of 16-bit elements at odd distances: every other one begins in the middle of a word of 4 bytes. Its first
// element is peeled off, and its last one where that leaves an odd number; all between move in words, at half the
// accesses and half the registers. The weights begin where they begin: every other row has them in words, too, and the
// others take them element by element.
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

// Two elements: a word, where they are one.
template <bool IS_WORD>
__device__ __forceinline__ Bits<2> load_pair_in_order(const TW_T* from) {
    if constexpr (IS_WORD) return load_bits_in_order<2>(from);
    const unsigned lower = load_bits_in_order<1>(from).at[0], upper = load_bits_in_order<1>(from + 1).at[0];
    return {{lower | upper << 16}};
}

// The same, at whatever time the compiler likes.
template <bool IS_WORD>
__device__ __forceinline__ Bits<2> load_pair(const TW_T* from) {
    if constexpr (IS_WORD) return load_bits<2>(from);
    const unsigned lower = load_bits<1>(from).at[0], upper = load_bits<1>(from + 1).at[0];
    return {{lower | upper << 16}};
}

// `half`: 1 where the row begins in the middle of a word. IS_WORD: the weights do as the row does.
template <bool IS_WORD>
__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* weight, TW_T* y, int half, int C, float epsilon) {
    __shared__ float sums[WARPS];
    const int first = half + 2 * threadIdx.x, left = (C - half) / 2 * 2 + half - first;  // column; those in words
    const int loose = loose_of(half, C);
    TW_T* to = found_once(y + first);
    Bits<2> share[PIECES], weights[PIECES];
    Bits<1> ends[2] = {};
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        weights[i] = {};
        if (!LATE && i * WORKERS * 2 < left) weights[i] = load_pair_in_order<IS_WORD>(weight + first + i * WORKERS * 2);
    }
    if (loose >= 0) {
        ends[0] = load_bits_in_order<1>(weight + loose);
        ends[1] = load_bits_in_order<1>(x + loose);
    }
    load_share_in_order<WORKERS>(share, x + first, left);
    const float rate = found_first(1.0f / C);  // while the loads are under way

    float values[PIECES][2], end[1], factor[1], squares = 0.0f;
    unpack(end, ends[1]);
    unpack_share(values, share);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) squares += values[i][0] * values[i][0] + values[i][1] * values[i][1];
    squares += end[0] * end[0];
    const float sum = group_sum<SLOTS>(met(sums, warp_sum(squares)));
    const float scale = rsqrtf(sum * rate + epsilon);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        float factors[2];
        if (LATE && i * WORKERS * 2 < left) weights[i] = load_pair<IS_WORD>(weight + first + i * WORKERS * 2);
        unpack(factors, weights[i]);
        #pragma unroll
        for (int j = 0; j < 2; ++j) values[i][j] *= scale * factors[j];
        store_piece<WORKERS>(to, values[i], i, left);
    }
    unpack(factor, ends[0]);
    end[0] *= scale * factor[0];
    if (loose >= 0) store_bits(y + loose, bits_of(end));
}

// Arrays that begin differently: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* weight, TW_T* y, int C,
                                                     float epsilon) {
    __shared__ float sums[WARPS];
    float squares = 0.0f;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) squares += to_float(x[column]) * to_float(x[column]);
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS)
        from_float(y[column], to_float(x[column]) * scale * to_float(weight[column]));
}

extern "C" __global__ void __launch_bounds__(WORKERS, BLOCKS)
rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int R, int C, long long ld_x,
        float epsilon) {
    wait_for_previous_grid();
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    const bool half = !is_aligned_for<2>(x);
    if (!is_aligned_for<2>(y) != half) make_row_by_elements(x, weight, y, C, epsilon);
    else if (is_aligned_for<2>(weight + half)) make_row<true>(x, weight, y, half, C, epsilon);
    else make_row<false>(x, weight, y, half, C, epsilon);
    if (C > 2 * WORKERS * PIECES) __trap();
}
