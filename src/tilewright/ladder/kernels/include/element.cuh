// The element type of a rung: -D TW_T=float, __half or __nv_bfloat16. Arithmetic is in float whatever it is.
#pragma once

#ifndef TW_T
#define TW_T float
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define MINUS_INFINITY __int_as_float(0xff800000)  // NVRTC has no INFINITY without a header

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounded to the nearest element, ties to even, as PyTorch rounds.
__device__ __forceinline__ TW_T from_float(float x) { return static_cast<TW_T>(x); }
