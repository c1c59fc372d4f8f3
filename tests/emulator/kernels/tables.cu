// Tables with initial values: __constant__ of several types, and a __device__ one that is written to.
// in [N] int, out [N] float: weights[in % 5] * scale + shorts[in % 3] + bytes[in % 4]; count [1]: the threads so far.
__constant__ float weights[5] = {1.0f, -2.0f, 0.5f, 4.0f, 8.0f};
__constant__ short shorts[3] = {-300, 7, 1000};
__constant__ unsigned char bytes[8] = {1, 2, 250};
__constant__ double scale = 2.0;
__device__ unsigned int counted = 40;
__device__ int unset[4];

extern "C" __global__ void __launch_bounds__(64)
    tables(const int *__restrict__ in, float *__restrict__ out, unsigned int *__restrict__ count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int x = in[i];
    out[i] = (float)(weights[x % 5] * scale) + shorts[x % 3] + bytes[x % 4] + unset[x % 4];
    atomicMax(count, atomicAdd(&counted, 1u) + 1);
}
