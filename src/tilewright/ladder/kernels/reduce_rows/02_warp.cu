// A warp shares a row: its lanes read neighbouring elements, and add up by shuffles what each of them found.
#include "elements.cuh"
#include "warp.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_rows(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    const long long row = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= R) return;  // the whole warp
    float sum = 0.0f;
    #pragma unroll 1
    for (int column = lane; column < C; column += 32) sum += to_float(x[row * ld_x + column]);
    sum = warp_sum(sum);
    if (lane == 0) from_float(y[row], sum);
}
