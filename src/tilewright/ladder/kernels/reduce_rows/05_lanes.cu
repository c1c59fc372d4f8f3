// Rows that begin anywhere, and are short: no loose elements before and behind the packs, but accesses as wide as all
// rows allow, and all of a lane's are under way together. As many lanes share a row as it keeps busy.
//
// A row of up to LANES * PIECES * WIDTH elements fits.
#include "dependent.cuh"
#include "share.cuh"
#include "warp.cuh"

#ifndef LANES
#define LANES 16                 // of a row: a power of two, up to 32
#define PIECES 4                 // accesses of a lane
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the array allows it
#define THREADS 128              // of a block
#endif
constexpr int ROWS = THREADS / LANES;  // of a block
static_assert(LANES <= 32 && THREADS % 32 == 0, "a row is within one warp");

// `x`: at the lane's first column, from where on the row has `left` columns.
template <int ACROSS, int OWNED>
__device__ __forceinline__ float lane_sum(const TW_T* x, int left) {
    Bits<ACROSS> share[OWNED];
    float values[OWNED][ACROSS], sum = 0.0f;
    load_share<LANES>(share, x, left, 0.0f);
    unpack_share(values, share);
    #pragma unroll
    for (int i = 0; i < OWNED; ++i)
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) sum += values[i][j];
    return sum;
}

// A group of lanes beyond the last row has no columns, but takes part in the shuffles.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_rows(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES, columns = row < R ? C : 0;
    const bool is_wide = C % WIDTH == 0 && ld_x % WIDTH == 0 && is_aligned_for<WIDTH>(x);
    x += row * ld_x;
    float sum;
    if (WIDTH == 1 || is_wide) sum = lane_sum<WIDTH, PIECES>(x + lane * WIDTH, columns - lane * WIDTH);
    else sum = lane_sum<1, PIECES * WIDTH>(x + lane, columns - lane);
    sum = group_sum<LANES>(sum);
    if (lane == 0 && row < R) from_float(y[row], sum);
    if (C > LANES * PIECES * WIDTH) __trap();  // told behind the work: few rows wait for every instruction
}
