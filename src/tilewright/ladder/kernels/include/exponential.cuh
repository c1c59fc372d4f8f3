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

// exp(x - largest) for many x. IN_ONE, for 16-bit elements: 2**(x * log2(e) - largest * log2(e)), one operation instead of
// two. The product with `largest` is rounded, but to the same figure wherever it is the base, and so cancels in the share
// of a sum of such powers: `between` counts with that figure, too. Beyond 2**20 the figure would be too coarse; there,
// neighbours of 16 bits are 4,096 apart, and a power is 1 or 0 to whichever base.
template <bool IN_ONE>
struct Powers {
    float rate, at;

    __device__ __forceinline__ explicit Powers(float largest) : rate(1.0f), at(finite_base(largest)) {
        if constexpr (IN_ONE)
            if (fabsf(at) <= 1048576.0f) {
                rate = 1.44269504f;
                at = __fmul_rn(at, rate);
            }
    }

    __device__ __forceinline__ float of(float x) const {
        if constexpr (!IN_ONE) return exponential(x - at);
        float result;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(__fmaf_rn(x, rate, -at)));
        return result;
    }

    // exp(lower - higher): from powers with `lower` as their largest to such with `higher`. Halves, as the products may
    // be beyond the largest float.
    static __device__ __forceinline__ float between(float lower, float higher) {
        if constexpr (!IN_ONE) return exponential(lower - finite_base(higher));
        constexpr float HALF = 0.5f * 1.44269504f;
        const float apart = __fmul_rn(lower, HALF) - __fmul_rn(finite_base(higher), HALF);
        float result;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(apart + apart));
        return result;
    }
};
