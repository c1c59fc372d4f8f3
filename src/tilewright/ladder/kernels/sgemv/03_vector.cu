// Four floats an access, and four accesses in flight: a quarter of the instructions, and 2 KiB of a row on their way for
// each warp, which is what it takes to keep the memory busy. Rows that do not begin at multiples of 16 bytes are read
// element by element.
#include "dependent.cuh"
#include "packs.cuh"
#include "warp.cuh"

#ifndef TW_WARPS
#define TW_WARPS 8
#define TW_LOADS 4
#endif
#ifndef TW_ROOM
#define TW_ROOM 0
#endif

constexpr int WARPS = TW_WARPS;
constexpr int LOADS = TW_LOADS;
// Threads that an SM should have registers for: with 1024, the compiler keeps as many packs as are asked for at once; left
// alone (0), it makes room for more threads, and asks for some of them later.
constexpr int BLOCKS = TW_ROOM / (WARPS * 32);
constexpr int STEP = 32 * TW_PACK;  // elements that a warp reads with one access

__device__ __forceinline__ float dot(const Pack& a, const Pack& x, float sum) {
    #pragma unroll
    for (int e = 0; e < TW_PACK; ++e) sum = fmaf(a.at[e], x.at[e], sum);
    return sum;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)
sgemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int M, int N, int ld_a) {
    wait_for_previous_grid();
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= M) return;  // the whole warp
    const float* from = a + (long long)row * ld_a;
    const bool has_packs = is_pack_aligned(a) && is_pack_aligned(x) && ld_a % TW_PACK == 0;

    float sum = 0.0f;
    int done = 0;
    if (has_packs) {
        int column = lane * TW_PACK;
        for (; column + (LOADS - 1) * STEP + TW_PACK <= N; column += LOADS * STEP) {
            Pack read[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) read[i] = load_pack(from + column + i * STEP);
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) sum = dot(read[i], load_pack(x + column + i * STEP), sum);
        }
        for (; column + TW_PACK <= N; column += STEP) sum = dot(load_pack(from + column), load_pack(x + column), sum);
        done = N / TW_PACK * TW_PACK;
    }
    for (int column = done + lane; column < N; column += 32) sum = fmaf(from[column], x[column], sum);
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
