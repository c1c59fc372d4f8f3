// Values come in packs of 16 bytes, and a thread asks for PACKS of them before it counts the first.
#include "dependent.cuh"
#include "packs.cuh"
#include "streams.cuh"

#ifndef PACKS
#define BLOCKS 2   // at most
#define COPIES 32  // a power of two
#define THREADS 256
#define PACKS 2    // of a thread, under way at once
#endif
constexpr int STEP = THREADS * TW_PACK;  // elements between two packs of a thread
constexpr int SPAN = PACKS * STEP;       // of a block, at once

__device__ __forceinline__ void count(unsigned* own, unsigned value, unsigned bins) {
    atomicAdd(&own[min(value, bins) * COPIES], 1u);
}

// The packs of a span; all of them are there if it is FULL, so that nothing stands between the loads.
template <bool FULL>
__device__ __forceinline__ void count_span(unsigned* own, const TW_T* x, int here, unsigned bins) {
    Pack packs[PACKS];
    const int first = threadIdx.x * TW_PACK;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        if (FULL || first + i * STEP < here) packs[i] = load_pack_once(x + first + i * STEP);
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        if (!FULL && first + i * STEP >= here) break;
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) count(own, packs[i].at[j], bins);
    }
}


extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const TW_T* __restrict__ x, unsigned long long* __restrict__ counts, long long N,
          unsigned bins) {
    wait_for_previous_grid();
    extern __shared__ unsigned found[];  // COPIES counters a bin, and as many for values that have none
    for (unsigned i = threadIdx.x; i < (bins + 1) * COPIES; i += THREADS) found[i] = 0;
    __syncthreads();
    unsigned* own = found + threadIdx.x % COPIES;
    const long long whole = is_pack_aligned(x) ? N / TW_PACK * TW_PACK : 0;
    for (long long begin = (long long)blockIdx.x * SPAN; begin < whole; begin += (long long)gridDim.x * SPAN) {
        if (begin + SPAN <= whole) count_span<true>(own, x + begin, SPAN, bins);
        else count_span<false>(own, x + begin, whole - begin, bins);
    }
    // The elements behind the last whole pack; all of them where a view begins between two packs.
    for (long long at = whole + (long long)blockIdx.x * THREADS + threadIdx.x; at < N;
         at += (long long)gridDim.x * THREADS)
        count(own, x[at], bins);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < bins; bin += THREADS) {
        unsigned sum = 0;
        #pragma unroll
        for (int i = 0; i < COPIES; ++i) sum += found[bin * COPIES + (bin + i) % COPIES];  // each lane begins elsewhere
        if (sum) atomicAdd(&counts[bin], (unsigned long long)sum);
    }
}
