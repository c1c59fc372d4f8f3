// Several rows a warp: as many lanes share a row as it keeps busy, and add up what they found by as few shuffles. No
// barrier, no shared memory. Weights and biases are asked for along with the row, so that nothing waits twice.
//
// Rows that lie in no packs of 16 bytes are held in the same way, by accesses of fewer elements. A row of up to
// LANES * PIECES * WIDTH elements fits.
#include "dependent.cuh"
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
__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* weight, const TW_T* bias, TW_T* y, int columns,
                                         int C, float epsilon) {
    const int first = threadIdx.x % LANES * ACROSS, left = columns - first;  // column; columns from there on
    TW_T* to = found_once(y + first);
    Bits<ACROSS> share[OWNED], weights[OWNED], biases[OWNED];
    load_share_in_order<LANES>(weights, weight + first, left);
    load_share_in_order<LANES>(biases, bias + first, left);
    load_share_in_order<LANES>(share, x + first, left);
    const float rate = found_first(1.0f / C);  // while the loads are under way
    float values[OWNED][ACROSS], sum = 0.0f, squares = 0.0f;
    unpack_share(values, share);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) sum += values[i][j];
    const float mean = group_sum<LANES>(sum) * rate;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        const bool is_there = i * LANES * ACROSS < left;
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            values[i][j] = is_there ? values[i][j] - mean : 0.0f;
            squares += values[i][j] * values[i][j];
        }
    }
    const float scale = rsqrtf(group_sum<LANES>(squares) * rate + epsilon);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        float factors[ACROSS], shifts[ACROSS];
        unpack(factors, weights[i]);
        unpack(shifts, biases[i]);
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) values[i][j] = values[i][j] * scale * factors[j] + shifts[j];
        store_piece<LANES>(to, values[i], i, left);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / LANES;
    const int columns = row < R ? C : 0;
    const bool is_wide = C % WIDTH == 0 && ld_x % WIDTH == 0 && is_aligned_for<WIDTH>(x) &&
                         is_aligned_for<WIDTH>(weight) && is_aligned_for<WIDTH>(bias) && is_aligned_for<WIDTH>(y);
    x += row * ld_x;
    y += row * C;
    if (WIDTH == 1 || is_wide) make_row<WIDTH, PIECES>(x, weight, bias, y, columns, C, epsilon);
    else make_row<1, PIECES * WIDTH>(x, weight, bias, y, columns, C, epsilon);
    if (C > LANES * PIECES * WIDTH) __trap();  // told behind the work: few rows wait for every instruction
}
