// Several blocks share a row, so that few long rows are enough to fill a card. The one that comes last to a row's
// ticket adds their sums, in the same order whichever block it is; the tickets are 0 again behind it.
#include "block.cuh"
#include "dependent.cuh"
#include "elements.cuh"
#include "last.cuh"
#include "line.cuh"
#include "streams.cuh"
#include "sums.cuh"

#ifndef THREADS
#define THREADS 128
#define LOADS 4   // packs of a thread that are under way together
#define BLOCKS 8  // of all rows together, where there are fewer rows; a card gets more
#endif
constexpr int MOST_ROWS = 1024;
// Blocks of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int RESIDENT = (LOADS <= 4 ? 1536 : 1024) / THREADS;

// partial: gridDim.y of each row. tickets: one a row, 0, and 0 again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
reduce_rows(const TW_T* __restrict__ x, float* partial, unsigned* tickets, TW_T* __restrict__ y, int R, int C,
            long long ld_x) {
    wait_for_previous_grid();
    __shared__ float block_sums[THREADS / 32], last_sums[THREADS / 32];
    __shared__ bool is_last;
    const long long row = blockIdx.x;
    const int parts = gridDim.y, part = blockIdx.y;
    x += row * ld_x;
    partial += row * parts;
    const Line line = line_of(x, C);
    const TW_T* packs = x + line.head;
    float sums[LOADS] = {};
    long long first = (long long)part * (THREADS * LOADS) + threadIdx.x;
    #pragma unroll 1
    for (; first + (LOADS - 1) * THREADS < line.packs; first += (long long)parts * (THREADS * LOADS)) {
        Pack read[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) read[i] = load_pack_once(packs + (first + i * THREADS) * TW_PACK);
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] += sum_of(read[i]);
    }
    if (first < line.packs) {  // fewer than LOADS are left: behind the end the last one is read again, as zeros
        Pack read[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i)
            read[i] = load_pack_once(packs + min(first + i * THREADS, line.packs - 1) * TW_PACK);
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] += sum_of(only_if(first + i * THREADS < line.packs, read[i]));
    }
    if (part == 0 && threadIdx.x < line.loose) sums[0] += to_float(x[loose_at(line, threadIdx.x)]);
    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    sum = block_sum(sum, block_sums);
    if (parts > 1) {
        if (threadIdx.x == 0) {
            partial[part] = sum;
            is_last = draws_last(tickets + row, parts);
        }
        __syncthreads();
        if (!is_last) return;
        sum = 0.0f;
        for (int i = threadIdx.x; i < parts; i += THREADS) sum += __ldcg(partial + i);  // past L1: others wrote it
        sum = block_sum(sum, last_sums);
    }
    if (threadIdx.x == 0) from_float(y[row], sum);
}
