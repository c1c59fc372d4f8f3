// The row is kept in registers, in packs of 16 bytes, and read once. With the row at hand two passes cost nothing: the
// mean, then the squares around it. Short rows are one warp's (WORKERS = 32, ROWS of them in a block), without a
// barrier.
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
constexpr int BLOCKS = (PACKS <= 4 && ROWS == 1 ? 1280 : 768) / THREADS;

__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y, int C,
                                         float epsilon) {
    __shared__ float sums[WORKERS / 32], squares[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    Words packs[PACKS];
    load_row<WORKERS>(packs, x, C, worker, 0.0f);

    float sum = 0.0f, values[TW_PACK];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sum += values[j];
    }
    const float mean = block_sum(sum, sums) / C;
    keep_packed(packs);

    float square = 0.0f;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const float left = column_of<WORKERS>(i, worker) < C ? values[j] - mean : 0.0f;
            square += left * left;
        }
    }
    const float scale = rsqrtf(block_sum(square, squares) / C + epsilon);
    keep_packed(packs);

    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float weights[TW_PACK], biases[TW_PACK];
        unpack_shared_row<WORKERS>(weights, weight, i, C, worker);
        unpack_shared_row<WORKERS>(biases, bias, i, C, worker);
        unpack(values, packs[i]);
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) values[j] = (values[j] - mean) * scale * weights[j] + biases[j];
        store_in_row<WORKERS, STREAMS>(y, packed(values), i, C, worker);
    }
}

// Rows that do not lie in packs, element by element: what is read again comes from the caches.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y,
                                                     int C, float epsilon) {
    __shared__ float sums[WORKERS / 32], squares[WORKERS / 32];
    const int worker = threadIdx.x % WORKERS;
    float sum = 0.0f, square = 0.0f;
    for (int column = worker; column < C; column += WORKERS) sum += to_float(x[column]);
    const float mean = block_sum(sum, sums) / C;
    for (int column = worker; column < C; column += WORKERS) {
        const float left = to_float(x[column]) - mean;
        square += left * left;
    }
    const float scale = rsqrtf(block_sum(square, squares) / C + epsilon);
    for (int column = worker; column < C; column += WORKERS) {
        const float value = (to_float(x[column]) - mean) * scale;
        from_float(y[column], value * to_float(weight[column]) + to_float(bias[column]));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / WORKERS;
    if (C > WORKERS * PACKS * TW_PACK) __trap();
    if (row >= R) return;
    x += row * ld_x;
    y += row * C;
    const bool packed = C % TW_PACK == 0 && is_pack_aligned(x) && is_pack_aligned(y) && is_pack_aligned(weight) &&
                        is_pack_aligned(bias);
    if (packed) make_row(x, weight, bias, y, C, epsilon);
    else make_row_by_elements(x, weight, bias, y, C, epsilon);
}
