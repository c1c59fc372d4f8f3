// The weights are asked for along with the row, and wait in registers for its sum: for few rows, where nothing hides a
// wait, there is one instead of two. The sum meets one barrier.
//
// Rows that lie in no packs of 16 bytes are held in the same way, by accesses of fewer elements, and read once. A row
// of up to WORKERS * PIECES * WIDTH elements fits.
#include "block.cuh"
#include "dependent.cuh"
#include "share.cuh"

#ifndef WORKERS
#define WORKERS 128              // threads of a row: whole warps
#define PIECES 4                 // accesses of a thread
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the arrays allow it
#define HELD 1                   // 0: where they do not, no register is kept for them
#define MANY 0                   // 1: more rows than are at work at once, in packs: what the others follow from
#define MOST 128                 // threads of a row, unless an eighth of them or more would idle
#endif
#ifndef LATE
#define LATE 0  // 1: weights are asked for behind the barrier: fewer registers, and more blocks an SM
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of an SM, at least; 0 leaves it to the compiler, which keeps registers for more
#endif
constexpr int WARPS = WORKERS / 32, SLOTS = power_of_two_from(WARPS);
static_assert(WORKERS % 32 == 0, "whole warps");

template <int ACROSS, int OWNED>
__device__ __forceinline__ void make_row(const TW_T* x, const TW_T* weight, TW_T* y, int C, float epsilon) {
    __shared__ float sums[WARPS];
    const int first = threadIdx.x * ACROSS, left = C - first;  // column; columns from there on
    TW_T* to = found_once(y + first);
    Bits<ACROSS> share[OWNED], weights[OWNED];
    if constexpr (!LATE) load_share_in_order<WORKERS>(weights, weight + first, left);
    load_share_in_order<WORKERS>(share, x + first, left);
    const float rate = found_first(1.0f / C);  // while the loads are under way
    float values[OWNED][ACROSS], squares = 0.0f;
    unpack_share(values, share);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) squares += values[i][j] * values[i][j];
    const float sum = group_sum<SLOTS>(met(sums, warp_sum(squares)));
    const float scale = rsqrtf(sum * rate + epsilon);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        if constexpr (LATE) {
            weights[i] = {};
            if (i * WORKERS * ACROSS < left) weights[i] = load_bits<ACROSS>(weight + first + i * WORKERS * ACROSS);
        }
        float factors[ACROSS];
        unpack(factors, weights[i]);
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) values[i][j] *= scale * factors[j];
        store_piece<WORKERS>(to, values[i], i, left);
    }
}

// Arrays that begin where such an access may not: what is read again comes from the caches. What this path would hold,
// many rows would pay for on the other one, where it is not needed, with threads that find no register.
__device__ __forceinline__ void make_row_by_elements(const TW_T* x, const TW_T* weight, TW_T* y, int C, float epsilon) {
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
    const bool is_wide = C % WIDTH == 0 && is_aligned_for<WIDTH>(x) && is_aligned_for<WIDTH>(weight) &&
                         is_aligned_for<WIDTH>(y);
    if (WIDTH == 1 || is_wide) make_row<WIDTH, PIECES>(x, weight, y, C, epsilon);
    else if constexpr (HELD) make_row<1, PIECES * WIDTH>(x, weight, y, C, epsilon);
    else make_row_by_elements(x, weight, y, C, epsilon);
    if (C > WORKERS * PIECES * WIDTH) __trap();  // told behind the work: few rows wait for every instruction
}
