// One warp a row: its lanes read neighbours, and a request touches the four sectors that it needs. The lanes' sums are
// added by shuffles.
#include "warp.cuh"

constexpr int WARPS = 8;

extern "C" __global__ void __launch_bounds__(WARPS * 32)
sgemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int M, int N, int ld_a) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= M) return;  // the whole warp
    const float* from = a + (long long)row * ld_a;
    float sum = 0.0f;
    for (int column = lane; column < N; column += 32) sum = fmaf(from[column], x[column], sum);
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
