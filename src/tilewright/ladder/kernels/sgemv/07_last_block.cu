// Long rows in one launch: the blocks of a row walk along it together, past L1, so that what the card reads at a time lies
// together; the one that comes last adds their sums, in the same order whichever block it is.
#include "block.cuh"
#include "dependent.cuh"
#include "last.cuh"
#include "packs.cuh"
#include "streams.cuh"

#ifndef TW_SPLITS
#define TW_THREADS 64
#define TW_LOADS 2
#define TW_SPLITS 4
#endif
#ifndef TW_ROOM
#define TW_ROOM 1024
#endif

constexpr int THREADS = TW_THREADS;
constexpr int LOADS = TW_LOADS;    // packs of the row, and as many of x, that a thread has under way together
constexpr int SPLITS = TW_SPLITS;  // blocks a row
constexpr int ROWS = 255;          // at the most
constexpr int BLOCKS = TW_ROOM / THREADS;  // that an SM should have registers for, as in 03_vector

__device__ __forceinline__ float dot(const Pack& a, const Pack& x, float sum) {
    #pragma unroll
    for (int e = 0; e < TW_PACK; ++e) sum = fmaf(a.at[e], x.at[e], sum);
    return sum;
}

// partial: the blocks' sums. tickets: one a row, 0, and 0 again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
sgemv(const float* __restrict__ a, const float* __restrict__ x, float* partial, unsigned* tickets, float* __restrict__ y,
      int M, int N, int ld_a) {
    wait_for_previous_grid();
    __shared__ float block_sums[THREADS / 32], last_sums[THREADS / 32];
    __shared__ bool is_last;
    const int row = blockIdx.y;
    const float* const from = a + (long long)row * ld_a;
    const bool has_packs = is_pack_aligned(a) && is_pack_aligned(x) && ld_a % TW_PACK == 0;
    const int packs = has_packs ? N / TW_PACK : 0;
    constexpr int STEP = SPLITS * THREADS * LOADS;

    float sums[LOADS] = {};
    long long first = (long long)blockIdx.x * (THREADS * LOADS) + threadIdx.x;
    #pragma unroll 1
    for (; first + (LOADS - 1) * THREADS < packs; first += STEP) {
        Pack read[LOADS], of_x[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            read[i] = load_pack_once(from + (first + i * THREADS) * TW_PACK);
            of_x[i] = load_pack_once(x + (first + i * THREADS) * TW_PACK);
        }
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] = dot(read[i], of_x[i], sums[i]);
    }
    #pragma unroll
    for (int i = 0; i < LOADS - 1; ++i) {  // fewer than LOADS are left
        const long long pack = first + i * THREADS;
        if (pack < packs) sums[i] = dot(load_pack(from + pack * TW_PACK), load_pack(x + pack * TW_PACK), sums[i]);
    }
    for (long long column = (long long)packs * TW_PACK + blockIdx.x * THREADS + threadIdx.x; column < N;
         column += SPLITS * THREADS)
        sums[0] = fmaf(from[column], x[column], sums[0]);

    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    sum = block_sum(sum, block_sums);
    float* const of_row = partial + (long long)row * SPLITS;
    if (threadIdx.x == 0) {
        of_row[blockIdx.x] = sum;
        is_last = draws_last(tickets + row, SPLITS);
    }
    __syncthreads();
    if (!is_last) return;
    sum = 0.0f;
    for (int i = threadIdx.x; i < SPLITS; i += THREADS) sum += __ldcg(of_row + i);  // past L1: others wrote it
    sum = block_sum(sum, last_sums);
    if (threadIdx.x == 0) y[row] = sum;
}
