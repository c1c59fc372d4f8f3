// exp for softmax, and the -inf that rows may begin with.
#pragma once

#include "elements.cuh"

#define MINUS_INFINITY __int_as_float(0xff800000)  // NVRTC has no INFINITY without a header

// Rows may hold -inf (masked scores): the difference of two of them is no number.
__device__ __forceinline__ float finite_base(float largest) { return largest == MINUS_INFINITY ? 0.0f : largest; }

// 16-bit results cannot show the last bits of expf. What is below 2**-126 is 0 here: so would be its share of a sum
// that is 1 or more.
__device__ __forceinline__ float exponential(float x) {
    if constexpr (TW_T_BYTES == 4) return expf(x);
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
    return result;
}

// Of a sum of powers, the largest of which is 1. 16-bit results cannot show the last bit of a division.
__device__ __forceinline__ float reciprocal(float sum) {
    if constexpr (TW_T_BYTES == 4) return 1.0f / sum;
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(sum));
    return result;
}
