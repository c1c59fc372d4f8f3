// A thread copies PACKS packs, of as many rows where rows are short. An index has to come before its row can be asked for:
// all indices are under way together, and then all rows. It divides once, and steps from there. The table is read through
// the caches, for rows may be asked for again; results leave L2 first.
#ifndef TW_STREAM
#define TW_STREAM 1  // 0: what is written stays in L2 as anything else does
#endif
#include "dependent.cuh"
#include "divide.cuh"
#include "packs.cuh"
#include "streams.cuh"

#ifndef PACKS
#define THREADS 128
#define PACKS 4
#endif
constexpr int SPAN = THREADS * PACKS;  // packs of a block

// Parts of STEP elements: first, first + THREADS, … of all rows. Those from `end` on are not there, unless all are (FULL).
template <int STEP, bool FULL>
__device__ __forceinline__ void copy_parts(const long long* indices, const TW_T* weight, TW_T* y, long long first,
                                           long long end, long long N, long long V, int steps, long long ld_w) {
    auto [place, part] = divide(first, steps);
    const auto [more_places, more_parts] = divide(THREADS, steps);
    long long rows[PACKS];
    int columns[PACKS];
    bool is_bad = false;
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        rows[i] = __ldg(indices + (FULL ? place : min(place, N - 1)));
        columns[i] = part * STEP;
        place += more_places;
        part += more_parts;
        if (part >= steps) {
            part -= steps;
            ++place;
        }
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) is_bad |= rows[i] < 0 || rows[i] >= V;
    if (is_bad) __trap();
    Pack packs[PACKS];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const TW_T* from = weight + rows[i] * ld_w + columns[i];
        if constexpr (STEP == 1) packs[i].at[0] = *from;
        else packs[i] = load_pack(from);
    }
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const long long at = first + i * THREADS;
        if (!FULL && at >= end) break;
        if constexpr (STEP == 1) y[at] = packs[i].at[0];
        else store_pack_once(y + at * STEP, packs[i]);
    }
}

template <int STEP>
__device__ __forceinline__ void copy_rows(const long long* indices, const TW_T* weight, TW_T* y, long long N,
                                          long long V, int steps, long long ld_w) {
    const long long end = N * steps;
    // As many blocks as packs need; where elements go one by one, each block comes round again.
    for (long long begin = (long long)blockIdx.x * SPAN; begin < end; begin += (long long)gridDim.x * SPAN) {
        const long long first = begin + threadIdx.x;
        if (begin + SPAN <= end) copy_parts<STEP, true>(indices, weight, y, first, end, N, V, steps, ld_w);
        else copy_parts<STEP, false>(indices, weight, y, first, end, N, V, steps, ld_w);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
embedding(const long long* __restrict__ indices, const TW_T* __restrict__ weight, TW_T* __restrict__ y, long long N,
          long long V, int C, long long ld_w) {
    wait_for_previous_grid();
    const bool packed = C % TW_PACK == 0 && ld_w % TW_PACK == 0 && is_pack_aligned(weight) && is_pack_aligned(y);
    if (packed) copy_rows<TW_PACK>(indices, weight, y, N, V, C / TW_PACK, ld_w);
    else copy_rows<1>(indices, weight, y, N, V, C, ld_w);
}
