// The warps of a block add up their sums by way of shared memory: one atomic addition for 256 elements.
#include "block.cuh"
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce(const TW_T* __restrict__ x, float* __restrict__ total, long long N, long long stride_x) {
    __shared__ float sums[THREADS / 32];
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    const float sum = block_sum(i < N ? to_float(x[i * stride_x]) : 0.0f, sums);
    if (threadIdx.x == 0) atomicAdd(total, sum);
}

extern "C" __global__ void write(const float* __restrict__ total, TW_T* __restrict__ y) { from_float(*y, *total); }
