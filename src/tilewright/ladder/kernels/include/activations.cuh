// Functions of one element, or of two, in float: what the kernels of `unary` and `binary` put in TW_OP's place.
#pragma once

#include "elements.cuh"
#include "exponential.cuh"

// Off by 1 unit in the last place at most (PTX ISA, "rcp"), results below 2**-126 included; a division takes three times
// the instructions.
__device__ __forceinline__ float inverse(float x) {
    float result;
    asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// NaN stays NaN, -0 stays -0.
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ __forceinline__ float sigmoid(float x) { return inverse(1.0f + exponential(-x)); }

// x * P(X <= x) of a normal X: -inf is NaN (-inf * 0), as in PyTorch.
//
// float: erff, as PyTorch has it. 16-bit elements come at twice the rate, and erff would take longer than their way
// through memory: there P(X > |x|) is two to the power of a polynomial, 4e-6 off relatively for |x| <= 5.6 (minimax at
// Chebyshev nodes); beyond, it falls further, and so do results that 16 bits round to 0 or nearly so.
__device__ __forceinline__ float gelu(float x) {
    if constexpr (TW_T_BYTES == 4) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    const float far = fabsf(x);
    float power = -1.9252529e-06f;
    power = power * far + 6.3360807e-05f;
    power = power * far - 9.4392903e-04f;
    power = power * far + 8.5580312e-03f;
    power = power * far - 5.4055382e-02f;
    power = power * far - 4.5837921e-01f;
    power = power * far - 1.1512791e+00f;
    power = power * far - 9.9999380e-01f;
    float tail;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(power));
    return x * (x > 0.0f ? 1.0f - tail : tail);
}

__device__ __forceinline__ float add(float a, float b) { return a + b; }

// a * sigmoid(a) * b, rounded once.
__device__ __forceinline__ float silu_mul(float a, float b) { return a * sigmoid(a) * b; }
