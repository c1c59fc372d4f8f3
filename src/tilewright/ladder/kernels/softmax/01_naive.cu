// One thread makes a row, and reads it three times: for the largest element, for the sum, for the results.
//
// The textbook's exp(x) / sum(exp(x)) overflows in float from x = 88.7 on. What is subtracted from all of a row changes
// no result, so the row's largest element is, and no exponent is above 0. Threads of a warp read different rows: each
// load touches 32 sectors for 32 elements.
#include "elements.cuh"
#include "exponential.cuh"

constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    const long long row = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (row >= R) return;
    x += row * ld_x;
    y += row * C;
    float largest = MINUS_INFINITY;
    for (int column = 0; column < C; ++column) largest = fmaxf(largest, to_float(x[column]));
    float sum = 0.0f;
    for (int column = 0; column < C; ++column) sum += expf(to_float(x[column]) - largest);
    const float scale = 1.0f / sum;
    for (int column = 0; column < C; ++column) from_float(y[column], expf(to_float(x[column]) - largest) * scale);
}
