// The sum of each row: one thread a row. Neighbouring threads read from different rows, so a warp's request touches a
// sector a lane, for one element of each.
#include "elements.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_rows(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    const long long row = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (row >= R) return;
    float sum = 0.0f;
    #pragma unroll 1
    for (int column = 0; column < C; ++column) sum += to_float(x[row * ld_x + column]);
    from_float(y[row], sum);
}
