// A thread makes a pack of 16 bytes: the parts are weighed once for 4 or 8 elements, and each load brings as many.
#include "divide.cuh"
#include "elements.cuh"
#include "exponential.cuh"
#include "round.cuh"
#include "streams.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
merge(const TW_T* __restrict__ values, const float* __restrict__ logs, TW_T* __restrict__ merged,
      float* __restrict__ merged_logs, int P, long long N, int D) {
    const bool packed = D % TW_PACK == 0 && is_pack_aligned(values) && is_pack_aligned(merged);
    const int step = packed ? TW_PACK : 1, steps = D / step;  // elements of a thread, threads of a row
    // As many threads as packs; where elements go one by one, each thread comes round again.
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < N * steps;
         at += (long long)gridDim.x * THREADS) {
        const auto [row, place] = divide(at, steps);
        float largest = MINUS_INFINITY;
        for (int part = 0; part < P; ++part) largest = fmaxf(largest, logs[part * N + row]);
        const float base = finite_base(largest);
        float sums[TW_PACK] = {}, total = 0.0f;
        for (int part = 0; part < P; ++part) {
            const float log = logs[part * N + row];
            if (log == MINUS_INFINITY) continue;
            const float weight = expf(log - base);
            const TW_T* from = values + part * N * D + at * step;
            total += weight;
            if (packed) {
                const Pack pack = load_pack_once(from);
                #pragma unroll
                for (int j = 0; j < TW_PACK; ++j) sums[j] += weight * to_float(pack.at[j]);
            } else {
                sums[0] += weight * to_float(*from);
            }
        }
        const float scale = total == 0.0f ? 0.0f : 1.0f / total;
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sums[j] *= scale;
        if (packed) store_pack_once(merged + at * step, rounded(sums));
        else from_float(merged[at], sums[0]);
        if (place == 0) merged_logs[row] = base + logf(total);
    }
}
