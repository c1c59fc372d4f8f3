// A block makes a row: neighbouring threads read neighbouring elements, so that a warp's load is a few whole sectors.
// What they find is merged by shuffles and through shared memory. The row is still read three times.
#include "block.cuh"
#include "elements.cuh"
#include "exponential.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    __shared__ float maxima[THREADS / 32], sums[THREADS / 32];
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    float largest = MINUS_INFINITY;
    for (int column = threadIdx.x; column < C; column += THREADS) largest = fmaxf(largest, to_float(x[column]));
    largest = block_max(largest, maxima);
    float sum = 0.0f;
    for (int column = threadIdx.x; column < C; column += THREADS) sum += expf(to_float(x[column]) - largest);
    const float scale = 1.0f / block_sum(sum, sums);
    for (int column = threadIdx.x; column < C; column += THREADS)
        from_float(y[column], expf(to_float(x[column]) - largest) * scale);
}
