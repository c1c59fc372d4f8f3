// Atomics whose result does not depend on the order: in [N] int, 0 <= in < 64; all outputs zero before.
// histogram [8], weight [8] float, largest [1], smallest_float [1] (starts at 0), tokens [blocks], bits [2].
#include "ptx_wrappers.cuh"

extern "C" __global__ void __launch_bounds__(128)
    atomics(const int *__restrict__ in, u32 *histogram, float *weight, int *largest, float *smallest, u32 *tokens,
            u32 *bits, int n) {
    __shared__ u32 bins[8];
    __shared__ u32 slot;
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    if (threadIdx.x == 0) slot = 0;
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const int x = in[i];
        atomicAdd(&bins[x / 8], 1u);
        atomicAdd(&weight[x % 8], (float)x);
        atomicMax(largest, x);
        // Minimum of floats by compare and swap.
        const float value = -0.5f * x;
        u32 seen = *(volatile u32 *)smallest;
        while (value < __uint_as_float(seen)) {
            const u32 before = atomicCAS((u32 *)smallest, seen, __float_as_uint(value));
            if (before == seen) break;
            seen = before;
        }
        atomicOr(&bits[0], 1u << (x % 32));
        atomicXor(&bits[1], (u32)x * 2654435761u);
    }
    // What each thread put in comes out again, of one thread or another, or stays: the sum is known.
    const u32 before = atomicExch(&slot, threadIdx.x + 1);
    atomicAdd(&tokens[blockIdx.x], before);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&tokens[blockIdx.x], slot);
    if (threadIdx.x < 8) atomicAdd(&histogram[threadIdx.x], bins[threadIdx.x]);
}
