// Several blocks a row, for matrices with fewer rows than the card has multiprocessors: each block adds a stretch of the
// row, and a second kernel adds the stretches' sums, in the same order every time, which atomics would not do.
#include "block.cuh"
#include "dependent.cuh"
#include "packs.cuh"

#ifndef TW_SPLITS
#define TW_SPLITS 32
#endif
#ifndef TW_ROOM
#define TW_ROOM 0
#endif

constexpr int THREADS = 256;
constexpr int SPLITS = TW_SPLITS;  // stretches a row: the fewer rows, the more, as long as each is work for a block
constexpr int BLOCKS = TW_ROOM / THREADS;  // that an SM should have registers for, as in 03_vector
constexpr int LOADS = 4;
constexpr int STEP = THREADS * TW_PACK;  // elements that a block reads with one access

__device__ __forceinline__ float dot(const Pack& a, const Pack& x, float sum) {
    #pragma unroll
    for (int e = 0; e < TW_PACK; ++e) sum = fmaf(a.at[e], x.at[e], sum);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
sgemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ partial, int M, int N, int ld_a) {
    wait_for_previous_grid();
    __shared__ float sums[THREADS / 32];
    const int row = blockIdx.x;
    const float* from = a + (long long)row * ld_a;
    const bool has_packs = is_pack_aligned(a) && is_pack_aligned(x) && ld_a % TW_PACK == 0;
    // Stretches are whole packs long; the last ones may be short, or empty.
    const int packs = N / TW_PACK + (N % TW_PACK != 0);
    const long long length = (long long)(packs / SPLITS + (packs % SPLITS != 0)) * TW_PACK;
    const int begin = min(blockIdx.y * length, (long long)N);
    const int end = min(begin + length, (long long)N);

    float sum = 0.0f;
    int done = begin;
    if (has_packs) {
        int column = begin + threadIdx.x * TW_PACK;
        for (; column + (LOADS - 1) * STEP + TW_PACK <= end; column += LOADS * STEP) {
            Pack read[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) read[i] = load_pack(from + column + i * STEP);
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) sum = dot(read[i], load_pack(x + column + i * STEP), sum);
        }
        for (; column + TW_PACK <= end; column += STEP) sum = dot(load_pack(from + column), load_pack(x + column), sum);
        done = max(begin, end / TW_PACK * TW_PACK);  // an empty stretch begins at its end
    }
    for (int column = done + threadIdx.x; column < end; column += THREADS) sum = fmaf(from[column], x[column], sum);

    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) partial[(long long)row * SPLITS + blockIdx.y] = sum;
}

// y[row] = the sum of its stretches: a warp a row, each lane every 32nd.
extern "C" __global__ void __launch_bounds__(THREADS)
add_stretches(const float* __restrict__ partial, float* __restrict__ y, int M) {
    wait_for_previous_grid();
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= M) return;  // the whole warp
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < SPLITS; i += 32) sum += i + lane < SPLITS ? partial[(long long)row * SPLITS + i + lane] : 0.0f;
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
