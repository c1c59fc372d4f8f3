// One thread an element, which adds 1 to its bin in memory. All threads of the card wait for each other at the bins.
// Values that have no bin are not counted.
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const TW_T* __restrict__ x, unsigned long long* __restrict__ counts, long long N,
          unsigned bins) {
    const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (at >= N) return;
    const unsigned value = x[at];  // a negative one is a large one
    if (value < bins) atomicAdd(&counts[value], 1ull);
}
