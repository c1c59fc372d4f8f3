// Several rows a warp: as many lanes share a row as it keeps busy, and merge what they found by as few shuffles. No
// barrier, no shared memory. A row is in registers, as floats, so that an exponential is computed once.
//
// Rows that lie in no packs of 16 bytes are held in the same way, by accesses of fewer elements. A row of up to
// LANES * PIECES * WIDTH elements fits.
#include "dependent.cuh"
#include "exponential.cuh"
#include "share.cuh"
#include "warp.cuh"

#ifndef LANES
#define LANES 8                  // of a row: a power of two, up to 32
#define PIECES 8                 // accesses of a lane
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the arrays allow it
#define THREADS 128              // of a block
#endif
constexpr int ROWS = THREADS / LANES;  // of a block
static_assert(LANES <= 32 && THREADS % 32 == 0, "a row is within one warp");

// A group of lanes beyond the last row has no columns, but takes part in the shuffles.
template <int ACROSS, int OWNED>
__device__ __forceinline__ void make_row(const TW_T* x, TW_T* y, int columns) {
    const int first = threadIdx.x % LANES * ACROSS, left = columns - first;  // column; columns from there on
    TW_T* to = found_once(y + first);
    Bits<ACROSS> share[OWNED];
    float values[OWNED][ACROSS];
    load_share<LANES>(share, x + first, left, MINUS_INFINITY);
    unpack_share(values, share);
    if constexpr (LANES * OWNED * ACROSS == 1) {  // one column: 1, or NaN of what is not finite
        values[0][0] = 1.0f + (values[0][0] - values[0][0]);
        store_piece<LANES>(to, values[0], 0, left);
        return;
    }

    float largest = MINUS_INFINITY, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) largest = fmaxf(largest, values[i][j]);
    largest = group_max<LANES>(largest);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            values[i][j] = exponential(values[i][j] - largest);
            sum += values[i][j];
        }
    const float scale = reciprocal(group_sum<LANES>(sum));
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) values[i][j] *= scale;
        store_piece<LANES>(to, values[i], i, left);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / LANES;
    const int columns = row < R ? C : 0;
    const bool is_wide = C % WIDTH == 0 && ld_x % WIDTH == 0 && is_aligned_for<WIDTH>(x) && is_aligned_for<WIDTH>(y);
    x += row * ld_x;
    y += row * C;
    if (WIDTH == 1 || is_wide) make_row<WIDTH, PIECES>(x, y, columns);
    else make_row<1, PIECES * WIDTH>(x, y, columns);
    if (C > LANES * PIECES * WIDTH) __trap();  // told behind the work: few rows wait for every instruction
}
