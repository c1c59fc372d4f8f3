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
#define LOADS 2   // packs of each vector that a thread has under way together
#define BLOCKS 4  // at most; a card gets more
#endif
// Blocks of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int RESIDENT = (LOADS <= 2 ? 1536 : LOADS <= 4 ? 1024 : 768) / THREADS;

// marked: zeros, and zeros again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
dot(const TW_T* __restrict__ a, const TW_T* __restrict__ b, unsigned long long* marked, TW_T* __restrict__ y, long long N,
    long long stride_a, long long stride_b) {
    wait_for_previous_grid();
    if (N == 1) {  // one product is no sum: nobody waits for anybody
        if (blockIdx.x == 0 && threadIdx.x == 0) from_float(*y, to_float(*a) * to_float(*b));
        return;
    }
    __shared__ float block_sums[THREADS / 32], last_sums[THREADS / 32];
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sums[LOADS] = {};
    if (stride_a == 1 && stride_b == 1 && N > 4 * THREADS && begin_alike(a, b)) {
        const Line line = line_of(a, N);
        const TW_T *packs_a = a + line.head, *packs_b = b + line.head;
        long long first = (long long)blockIdx.x * (THREADS * LOADS) + threadIdx.x;
        #pragma unroll 1
        for (; first + (LOADS - 1) * THREADS < line.packs; first += (long long)gridDim.x * (THREADS * LOADS)) {
            Pack read_a[LOADS], read_b[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                read_a[i] = load_pack_once(packs_a + (first + i * THREADS) * TW_PACK);
                read_b[i] = load_pack_once(packs_b + (first + i * THREADS) * TW_PACK);
            }
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) sums[i] += dot_of(read_a[i], read_b[i]);
        }
        if (first < line.packs) {  // fewer than LOADS are left: behind the end the last one is read again, as zeros
            Pack read_a[LOADS], read_b[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const long long pack = min(first + i * THREADS, line.packs - 1);
                read_a[i] = load_pack_once(packs_a + pack * TW_PACK);
                read_b[i] = load_pack_once(packs_b + pack * TW_PACK);
            }
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const bool is_there = first + i * THREADS < line.packs;
                sums[i] += dot_of(only_if(is_there, read_a[i]), only_if(is_there, read_b[i]));
            }
        }
        if (thread < line.loose) {
            const long long i = loose_at(line, thread);
            sums[0] = fmaf(to_float(a[i]), to_float(b[i]), sums[0]);
        }
    } else {  // or so few that each thread has one, or some: they are under way together
        const long long step = (long long)gridDim.x * THREADS;
        #pragma unroll 1
        for (long long first = thread; first < N; first += 4 * step) {
            float read_a[4], read_b[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const long long at = first + i * step;
                read_a[i] = at < N ? to_float(a[at * stride_a]) : 0.0f;
                read_b[i] = at < N ? to_float(b[at * stride_b]) : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) sums[0] = fmaf(read_a[i], read_b[i], sums[0]);
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
