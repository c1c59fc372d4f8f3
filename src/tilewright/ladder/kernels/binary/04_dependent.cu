// The grid comes to the SMs while the one before it ends, and waits there: its launch takes no time of its own.
#include "activations.cuh"
#include "dependent.cuh"
#include "round.cuh"

#ifndef TW_OP
#define TW_OP add
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef SINGLE
#define SINGLE 0  // 1: an element a thread, for what is less than a warp's packs: nothing to be found out about them
#endif
constexpr int SPAN = THREADS * (SINGLE ? 1 : TW_PACK);  // elements of a block

extern "C" __global__ void __launch_bounds__(THREADS)
binary(const TW_T* __restrict__ a, const TW_T* __restrict__ b, TW_T* __restrict__ y, long long N) {
    wait_for_previous_grid();
    const long long begin = (long long)blockIdx.x * SPAN;
    const int count = (int)min((long long)SPAN, N - begin);
    a += begin;
    b += begin;
    y += begin;
    if constexpr (SINGLE) {
        if (threadIdx.x < count) from_float(y[threadIdx.x], TW_OP(to_float(a[threadIdx.x]), to_float(b[threadIdx.x])));
        return;
    }
    if (is_pack_aligned(a) && is_pack_aligned(b) && is_pack_aligned(y)) {
        const int column = threadIdx.x * TW_PACK, mine = min(TW_PACK, count - column);
        if (mine <= 0) return;
        Pack pack = {}, other = {};
        if (mine == TW_PACK) {
            pack = load_pack(a + column);
            other = load_pack(b + column);
        } else {
            get_some(pack, a + column, mine);
            get_some(other, b + column, mine);
        }
        float results[TW_PACK];
        #pragma unroll
        for (int j = 0; j < TW_PACK; ++j) results[j] = TW_OP(to_float(pack.at[j]), to_float(other.at[j]));
        pack = rounded(results);
        if (mine == TW_PACK) store_pack(y + column, pack);
        else put_some(y + column, pack, mine);
        return;
    }
    // A view begins between two packs.
    for (int at = threadIdx.x; at < count; at += THREADS)
        from_float(y[at], TW_OP(to_float(a[at]), to_float(b[at])));
}
