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
    if (is_pack_aligned(x) && is_pack_aligned(y)) {
        const int column = threadIdx.x * TW_PACK, mine = min(TW_PACK, count - column);
        if (mine <= 0) return;
        Pack pack = {};
        if (mine == TW_PACK) pack = load_pack(x + column);
        else get_some(pack, x + column, mine);
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = TW_OP(to_float(pack.at[j]));
        pack = rounded(results);
        if (mine == TW_PACK) store_pack(y + column, pack);
        else put_some(y + column, pack, mine);
        return;
    }
    // A view begins between two packs.
    for (int at = threadIdx.x; at < count; at += THREADS) from_float(y[at], TW_OP(to_float(x[at])));
}
