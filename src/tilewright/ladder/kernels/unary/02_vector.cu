// A thread makes a pack of 16 bytes: a quarter, or an eighth, of the loads, stores and addresses.
#include "activations.cuh"
#include "round.cuh"

#ifndef TW_OP
#define TW_OP relu
#endif
#ifndef THREADS
#define THREADS 256
#endif
constexpr int SPAN = THREADS * TW_PACK;  // elements of a block

extern "C" __global__ void __launch_bounds__(THREADS)
unary(const TW_T* __restrict__ x, TW_T* __restrict__ y, long long N) {
    const long long begin = (long long)blockIdx.x * SPAN;
    const int count = (int)min((long long)SPAN, N - begin);
    x += begin;
    y += begin;
    const bool packed = is_pack_aligned(x) && is_pack_aligned(y);
    const int column = threadIdx.x * TW_PACK;
    if (packed && column + TW_PACK <= count) {
        const Pack pack = load_pack(x + column);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = TW_OP(to_float(pack.at[j]));
        store_pack(y + column, rounded(results));
    }
    // The elements behind the last whole pack, by threads that seldom have a pack as well: those of another warp;
    // all elements where a view begins between two packs.
    const int rest = packed ? count / TW_PACK * TW_PACK : 0;
    for (int at = rest + THREADS - 1 - threadIdx.x; at < count; at += THREADS) from_float(y[at], TW_OP(to_float(x[at])));
}
