// Reductions by shuffles within a warp: always in the same order, so that results are the same bits every time. Every
// lane gets the result.
#pragma once

constexpr unsigned ALL_LANES = 0xffffffff;

template <typename V>
__device__ __forceinline__ V warp_sum(V value) {
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// Of MEMBERS neighbours: a power of two, up to 32.
template <int MEMBERS>
__device__ __forceinline__ float group_sum(float value) {
    #pragma unroll
    for (int distance = MEMBERS / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// fmaxf drops NaNs: where they matter, something else has to carry them.
__device__ __forceinline__ float warp_max(float value) {
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

template <int MEMBERS>
__device__ __forceinline__ float group_max(float value) {
    #pragma unroll
    for (int distance = MEMBERS / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}
