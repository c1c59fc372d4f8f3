// One barrier a row, for few rows, where nothing hides a wait: every warp finds the maximum of its own share and the
// sum to it by shuffles, posts both, and merges what all posted. Threads hold their powers, to the warp's own maximum,
// and scale them by what it lacks of the row's.
//
// Rows that lie in no packs of 16 bytes are held in the same way, by accesses of fewer elements. A row of up to
// WORKERS * PIECES * WIDTH elements fits.
#include "block.cuh"
#include "dependent.cuh"
#include "exponential.cuh"
#include "share.cuh"

#ifndef WORKERS
#define WORKERS 128              // threads of a row: whole warps
#define PIECES 4                 // accesses of a thread
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the arrays allow it
#define MANY 0                   // 1: more rows than are at work at once, in packs: what the others follow from
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of an SM, at least; 0 leaves it to the compiler, which keeps registers for more
#endif
constexpr int WARPS = WORKERS / 32, SLOTS = power_of_two_from(WARPS);
static_assert(WORKERS % 32 == 0, "whole warps");

template <int ACROSS, int OWNED>
__device__ __forceinline__ void make_row(const TW_T* x, TW_T* y, int C) {
    __shared__ float2 states[WARPS];  // of each warp: the largest element, and the sum of exp(x - largest)
    const int first = threadIdx.x * ACROSS, left = C - first;  // column; columns from there on
    TW_T* to = found_once(y + first);
    Bits<ACROSS> share[OWNED];
    float values[OWNED][ACROSS];
    load_share<WORKERS>(share, x + first, left, MINUS_INFINITY);
    unpack_share(values, share);

    float largest = MINUS_INFINITY, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) largest = fmaxf(largest, values[i][j]);
    largest = warp_max(largest);
    const float base = finite_base(largest);  // a share may be -inf throughout where the row is not
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            values[i][j] = exponential(values[i][j] - base);
            sum += values[i][j];
        }
    sum = warp_sum(sum);
    const float2 state = met(states, make_float2(largest, sum), make_float2(MINUS_INFINITY, 0.0f));
    const float row_base = finite_base(group_max<SLOTS>(state.x));
    sum = group_sum<SLOTS>(state.y * exponential(state.x - row_base));
    const float scale = exponential(largest - row_base) * reciprocal(sum);

    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) values[i][j] *= scale;
        store_piece<WORKERS>(to, values[i], i, left);
    }
}

extern "C" __global__ void __launch_bounds__(WORKERS, BLOCKS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    const bool is_wide = C % WIDTH == 0 && is_aligned_for<WIDTH>(x) && is_aligned_for<WIDTH>(y);
    if (WIDTH == 1 || is_wide) make_row<WIDTH, PIECES>(x, y, C);
    else make_row<1, PIECES * WIDTH>(x, y, C);
    if (C > WORKERS * PIECES * WIDTH) __trap();  // told behind the work: few rows wait for every instruction
}
