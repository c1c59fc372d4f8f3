// Attention over parts of the keys, merged: each part brings its result and the logarithm of its sum of exponentials.
// One thread makes one element, and weighs the parts anew for it.
//
// A part whose logarithm is -inf saw no key: its values are not looked at, whatever they are. Where no part saw any,
// the result is 0 and its logarithm -inf.
#include "divide.cuh"
#include "elements.cuh"
#include "exponential.cuh"

constexpr int THREADS = 256;

// values is [P, N, D], logs [P, N]; N counts queries of all heads.
extern "C" __global__ void __launch_bounds__(THREADS)
merge(const TW_T* __restrict__ values, const float* __restrict__ logs, TW_T* __restrict__ merged,
      float* __restrict__ merged_logs, int P, long long N, int D) {
    const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (at >= N * D) return;
    const auto [row, column] = divide(at, D);
    float largest = MINUS_INFINITY;
    for (int part = 0; part < P; ++part) largest = fmaxf(largest, logs[part * N + row]);
    const float base = finite_base(largest);
    float sum = 0.0f, total = 0.0f;
    for (int part = 0; part < P; ++part) {
        const float log = logs[part * N + row];
        if (log == MINUS_INFINITY) continue;
        const float weight = expf(log - base);
        total += weight;
        sum += weight * to_float(values[part * N * D + at]);
    }
    from_float(merged[at], total == 0.0f ? 0.0f : sum / total);
    if (column == 0) merged_logs[row] = base + logf(total);
}
