// Rows of 16-bit elements at odd distances: every other one begins in the middle of a word of 4 bytes. Its first
// element is peeled off, and its last one where that leaves an odd number; all between move in words, at half the
// accesses and half the registers. Weights and biases begin where they begin: every other row has them in words, too,
// and the others take them element by element. Each warp finds the mean of its own share and the squares around it, and
// all are merged by Chan's formula, at one barrier.
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
#define LATE 0  // 1: weights and biases are asked for behind the barrier: fewer registers, and more blocks an SM
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of an SM, at least; 0 leaves it to the compiler, which keeps registers for more
#endif
constexpr int WARPS = WORKERS / 32, SLOTS = power_of_two_from(WARPS);
static_assert(WORKERS % 32 == 0 && TW_T_BYTES == 2, "whole warps, half words");

// Elements of the row that a warp has; the last one has those in no word.
__device__ __forceinline__ int elements_of(int warp, int half, int C) {
    const int words = (C - half) / 2;
    int count = warp == WARPS - 1 ? C - 2 * words : 0;
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) count += 2 * min(max(words - (i * WORKERS + warp * 32), 0), 32);
    return count;
}

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

// `half`: 1 where the row begins in the middle of a word. IS_WORD: weights and biases do as the row does.
template <bool IS_WORD>
__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y, int half, int C,
                                         float epsilon) {
    __shared__ float4 states[WARPS];  // of each warp: elements, their sum, their mean, the squares around it
    const int first = half + 2 * threadIdx.x, left = (C - half) / 2 * 2 + half - first;  // column; those in words
    const int loose = loose_of(half, C);
    TW_T* to = found_once(y + first);
    Bits<2> share[PIECES], weights[PIECES], biases[PIECES];
    Bits<1> ends[3] = {};
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        weights[i] = biases[i] = {};
        if (!LATE && i * WORKERS * 2 < left) {
            weights[i] = load_pair_in_order<IS_WORD>(weight + first + i * WORKERS * 2);
            biases[i] = load_pair_in_order<IS_WORD>(bias + first + i * WORKERS * 2);
        }
    }
    if (loose >= 0) {
        ends[0] = load_bits_in_order<1>(weight + loose);
        ends[1] = load_bits_in_order<1>(bias + loose);
        ends[2] = load_bits_in_order<1>(x + loose);
    }
    load_share_in_order<WORKERS>(share, x + first, left);
    const float rate = found_first(1.0f / C);  // while the loads are under way
    const float elements = elements_of(threadIdx.x / 32, half, C);
    const float own_rate = __fdividef(1.0f, fmaxf(elements, 1.0f));  // the squares are corrected for what it lacks

    float values[PIECES][2], end[1], sum = 0.0f, squares = 0.0f;
    unpack(end, ends[2]);
    unpack_share(values, share);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) sum += values[i][0] + values[i][1];
    sum = warp_sum(sum + end[0]);
    const float own_mean = sum * own_rate;
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        const bool is_there = i * WORKERS * 2 < left;
        const float a = is_there ? values[i][0] - own_mean : 0.0f, b = is_there ? values[i][1] - own_mean : 0.0f;
        squares += a * a + b * b;
    }
    const float apart_end = loose >= 0 ? end[0] - own_mean : 0.0f;
    squares = warp_sum(squares + apart_end * apart_end);
    const float4 state = met(states, make_float4(elements, sum, own_mean, squares));
    const float mean = group_sum<SLOTS>(state.y) * rate;
    const float apart = state.z - mean;
    const float square = group_sum<SLOTS>(state.w + (state.x > 0.0f ? apart * apart * state.x : 0.0f));
    const float scale = rsqrtf(square * rate + epsilon);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        float factors[2], shifts[2];
        if (LATE && i * WORKERS * 2 < left) {
            weights[i] = load_pair<IS_WORD>(weight + first + i * WORKERS * 2);
            biases[i] = load_pair<IS_WORD>(bias + first + i * WORKERS * 2);
        }
        unpack(factors, weights[i]);
        unpack(shifts, biases[i]);
        #pragma unroll
        for (int j = 0; j < 2; ++j) values[i][j] = (values[i][j] - mean) * scale * factors[j] + shifts[j];
        store_piece<WORKERS>(to, values[i], i, left);
    }
    float factor[1], shift[1];
    unpack(factor, ends[0]);
    unpack(shift, ends[1]);
    end[0] = (end[0] - mean) * scale * factor[0] + shift[0];
    if (loose >= 0) store_bits(y + loose, bits_of(end));
}

// Arrays that begin differently: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y,
                                                     int C, float epsilon) {
    __shared__ float sums[WARPS], squares[WARPS];
    float sum = 0.0f, square = 0.0f;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) sum += to_float(x[column]);
    const float mean = block_sum(sum, sums) / C;
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) {
        const float left = to_float(x[column]) - mean;
        square += left * left;
    }
    const float scale = rsqrtf(block_sum(square, squares) / C + epsilon);
    #pragma unroll 1
    for (int column = threadIdx.x; column < C; column += WORKERS) {
        const float value = (to_float(x[column]) - mean) * scale;
        from_float(y[column], value * to_float(weight[column]) + to_float(bias[column]));
    }
}

extern "C" __global__ void __launch_bounds__(WORKERS, BLOCKS)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    const bool half = !is_aligned_for<2>(x);
    if (!is_aligned_for<2>(y) != half) make_row_by_elements(x, weight, bias, y, C, epsilon);
    else if (is_aligned_for<2>(weight + half) && is_aligned_for<2>(bias + half))
        make_row<true>(x, weight, bias, y, half, C, epsilon);
    else make_row<false>(x, weight, bias, y, half, C, epsilon);
    if (C > 2 * WORKERS * PIECES) __trap();
}
