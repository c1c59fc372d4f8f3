// Long rows, by many blocks each, in two launches. The first finds the maximum and the sum of every part; the
// second merges those of its row, in their order, so that the bits are the same every time, and writes the results.
//
// The row is read twice, but the second launch begins with what the first read last: that much of it is in L2.
#include "block.cuh"
#include "dependent.cuh"
#include "exponential.cuh"
#include "round.cuh"
#include "row.cuh"

constexpr int THREADS = 128;
constexpr int PACKS = 2;                                   // of a thread
constexpr int PART = THREADS * PACKS * (16 / TW_T_BYTES);  // elements of a block

__device__ __forceinline__ void find_state(const TW_T* x, int columns, float* state) {
    __shared__ float maxima[THREADS / 32], sums[THREADS / 32];
    Pack packs[PACKS];
    load_row<THREADS>(packs, x, columns, threadIdx.x, MINUS_INFINITY);
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
    for (int i = 0; i < PACKS; ++i)
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sum += exponential(to_float(packs[i].at[j]) - base);
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) {
        state[0] = largest;
        state[1] = sum;
    }
}

__device__ __forceinline__ void write_part(const TW_T* x, TW_T* y, int columns, float largest, float scale) {
    Pack packs[PACKS];
    load_row<THREADS>(packs, x, columns, threadIdx.x, MINUS_INFINITY);
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = exponential(to_float(packs[i].at[j]) - largest) * scale;
        store_in_row<THREADS>(y, rounded(results), i, columns, threadIdx.x);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void find_state_by_elements(const TW_T* x, int columns, float* state) {
    __shared__ float maxima[THREADS / 32], sums[THREADS / 32];
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (int column = threadIdx.x; column < columns; column += THREADS) largest = fmaxf(largest, to_float(x[column]));
    largest = block_max(largest, maxima);
    const float base = finite_base(largest);
    for (int column = threadIdx.x; column < columns; column += THREADS) sum += exponential(to_float(x[column]) - base);
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) {
        state[0] = largest;
        state[1] = sum;
    }
}

// `states` is [R, parts, 2]: the largest element of a part, and the sum of exp(x - largest).
extern "C" __global__ void __launch_bounds__(THREADS)
softmax_states(const TW_T* __restrict__ x, float* __restrict__ states, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    const long long row = blockIdx.x, begin = (long long)blockIdx.y * PART;
    const int columns = (int)min((long long)PART, C - begin);
    x += row * ld_x + begin;
    states += (row * gridDim.y + blockIdx.y) * 2;
    if (columns % TW_PACK == 0 && is_pack_aligned(x)) find_state(x, columns, states);
    else find_state_by_elements(x, columns, states);
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax_write(const TW_T* __restrict__ x, const float* __restrict__ states, TW_T* __restrict__ y, int R, int C,
              long long ld_x) {
    wait_for_previous_grid();
    __shared__ float maxima[THREADS / 32], sums[THREADS / 32];
    const int parts = gridDim.y, part = parts - 1 - blockIdx.y;
    const long long row = R - 1 - (long long)blockIdx.x, begin = (long long)part * PART;
    const int columns = (int)min((long long)PART, C - begin);
    states += row * parts * 2;
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < parts; i += THREADS) largest = fmaxf(largest, states[2 * i]);
    largest = block_max(largest, maxima);
    for (int i = threadIdx.x; i < parts; i += THREADS)
        sum += states[2 * i + 1] * exponential(states[2 * i] - finite_base(largest));
    const float scale = 1.0f / block_sum(sum, sums);
    x += row * ld_x + begin;
    y += row * C + begin;
    const bool packed = columns % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y);
    if (packed) write_part(x, y, columns, largest, scale);
    else
        for (int column = threadIdx.x; column < columns; column += THREADS)
            from_float(y[column], exponential(to_float(x[column]) - largest) * scale);
}
