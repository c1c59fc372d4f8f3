// As many blocks as a card holds at once walk along the array, however long it is. A thread adds its elements in a
// register; shuffles, the barrier and the atomic addition come once a block, and no longer once for 256 elements.
#include "block.cuh"
#include "elements.cuh"

#ifndef BLOCKS
#define BLOCKS 4  // at most; a card gets more
#endif
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce(const TW_T* __restrict__ x, float* __restrict__ total, long long N, long long stride_x) {
    __shared__ float sums[THREADS / 32];
    const long long threads = (long long)gridDim.x * THREADS;
    float sum = 0.0f;
    #pragma unroll 1
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < N; i += threads)
        sum += to_float(x[i * stride_x]);
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) atomicAdd(total, sum);
}

extern "C" __global__ void write(const float* __restrict__ total, TW_T* __restrict__ y) { from_float(*y, *total); }
