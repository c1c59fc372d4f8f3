// The sum of all elements: each thread adds its element to the total in memory. All of them meet at one address, which
// takes them one after the other, in any order: the last bits differ from run to run.
//
// Atomic additions to memory drop what is below 2**-126 (PTX ISA, "red"); only a sum of nothing else shows it.
#include "elements.cuh"

constexpr int THREADS = 256;

// total: 0 before. x[i * stride_x], 0 <= i < N.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce(const TW_T* __restrict__ x, float* __restrict__ total, long long N, long long stride_x) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < N) atomicAdd(total, to_float(x[i * stride_x]));
}

// Rounded once, at the end.
extern "C" __global__ void write(const float* __restrict__ total, TW_T* __restrict__ y) { from_float(*y, *total); }
