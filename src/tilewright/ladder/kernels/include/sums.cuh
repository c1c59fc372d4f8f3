// What the elements of packs add up to, in float.
#pragma once

#include "packs.cuh"

__device__ __forceinline__ float sum_of(const Pack& pack) {
    float sum = to_float(pack.at[0]);
    #pragma unroll
    for (int j = 1; j < TW_PACK; ++j) sum += to_float(pack.at[j]);
    return sum;
}

__device__ __forceinline__ float dot_of(const Pack& a, const Pack& b) {
    float sum = to_float(a.at[0]) * to_float(b.at[0]);
    #pragma unroll
    for (int j = 1; j < TW_PACK; ++j) sum = fmaf(to_float(a.at[j]), to_float(b.at[j]), sum);
    return sum;
}
