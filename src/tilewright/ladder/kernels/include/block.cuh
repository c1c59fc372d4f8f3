// Reductions over the threads of a block, which share a row: shuffles in each warp, then its result through shared
// memory. Every thread gets the result, the same bits every time.
#pragma once

#include "warp.cuh"

// `partial` is of this call alone: a second reduction brings its own, and so needs no barrier against the first one's
// readers. All warps add up the warps' sums: one barrier is enough.
template <int WARPS>
__device__ __forceinline__ float block_sum(float value, float (&partial)[WARPS]) {
    static_assert(WARPS <= 32, "a warp reads one sum a lane");
    value = warp_sum(value);
    if constexpr (WARPS > 1) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) partial[threadIdx.x / 32] = value;
        __syncthreads();
        value = warp_sum(lane < WARPS ? partial[lane] : 0.0f);
    }
    return value;
}

template <int WARPS>
__device__ __forceinline__ float block_max(float value, float (&partial)[WARPS]) {
    static_assert(WARPS <= 32, "a warp reads one maximum a lane");
    value = warp_max(value);
    if constexpr (WARPS > 1) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) partial[threadIdx.x / 32] = value;
        __syncthreads();
        value = warp_max(partial[lane < WARPS ? lane : 0]);
    }
    return value;
}

__device__ constexpr int power_of_two_from(int count) { return count <= 1 ? 1 : 2 * power_of_two_from((count + 1) / 2); }

// What each warp knows, for all to merge: lane i gets what warp i modulo the power of two from WARPS on brought, `blank`
// where there is none. One barrier; `states` is of this call alone.
template <int WARPS, typename S>
__device__ __forceinline__ S met(S (&states)[WARPS], const S& own, const S& blank = {}) {
    static_assert(WARPS <= 32, "a warp reads one state a lane");
    constexpr int SLOTS = power_of_two_from(WARPS);
    if constexpr (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) states[threadIdx.x / 32] = own;
    __syncthreads();
    const int slot = threadIdx.x % SLOTS;
    return slot < WARPS ? states[slot] : blank;
}
