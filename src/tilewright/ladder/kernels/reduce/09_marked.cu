// Sums that say themselves that they are there: a block writes its sum and a mark as one word, and the block of the
// highest index, which starts last, reads the words again and again until it has all marks. No ticket, no fence between
// sum and ticket: what waits for the other is one write and one read. The words are 0 again behind it.
#include "block.cuh"
#include "dependent.cuh"
#include "elements.cuh"
#include "line.cuh"
#include "marked.cuh"
#include "streams.cuh"
#include "sums.cuh"

#ifndef THREADS
#define THREADS 128
#define LOADS 4   // packs of a thread that are under way together
#define BLOCKS 4  // at most; a card gets more
#endif
// Blocks of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int RESIDENT = (LOADS <= 4 ? 1536 : 1024) / THREADS;

// marked: zeros, and zeros again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
reduce(const TW_T* __restrict__ x, unsigned long long* marked, TW_T* __restrict__ y, long long N,
       long long stride_x) {
    wait_for_previous_grid();
    if (N == 1) {  // one element is no sum: nobody waits for anybody
        if (blockIdx.x == 0 && threadIdx.x == 0) *y = *x;
        return;
    }
    __shared__ float block_sums[THREADS / 32], last_sums[THREADS / 32];
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sums[LOADS] = {};
    if (stride_x == 1 && N > 4 * THREADS) {
        const Line line = line_of(x, N);
        const TW_T* packs = x + line.head;
        long long first = (long long)blockIdx.x * (THREADS * LOADS) + threadIdx.x;
        #pragma unroll 1
        for (; first + (LOADS - 1) * THREADS < line.packs; first += (long long)gridDim.x * (THREADS * LOADS)) {
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
        if (thread < line.loose) sums[0] += to_float(x[loose_at(line, thread)]);
    } else {  // or so few that each thread has one, or some: they are under way together
        const long long step = (long long)gridDim.x * THREADS;
        #pragma unroll 1
        for (long long first = thread; first < N; first += 4 * step) {
            float read[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                read[i] = first + i * step < N ? to_float(x[(first + i * step) * stride_x]) : 0.0f;
            sums[0] += (read[0] + read[1]) + (read[2] + read[3]);
        }
    }
    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    sum = block_sum(sum, block_sums);
    if (gridDim.x > 1) {
        const unsigned before = gridDim.x - 1;
        if (blockIdx.x < before) {
            if (threadIdx.x == 0) write_marked(marked + blockIdx.x, sum);
            return;
        }
        if (threadIdx.x > 0) sum = 0.0f;
        for (unsigned i = threadIdx.x; i < before; i += THREADS) sum += take_marked(marked + i);
        sum = block_sum(sum, last_sums);
    }
    if (threadIdx.x == 0) from_float(*y, sum);
}
