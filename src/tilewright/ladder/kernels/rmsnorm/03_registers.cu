// The row is kept in registers, in packs of 16 bytes: a quarter or an eighth of the instructions, and all of a thread's
// loads are under way together. Short rows are one warp's (WORKERS = 32, ROWS of them in a block), and need no barrier.
//
// A row of up to WORKERS * PACKS * 16 bytes fits. Several blocks share an SM: while one waits, another computes or
// writes.
#include "block.cuh"
#include "dependent.cuh"
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
constexpr int BLOCKS = (PACKS <= 4 ? 1280 : 1024) / THREADS;

__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* weight, TW_T* y, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    Words packs[PACKS];
    load_row<WORKERS>(packs, x, C, worker, 0.0f);

    float squares = 0.0f, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) squares += values[j] * values[j];
    }
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    keep_packed(packs);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float weights[TW_PACK];
        unpack_shared_row<WORKERS>(weights, weight, i, C, worker);
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) values[j] *= scale * weights[j];
        store_in_row<WORKERS, STREAMS>(y, packed(values), i, C, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* weight, TW_T* y, int C, float epsilon) {
    __shared__ float sums[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    float squares = 0.0f;
    for (int column = worker; column < C; column += WORKERS) squares += to_float(x[column]) * to_float(x[column]);
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    for (int column = worker; column < C; column += WORKERS)
        from_float(y[column], to_float(x[column]) * scale * to_float(weight[column]));
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int R, int C, long long ld_x,
        float epsilon) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (C > WORKERS * PACKS * TW_PACK) __trap();
    if (row >= R) return;
    x += row * ld_x;
    y += row * C;
    const bool packed = C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) && is_pack_aligned(weight);
    if (packed) make_row(x, weight, y, C, epsilon);
    else make_row_by_elements(x, weight, y, C, epsilon);
}
