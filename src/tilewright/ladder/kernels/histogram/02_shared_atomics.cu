// Each block counts in its shared memory, and adds what it found to memory once: an atomic for each bin of a block, where
// there was one for each element. A card's fill of blocks walks along the values.
#include "elements.cuh"

#ifndef BLOCKS
#define BLOCKS 2  // at most
#endif
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const TW_T* __restrict__ x, unsigned long long* __restrict__ counts, long long N,
          unsigned bins) {
    extern __shared__ unsigned found[];  // a counter a bin, and one for values that have none: no branch, then
    for (unsigned bin = threadIdx.x; bin <= bins; bin += THREADS) found[bin] = 0;
    __syncthreads();
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < N; at += (long long)gridDim.x * THREADS)
        atomicAdd(&found[min((unsigned)x[at], bins)], 1u);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < bins; bin += THREADS) {
        if (found[bin]) atomicAdd(&counts[bin], (unsigned long long)found[bin]);
    }
}
