// The values of BATCH parts are asked for before anything is known of their weights: they are under way together, and
// along with the logarithms, instead of one after the other. Parts come in batches; what is known so far is scaled down
// where a later batch has a larger logarithm, so that the logarithms are read once, too.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "divide.cuh"
#include "elements.cuh"
#include "exponential.cuh"
#include "round.cuh"
#include "streams.cuh"

#ifndef BATCH
#define BATCH 4
#endif
constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
merge(const TW_T* __restrict__ values, const float* __restrict__ logs, TW_T* __restrict__ merged,
      float* __restrict__ merged_logs, int P, long long N, int D) {
    wait_for_previous_grid();
    const bool packed = D % TW_PACK == 0 && is_pack_aligned(values) && is_pack_aligned(merged);
    const int step = packed ? TW_PACK : 1, steps = D / step;  // elements of a thread, threads of a row
    // As many threads as packs; where elements go one by one, each thread comes round again.
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < N * steps;
         at += (long long)gridDim.x * THREADS) {
        const auto [row, place] = divide(at, steps);
        float largest = MINUS_INFINITY, total = 0.0f;
        float sums[TW_PACK] = {};
        #pragma unroll 1
        for (int first = 0; first < P; first += BATCH) {
            Pack packs[BATCH] = {};
            float log[BATCH];
            #pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const TW_T* from = values + (first + b) * N * D + at * step;
                log[b] = MINUS_INFINITY;
                if (first + b < P) {
                    log[b] = logs[(first + b) * N + row];
                    if (packed) packs[b] = load_pack_once(from);
                    else packs[b].at[0] = *from;
                }
            }
            float larger = largest;
            #pragma unroll
            for (int b = 0; b < BATCH; ++b) larger = fmaxf(larger, log[b]);
            const float base = finite_base(larger), kept = expf(largest - base);  // 0 of nothing
            total *= kept;
            #pragma unroll
            for (int j = 0; j < TW_PACK; ++j) sums[j] *= kept;
            #pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (log[b] == MINUS_INFINITY) continue;
                const float weight = expf(log[b] - base);
                total += weight;
                #pragma unroll
                for (int j = 0; j < TW_PACK; ++j) sums[j] += weight * to_float(packs[b].at[j]);
            }
            largest = larger;
        }
        const float scale = total == 0.0f ? 0.0f : 1.0f / total;
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) sums[j] *= scale;
        if (packed) store_pack_once(merged + at * step, rounded(sums));
        else from_float(merged[at], sums[0]);
        if (place == 0) merged_logs[row] = finite_base(largest) + logf(total);
    }
}
