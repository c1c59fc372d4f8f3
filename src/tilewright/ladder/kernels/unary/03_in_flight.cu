// A thread asks for PACKS packs before it uses the first: as many times the bytes are under way between memory and an SM,
// which is what keeps memory busy. What is read once takes no place in L1; results that do not fit into L2 anyhow
// (STREAM) leave it first.
#include "activations.cuh"
#include "round.cuh"
#include "streams.cuh"

#ifndef TW_OP
#define TW_OP relu
#endif
#ifndef PACKS
#define THREADS 128
#define PACKS 4   // of a thread
#define STREAM 1  // whether stores are streaming
#endif
constexpr int STEP = THREADS * TW_PACK;  // elements between two packs of a thread
constexpr int SPAN = PACKS * STEP;       // of a block

__device__ __forceinline__ void store(TW_T* to, const Pack& pack) {
    if (STREAM) store_pack_once(to, pack);
    else store_pack(to, pack);
}

// The packs of a block; where not all of them are there (not FULL), some threads also take one of the elements behind
// the last whole one.
template <bool FULL>
__device__ __forceinline__ void make_packs(const TW_T* x, TW_T* y, int count) {
    const int whole = count / TW_PACK * TW_PACK;
    const int first = threadIdx.x * TW_PACK, single = whole + threadIdx.x;
    Pack packs[PACKS] = {};
    TW_T last = {};
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        if (FULL || first + i * STEP < whole) packs[i] = load_pack_once(x + first + i * STEP);
    }
    if (!FULL && single < count) last = x[single];
    #pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = TW_OP(to_float(packs[i].at[j]));
        if (FULL || first + i * STEP < whole) store(y + first + i * STEP, rounded(results));
    }
    if (!FULL && single < count) from_float(y[single], TW_OP(to_float(last)));
}

// A view that begins between two packs: as many elements under way as there are in a pack.
__device__ __forceinline__ void make_elements(const TW_T* x, TW_T* y, int count) {
    #pragma unroll 1
    for (int first = threadIdx.x; first < count; first += STEP) {
        TW_T values[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) values[j] = __ldg(x + min(first + j * THREADS, count - 1));
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) {
            const int at = first + j * THREADS;
            if (at < count) from_float(y[at], TW_OP(to_float(values[j])));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
unary(const TW_T* __restrict__ x, TW_T* __restrict__ y, long long N) {
    const long long begin = (long long)blockIdx.x * SPAN;
    const int count = (int)min((long long)SPAN, N - begin);
    x += begin;
    y += begin;
    if (!is_pack_aligned(x) || !is_pack_aligned(y)) {  // a view that begins between two packs
        make_elements(x, y, count);
    } else if (count == SPAN) {
        make_packs<true>(x, y, SPAN);
    } else {
        make_packs<false>(x, y, count);
    }
}
