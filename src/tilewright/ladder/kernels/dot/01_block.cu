// The dot product of two vectors: a card's fill of blocks walks along both, a thread adds its products in a register,
// and a second launch adds the blocks' sums, always in the same order.
#include "block.cuh"
#include "elements.cuh"

#ifndef BLOCKS
#define BLOCKS 4  // at most; a card gets more
#endif
constexpr int THREADS = 256;
constexpr int ADDERS = 256;  // threads of the second launch

// a[i * stride_a] and b[i * stride_b], 0 <= i < N.
extern "C" __global__ void __launch_bounds__(THREADS)
dot(const TW_T* __restrict__ a, const TW_T* __restrict__ b, float* __restrict__ partial, long long N,
    long long stride_a, long long stride_b) {
    __shared__ float sums[THREADS / 32];
    const long long threads = (long long)gridDim.x * THREADS;
    float sum = 0.0f;
    #pragma unroll 1
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < N; i += threads)
        sum = fmaf(to_float(a[i * stride_a]), to_float(b[i * stride_b]), sum);
    sum = block_sum(sum, sums);
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
