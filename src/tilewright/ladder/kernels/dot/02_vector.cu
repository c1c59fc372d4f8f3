// A load brings 16 bytes, and a thread asks for LOADS of them from each vector before it multiplies the first: so many
// bytes are under way that the memory is never idle.
//
// Elements before the first multiple of 16 bytes, and those behind the last pack, are the first block's. Vectors whose
// elements do not lie side by side, or that begin at different places within 16 bytes, come element by element.
#include "block.cuh"
#include "elements.cuh"
#include "line.cuh"
#include "streams.cuh"
#include "sums.cuh"

#ifndef THREADS
#define THREADS 128
#define LOADS 2   // packs of each vector that a thread has under way together
#define BLOCKS 4  // at most; a card gets more
#endif
// Blocks of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int RESIDENT = (LOADS <= 2 ? 1536 : 1024) / THREADS;
constexpr int ADDERS = 256;  // threads of the second launch

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
dot(const TW_T* __restrict__ a, const TW_T* __restrict__ b, float* __restrict__ partial, long long N,
    long long stride_a, long long stride_b) {
    __shared__ float block_sums[THREADS / 32];
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sums[LOADS] = {};
    if (stride_a == 1 && stride_b == 1 && begin_alike(a, b)) {
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
    } else {
        #pragma unroll 1
        for (long long i = thread; i < N; i += (long long)gridDim.x * THREADS)
            sums[0] = fmaf(to_float(a[i * stride_a]), to_float(b[i * stride_b]), sums[0]);
    }
    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    sum = block_sum(sum, block_sums);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block; blocks: how many there were.
extern "C" __global__ void __launch_bounds__(ADDERS)
add(const float* __restrict__ partial, TW_T* __restrict__ y, int blocks) {
    __shared__ float sums[ADDERS / 32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += ADDERS) sum += partial[i];
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) from_float(*y, sum);
}
