// Short rows: a warp that has one row each has few bytes on their way, and waits for them. Here only as many lanes share a
// row as it takes to read it at once, so a warp reads several rows with an access, and it has several such accesses in
// flight. What a lane needs of x it reads once. The sums of a warp's rows are written together.
#include "dependent.cuh"
#include "packs.cuh"
#include "warp.cuh"

#ifndef TW_LANES
#define TW_LANES 8
#define TW_PACKS 2
#define TW_ROWS 4
#define TW_WARPS 4
#endif
#ifndef TW_ROOM
#define TW_ROOM 1024
#endif

constexpr int LANES = TW_LANES;  // that share a row: 1, 2, 4, 8, 16, 32
constexpr int PACKS = TW_PACKS;  // of a row, that a lane reads: rows are no longer than LANES * PACKS * TW_PACK
constexpr int ROWS = TW_ROWS;    // that a lane has in flight
constexpr int WARPS = TW_WARPS;
constexpr int BLOCKS = TW_ROOM / (WARPS * 32);  // that an SM should have registers for, as in 03_vector
constexpr int GROUPS = 32 / LANES;             // rows that a warp reads at once
constexpr int BLOCK_ROWS = WARPS * GROUPS * ROWS;
static_assert(ROWS <= LANES, "a lane writes one row");

// Four of a row, or of x: neighbours where it is read in packs, else LANES apart. All accesses are made, those behind the
// end at the last place, and what is not there is 0: behind a condition, each would wait for the one before.
template <bool IN_PACKS>
__device__ __forceinline__ Pack part_of(const float* from, int part, int N) {
    const int lane = threadIdx.x % LANES;
    Pack read;
    if (IN_PACKS) {
        const int column = (part * LANES + lane) * TW_PACK;
        read = load_pack(from + min(column, N - TW_PACK));
        #pragma unroll
        for (int e = 0; e < TW_PACK; ++e) read.at[e] = column < N ? read.at[e] : 0.0f;
        return read;
    }
    #pragma unroll
    for (int e = 0; e < TW_PACK; ++e) {
        const int column = (part * TW_PACK + e) * LANES + lane;
        const float there = from[min(column, N - 1)];
        read.at[e] = column < N ? there : 0.0f;
    }
    return read;
}

// The sum of the row that the lane is to write: the first ROWS lanes of a group have one each.
template <bool IN_PACKS>
__device__ __forceinline__ float own_sum(const float* a, const float* x, int first, int M, int N, int ld_a) {
    Pack read[ROWS][PACKS];
    Pack of_x[PACKS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const float* const from = a + (long long)min(first + i * GROUPS, M - 1) * ld_a;
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) read[i][p] = part_of<IN_PACKS>(from, p, N);
    }
    #pragma unroll
    for (int p = 0; p < PACKS; ++p) of_x[p] = part_of<IN_PACKS>(x, p, N);
    float own = 0.0f;
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        float sum = 0.0f;
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            #pragma unroll
            for (int e = 0; e < TW_PACK; ++e) sum = fmaf(read[i][p].at[e], of_x[p].at[e], sum);
        }
        sum = group_sum<LANES>(sum);
        if (threadIdx.x % LANES == i) own = sum;
    }
    return own;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)
sgemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int M, int N, int ld_a) {
    wait_for_previous_grid();
    const int lane = threadIdx.x % LANES;
    const int group = threadIdx.x % 32 / LANES;
    // Row i of a lane is GROUPS further on: what a warp reads with an access lies together.
    const int first = blockIdx.x * BLOCK_ROWS + threadIdx.x / 32 * (GROUPS * ROWS) + group;
    const bool has_packs = is_pack_aligned(a) && is_pack_aligned(x) && ld_a % TW_PACK == 0 && N % TW_PACK == 0;
    const float own = has_packs ? own_sum<true>(a, x, first, M, N, ld_a) : own_sum<false>(a, x, first, M, N, ld_a);
    const int row = first + lane * GROUPS;
    if (lane < ROWS && row < M) y[row] = own;
}
