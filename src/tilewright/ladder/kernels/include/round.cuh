// Floats to a pack: two 16-bit elements come from one conversion.
#pragma once

#include "packs.cuh"

__device__ __forceinline__ void round_two(float* to, float a, float b) {
    to[0] = a;
    to[1] = b;
}
__device__ __forceinline__ void round_two(__half* to, float a, float b) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(a, b);
}
__device__ __forceinline__ void round_two(__nv_bfloat16* to, float a, float b) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
}

__device__ __forceinline__ Pack rounded(const float (&values)[TW_PACK]) {
    Pack pack;
    #pragma unroll
    for (int j = 0; j < TW_PACK; j += 2) round_two(&pack.at[j], values[j], values[j + 1]);
    return pack;
}
