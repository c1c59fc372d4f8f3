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

// Two to the power of x; what would be less than 2**-126 is 0. expf and erff end with the same instruction.
__device__ __forceinline__ float two_to(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// x * P(X <= x) of a normal X: -inf is NaN (-inf * 0), as in PyTorch.
//
// P(X > |x|) is two to the power of a polynomial: erff would take twice the instructions, and longer than 16-bit elements'
// way through memory, or any elements' through L2. The polynomials are minimax for |x| <= 5.7, and fall faster than the
// logarithm beyond, where results are of no account beside 1, or rounded to 0. Relatively the one for 16 bits is 4e-6
// off; the one for floats (weighted with P's square root) 2e-7 for |x| <= 1, 1.2e-6 to 4, where 1 + erff has lost all
// but three digits of a negative x's result.
__device__ __forceinline__ float gelu(float x) {
    const float far = fabsf(x);
    float power;
    if constexpr (TW_T_BYTES == 4) {
        power = -3.58829233e-08f;
        power = power * far + 1.00219711e-06f;
        power = power * far - 1.21327239e-05f;
        power = power * far + 8.12610742e-05f;
        power = power * far - 2.90052354e-04f;
        power = power * far + 1.03795928e-05f;
        power = power * far + 6.94573019e-03f;
        power = power * far - 5.24468273e-02f;
        power = power * far - 4.59217370e-01f;
        power = power * far - 1.15110481e+00f;
        power = power * far - 1.0f;
    } else {
        power = -1.9252529e-06f;
        power = power * far + 6.3360807e-05f;
        power = power * far - 9.4392903e-04f;
        power = power * far + 8.5580312e-03f;
        power = power * far - 5.4055382e-02f;
        power = power * far - 4.5837921e-01f;
        power = power * far - 1.1512791e+00f;
        power = power * far - 9.9999380e-01f;
    }
    const float tail = two_to(power);
    return x * (x > 0.0f ? 1.0f - tail : tail);
}

__device__ __forceinline__ float add(float a, float b) { return a + b; }

// a * sigmoid(a) * b, rounded once.
__device__ __forceinline__ float silu_mul(float a, float b) { return a * sigmoid(a) * b; }
