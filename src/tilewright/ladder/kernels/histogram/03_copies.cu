// COPIES counters a bin, next to one another: lanes of a warp with the same value count in different ones. With 32 of
// them each lane has a bank of its own, and no lane waits for another, whatever the values are.
#include "elements.cuh"

#ifndef COPIES
#define BLOCKS 2   // at most
#define COPIES 32  // a power of two
#endif
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const TW_T* __restrict__ x, unsigned long long* __restrict__ counts, long long N,
          unsigned bins) {
    extern __shared__ unsigned found[];  // COPIES counters a bin, and as many for values that have none
    for (unsigned i = threadIdx.x; i < (bins + 1) * COPIES; i += THREADS) found[i] = 0;
    __syncthreads();
    unsigned* own = found + threadIdx.x % COPIES;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < N; at += (long long)gridDim.x * THREADS)
        atomicAdd(&own[min((unsigned)x[at], bins) * COPIES], 1u);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < bins; bin += THREADS) {
        unsigned sum = 0;
        #pragma unroll
        for (int i = 0; i < COPIES; ++i) sum += found[bin * COPIES + (bin + i) % COPIES];  // each lane begins elsewhere
        if (sum) atomicAdd(&counts[bin], (unsigned long long)sum);
    }
}
