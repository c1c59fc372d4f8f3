// Reductions by shuffles within a warp and through shared memory within a block: always in the same order, so that
// results are the same bits every time. Every thread gets the result.
#pragma once

constexpr unsigned ALL_LANES = 0xffffffff;

__device__ __forceinline__ float warp_sum(float value)
{
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

// fmaxf drops NaNs: where they matter, a sum has to carry them.
__device__ __forceinline__ float warp_max(float value)
{
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

// `partial` is shared memory of this call alone: a second reduction needs its own, and then needs no second barrier.
template <int WARPS>
__device__ __forceinline__ float block_sum(float value, float (&partial)[WARPS])
{
    static_assert(WARPS <= 32, "one warp adds up the warps' sums");
    value = warp_sum(value);
    if constexpr (WARPS > 1) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) {
            partial[threadIdx.x / 32] = value;
        }
        __syncthreads();
        value = warp_sum(lane < WARPS ? partial[lane] : 0.0f);
    }
    return value;
}

template <int WARPS>
__device__ __forceinline__ float block_max(float value, float (&partial)[WARPS])
{
    static_assert(WARPS <= 32, "one warp compares the warps' maxima");
    value = warp_max(value);
    if constexpr (WARPS > 1) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) {
            partial[threadIdx.x / 32] = value;
        }
        __syncthreads();
        value = warp_max(partial[lane < WARPS ? lane : 0]);
    }
    return value;
}
