// A block makes a row. Two passes for the statistics, the mean and then the mean square of what is left, and a third
// reading for the results. Of large means it loses nothing, as the difference of a mean square and a squared mean
// would.
#include "block.cuh"
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
layernorm(const TW_T* __restrict__ x, const TW_T* __restrict__ weight, const TW_T* __restrict__ bias,
          TW_T* __restrict__ y, int R, int C, long long ld_x, float epsilon) {
    __shared__ float sums[THREADS / 32], squares[THREADS / 32];
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    float sum = 0.0f;
    for (int column = threadIdx.x; column < C; column += THREADS) sum += to_float(x[column]);
    const float mean = block_sum(sum, sums) / C;
    float square = 0.0f;
    for (int column = threadIdx.x; column < C; column += THREADS) {
        const float left = to_float(x[column]) - mean;
        square += left * left;
    }
    const float scale = rsqrtf(block_sum(square, squares) / C + epsilon);
    for (int column = threadIdx.x; column < C; column += THREADS) {
        const float value = (to_float(x[column]) - mean) * scale;
        from_float(y[column], value * to_float(weight[column]) + to_float(bias[column]));
    }
}
