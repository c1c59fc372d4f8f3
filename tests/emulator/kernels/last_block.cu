// A sum in one launch: each block leaves its part, the block that is last to finish adds the parts up.
// in [N] float (whole numbers), parts [blocks] float, out [1] float; counter [1] is zero before and after.
#include "ptx_wrappers.cuh"

constexpr int THREADS = 64;

DEVICE float block_sum(float x, float *shared) {
    shared[threadIdx.x] = x;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    last_block(const float *__restrict__ in, float *parts, float *out, u32 *counter, int n) {
    __shared__ float shared[THREADS];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) sum += in[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        // atomicInc wraps to zero at the last block: the counter is ready for the next launch.
        last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    sum = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) sum += ((volatile float *)parts)[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) out[0] = sum;
}
