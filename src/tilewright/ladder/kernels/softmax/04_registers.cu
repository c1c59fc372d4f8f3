// The row stays in registers: read once, in packs of 16 bytes, all of a thread's loads under way together. It is the
// least that DRAM has to carry. With the row at hand, the maximum comes first and the sum after it, at one exponential
// an element. Short rows are one warp's (WORKERS = 32, ROWS of them in a block), and need no barrier.
//
// A row of up to WORKERS * PACKS * 16 bytes fits. Several blocks share an SM: while one waits, another computes or
// writes.
#include "block.cuh"
#include "dependent.cuh"
#include "exponential.cuh"
#include "row.cuh"

#ifndef WORKERS
#define WORKERS 256  // threads of a row
#define ROWS 1       // rows of a block; several only if a row is one warp's
#define PACKS 2      // packs of a thread
#define STREAMS 1    // 1: what is written leaves L2 first
#endif
constexpr int THREADS = WORKERS * ROWS;
static_assert(ROWS == 1 || WORKERS == 32, "a row is one block's or one warp's");
// Of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int BLOCKS = (PACKS <= 4 && ROWS == 1 ? 1536 : 1024) / THREADS;

__device__ __forceinline__ void make_row(const TW_T* x, TW_T* y, int C) {
    __shared__ float maxima[WORKERS / 32], sums[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    Words packs[PACKS];
    load_row<WORKERS>(packs, x, C, worker, MINUS_INFINITY);

    float largest = MINUS_INFINITY, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) largest = fmaxf(largest, values[j]);
    }
    largest = block_max(largest, maxima);
    keep_packed(packs);

    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            values[j] = exponential(values[j] - largest);
            sum += values[j];
        }
        if constexpr (TW_T_BYTES == 4) packs[i] = packed(values);  // a float keeps it, a 16-bit element would round it
    }
    const float scale = 1.0f / block_sum(sum, sums);
    keep_packed(packs);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j)
            values[j] = (TW_T_BYTES == 4 ? values[j] : exponential(values[j] - largest)) * scale;
        store_in_row<WORKERS, STREAMS>(y, packed(values), i, C, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, TW_T* y, int C) {
    __shared__ float maxima[WORKERS / 32], sums[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (int column = worker; column < C; column += WORKERS) largest = fmaxf(largest, to_float(x[column]));
    largest = block_max(largest, maxima);
    for (int column = worker; column < C; column += WORKERS) sum += exponential(to_float(x[column]) - largest);
    const float scale = 1.0f / block_sum(sum, sums);
    for (int column = worker; column < C; column += WORKERS)
        from_float(y[column], exponential(to_float(x[column]) - largest) * scale);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (C > WORKERS * PACKS * TW_PACK) __trap();
    if (row >= R) return;
    x += row * ld_x;
    y += row * C;
    if (C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y)) make_row(x, y, C);
    else make_row_by_elements(x, y, C);
}
