// The sum is gathered along with the maximum: where a larger element turns up, the sum so far is scaled down to it. One
// reading of the row less, for one exponential more.
#include "block.cuh"
#include "elements.cuh"
#include "exponential.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const TW_T* __restrict__ x, TW_T* __restrict__ y, int R, int C, long long ld_x) {
    __shared__ float maxima[THREADS / 32], sums[THREADS / 32];
    x += blockIdx.x * ld_x;
    y += (long long)blockIdx.x * C;
    float seen = MINUS_INFINITY, sum = 0.0f;  // the thread's largest so far, and its sum of exp(x - seen)
    for (int column = threadIdx.x; column < C; column += THREADS) {
        const float value = to_float(x[column]);
        const float larger = fmaxf(seen, value);
        const float base = finite_base(larger);
        sum = sum * expf(seen - base) + expf(value - base);
        seen = larger;
    }
    const float largest = block_max(seen, maxima);
    const float scale = 1.0f / block_sum(sum * expf(seen - finite_base(largest)), sums);
    for (int column = threadIdx.x; column < C; column += THREADS)
        from_float(y[column], expf(to_float(x[column]) - largest) * scale);
}
