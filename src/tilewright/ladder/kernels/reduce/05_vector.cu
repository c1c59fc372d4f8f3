// A load brings 16 bytes, and a thread asks for LOADS of them before it adds the first: so many bytes are under way
// that the memory is never idle, which one load of 2 or 4 bytes a thread does not reach. They stand in no branch, not
// even in the last round: else the compiler has each of them wait for the one before.
//
// Elements before the first multiple of 16 bytes, and those behind the last pack, are the first block's. Where elements
// do not lie side by side, they come one by one.
#include "block.cuh"
#include "elements.cuh"
#include "line.cuh"
#include "streams.cuh"
#include "sums.cuh"

#ifndef THREADS
#define THREADS 128
#define LOADS 4   // packs of a thread that are under way together
#define BLOCKS 4  // at most; a card gets more
#endif
// Blocks of an SM: the compiler keeps to the registers that so many leave each other.
constexpr int RESIDENT = (LOADS <= 4 ? 1536 : 1024) / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
reduce(const TW_T* __restrict__ x, float* __restrict__ total, long long N, long long stride_x) {
    __shared__ float block_sums[THREADS / 32];
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sums[LOADS] = {};
    if (stride_x == 1) {
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
    } else {
        #pragma unroll 1
        for (long long i = thread; i < N; i += (long long)gridDim.x * THREADS) sums[0] += to_float(x[i * stride_x]);
    }
    float sum = sums[0];
    #pragma unroll
    for (int i = 1; i < LOADS; ++i) sum += sums[i];
    sum = block_sum(sum, block_sums);
    if (threadIdx.x == 0) atomicAdd(total, sum);
}

extern "C" __global__ void write(const float* __restrict__ total, TW_T* __restrict__ y) { from_float(*y, *total); }
