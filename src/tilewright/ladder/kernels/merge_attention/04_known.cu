// How many parts there are, and which thread has what, is known when it is built: no loop, no division. The pieces of
// all parts, and their logarithms, are under way together; what a row's logarithms give is computed once for several
// pieces of it; and as few registers are taken as leave room for many threads.
#include "dependent.cuh"
#include "exponential.cuh"
#include "share.cuh"

#ifndef PARTS
#define PARTS 4                  // as many, or fewer
#define LANES 8                  // threads of a row
#define PIECES 4                 // accesses of a thread in a row
#define WIDTH (16 / TW_T_BYTES)  // elements of an access, where the arrays allow it
#define ROWS 16                  // of a block
#endif

// Columns from the thread's first one on: `left`. Of a part that saw no key nothing is looked at.
template <int ACROSS, int OWNED>
__device__ __forceinline__ float merge_pieces(const TW_T* values, const float* logs, TW_T* merged, int P, long long N,
                                              long long pitch, int left) {
    Bits<ACROSS> shares[PARTS][OWNED];
    float weights[PARTS];
    #pragma unroll
    for (int p = 0; p < PARTS; ++p) {
        weights[p] = MINUS_INFINITY;
        if (p < P) weights[p] = __ldg(logs + p * N);
        #pragma unroll
        for (int i = 0; i < OWNED; ++i) {
            shares[p][i] = {};
            if (p < P && i * LANES * ACROSS < left)
                shares[p][i] = load_bits<ACROSS>(values + p * pitch + i * LANES * ACROSS);
        }
    }
    float largest = MINUS_INFINITY, total = 0.0f;
    #pragma unroll
    for (int p = 0; p < PARTS; ++p) largest = fmaxf(largest, weights[p]);
    const float base = finite_base(largest);
    #pragma unroll
    for (int p = 0; p < PARTS; ++p) {
        const unsigned seen = weights[p] == MINUS_INFINITY ? 0 : 0xffffffff;
        weights[p] = expf(weights[p] - base);
        total += weights[p];
        #pragma unroll
        for (int i = 0; i < OWNED; ++i)
            #pragma unroll
            for (unsigned& word : shares[p][i].at) word &= seen;
    }
    const float scale = total == 0.0f ? 0.0f : 1.0f / total;
    #pragma unroll
    for (int i = 0; i < OWNED; ++i) {
        float sums[ACROSS] = {};
        #pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            float each[ACROSS];
            unpack(each, shares[p][i]);
            #pragma unroll
            for (int j = 0; j < ACROSS; ++j) sums[j] += weights[p] * each[j];
        }
        #pragma unroll
        for (int j = 0; j < ACROSS; ++j) sums[j] *= scale;
        store_piece<LANES>(merged, sums, i, left);
    }
    return base + logf(total);
}

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
merge(const TW_T* __restrict__ values, const float* __restrict__ logs, TW_T* __restrict__ merged,
      float* __restrict__ merged_logs, int P, long long N, int D) {
    wait_for_previous_grid();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / LANES;
    if (row >= N) return;
    const bool is_wide = D % WIDTH == 0 && is_aligned_for<WIDTH>(values) && is_aligned_for<WIDTH>(merged);
    const int lane = threadIdx.x % LANES;
    const long long pitch = N * D;  // of a part
    values += row * D;
    merged += row * D;
    float log;
    if (WIDTH == 1 || is_wide)
        log = merge_pieces<WIDTH, PIECES>(values + lane * WIDTH, logs + row, merged + lane * WIDTH, P, N, pitch,
                                          D - lane * WIDTH);
    else
        log = merge_pieces<1, PIECES * WIDTH>(values + lane, logs + row, merged + lane, P, N, pitch, D - lane);
    if (lane == 0) merged_logs[row] = log;
    if (P > PARTS || D > LANES * PIECES * WIDTH) __trap();  // told behind the work
}
