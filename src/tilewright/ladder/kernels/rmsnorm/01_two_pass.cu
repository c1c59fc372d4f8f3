// A block makes a row, and reads it twice: for the sum of its squares, and for the results.
#include "block.cuh"
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
rmsnorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, TW_T* __restrict__ y, int R, int C, long long ld_x,
        float epsilon) {
    __shared__ float sums[THREADS / 32];
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    float squares = 0.0f;
    for (int column = threadIdx.x; column < C; column += THREADS) {
        const float value = to_float(x[column]);
        squares += value * value;
    }
    const float scale = rsqrtf(block_sum(squares, sums) / C + epsilon);
    for (int column = threadIdx.x; column < C; column += THREADS)
        from_float(y[column], to_float(x[column]) * scale * to_float(weight[column]));
}
