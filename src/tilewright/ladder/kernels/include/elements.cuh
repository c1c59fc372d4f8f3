// The element type of a rung, TW_T, and its way to float and back. Sums are in float, whatever the elements are.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef TW_T
#define TW_T float
#define TW_T_BYTES 4
#endif

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest, ties to even, as PyTorch's conversions do.
__device__ __forceinline__ void from_float(float& to, float x) { to = x; }
__device__ __forceinline__ void from_float(__half& to, float x) { to = __float2half_rn(x); }
__device__ __forceinline__ void from_float(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
