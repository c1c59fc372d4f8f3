// One block a row, for matrices of few long rows: eight warps share a row, and add their sums by way of shared memory.
// Where there are rows enough for a warp each, that exchange is a cost for nothing.
#include "block.cuh"
#include "dependent.cuh"
#include "packs.cuh"

constexpr int THREADS = 256;
constexpr int LOADS = 4;
constexpr int STEP = THREADS * TW_PACK;  // elements that a block reads with one access

__device__ __forceinline__ float dot(const Pack& a, const Pack& x, float sum) {
    #pragma unroll
    for (int e = 0; e < TW_PACK; ++e) sum = fmaf(a.at[e], x.at[e], sum);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
sgemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int M, int N, int ld_a) {
    wait_for_previous_grid();
    __shared__ float partial[THREADS / 32];
    const int row = blockIdx.x;
    const float* from = a + (long long)row * ld_a;
    const bool has_packs = is_pack_aligned(a) && is_pack_aligned(x) && ld_a % TW_PACK == 0;

    float sum = 0.0f;
    int done = 0;
    if (has_packs) {
        int column = threadIdx.x * TW_PACK;
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
    for (int column = done + threadIdx.x; column < N; column += THREADS) sum = fmaf(from[column], x[column], sum);

    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) y[row] = sum;
}
