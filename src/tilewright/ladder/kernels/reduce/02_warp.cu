// The lanes of a warp add up their elements by shuffles, between registers: one atomic addition for 32 elements.
#include "elements.cuh"
#include "warp.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce(const TW_T* __restrict__ x, float* __restrict__ total, long long N, long long stride_x) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    const float sum = warp_sum(i < N ? to_float(x[i * stride_x]) : 0.0f);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

extern "C" __global__ void write(const float* __restrict__ total, TW_T* __restrict__ y) { from_float(*y, *total); }
