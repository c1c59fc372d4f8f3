// Rows of 16-bit elements at odd distances: every other one begins in the middle of a word of 4 bytes. Its first
// element is peeled off, and its last one where that leaves an odd number; all between move in words, at half the
// accesses. Every warp finds the maximum of its own share and the sum to it, and merges what all posted, at one barrier.
//
// A row of up to 2 * WORKERS * PIECES elements fits. Arrays that begin differently within a word: element by element.
#include "block.cuh"
#include "dependent.cuh"
#include "exponential.cuh"
#include "share.cuh"

#ifndef WORKERS
#define WORKERS 128  // threads of a row: a power of two
#define PIECES 8     // words of a thread
#endif
constexpr int WARPS = WORKERS / 32;
static_assert(WORKERS % 32 == 0 && TW_T_BYTES == 2, "whole warps, half words");

// Which element in no word a thread has; none, if it is negative.
__device__ __forceinline__ int loose_of(int half, int C) {
    if (threadIdx.x == WORKERS - 1) return half - 1;
    return threadIdx.x == WORKERS - 2 && (C - half) % 2 ? C - 1 : -1;
}

// `half`: 1 where the row begins in the middle of a word.
__device__ __forceinline__ void make_row(const TW_T* x, TW_T* y, int half, int C) {
    __shared__ float2 states[WARPS];  // of each warp: the largest element, and the sum of exp(x - largest)
    const int first = half + 2 * threadIdx.x, left = (C - half) / 2 * 2 + half - first;  // column; those in words
    const int loose = loose_of(half, C);
    TW_T* to = found_once(y + first);
    Bits<2> share[PIECES];
    float values[PIECES][2], end[1] = {MINUS_INFINITY};
    Bits<1> loose_bits = bits_of(end);
    if (loose >= 0) loose_bits = load_bits<1>(x + loose);
    load_share<WORKERS>(share, x + first, left, MINUS_INFINITY);
    unpack_share(values, share);
    unpack(end, loose_bits);

    float largest = end[0], sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) largest = fmaxf(largest, fmaxf(values[i][0], values[i][1]));
    largest = warp_max(largest);
    const float base = finite_base(largest);  // a share may be -inf throughout where the row is not
    end[0] = exponential(end[0] - base);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i)
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            values[i][j] = exponential(values[i][j] - base);
            sum += values[i][j];
        }
    sum = warp_sum(sum + end[0]);
    const float2 state = met(states, make_float2(largest, sum));
    const float row_base = finite_base(group_max<WARPS>(state.x));
    sum = group_sum<WARPS>(state.y * exponential(state.x - row_base));
    const float scale = exponential(largest - row_base) * reciprocal(sum);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) values[i][j] *= scale;
        store_piece<WORKERS>(to, values[i], i, left);
    }
    end[0] *= scale;
    if (loose >= 0) store_bits(y + loose, bits_of(end));
}

// Arrays that begin differently: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, TW_T* y, int C) {
    __shared__ float maxima[WARPS], sums[WARPS];
    float largest = MINUS_INFINITY, sum = 0.0f;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) largest = fmaxf(largest, to_float(x[column]));
    const float base = finite_base(block_max(largest, maxima));
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) sum += exponential(to_float(x[column]) - base);
    const float scale = reciprocal(block_sum(sum, sums));
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS)
        from_float(y[column], exponential(to_float(x[column]) - base) * scale);
}

extern "C" __global__ void __launch_bounds__(WORKERS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    const bool half = !is_aligned_for<2>(x);
    if (!is_aligned_for<2>(y) == half) make_row(x, y, half, C);
    else make_row_by_elements(x, y, C);
    if (C > 2 * WORKERS * PIECES) __trap();
}
