"""Tiles whose elements are converted on the way, one by one: what can be loaded by 16 bytes all the same, and not."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

from product_sidecars import product_sidecar
from trap_kernels import LAUNCH, SIZES

_TEXT = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define T 16
__global__ void gemm(const <from> *__restrict__ A, const <from> *__restrict__ B, float *C, int M, int N, int K)
{
    __shared__ <to> As[T * T];
    __shared__ <to> Bs[T][<pitch>];
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int tid = ty * T + tx;
    const int row = blockIdx.y * T + ty;
    const int col = blockIdx.x * T + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        for (int i = tid; i < T * T; i += T * T) {
            const int r = i / T, c = i % T;
            As[i] = <a>;
        }
        for (int i = tid; i < T * T; i += T * T) {
            const int r = i / T, c = i % T;
            <b>;
        }
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += (float)As[ty * T + k] * (float)Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
"""
GUARD_A, LOAD_A = "blockIdx.y * T + r < M && k0 + c < K", "A[(blockIdx.y * T + r) * K + k0 + c]"
GUARD_B, LOAD_B = "k0 + r < K && blockIdx.x * T + c < N", "B[(size_t)(k0 + r) * N + blockIdx.x * T + c]"


def converting(of: str, to: str, value: str, store: str = "Bs[r][c]", pitch: int = 24) -> str:
    """``value``: what is stored, with ``GUARD`` and ``LOAD`` in it."""
    a = value.replace("GUARD", GUARD_A).replace("LOAD", LOAD_A)
    b = f"{store} = {value.replace('GUARD', GUARD_B).replace('LOAD', LOAD_B)}"
    text = _TEXT.replace("<from>", of).replace("<to>", to).replace("<pitch>", str(pitch))
    return text.replace("<a>", a).replace("<b>", b)


def sidecar(dtype: str) -> str:
    fill = "uniform(-1, 1)" if dtype.startswith("float") else ""
    return product_sidecar("gemm", LAUNCH, SIZES, elements=(dtype, dtype, "float32"), fill=fill)


# By name: the numpy name of the input's type, elements of a vector, the kernel.
WIDENED = {
    "float to half": (
        "float32", 4, converting("float", "__half", "__float2half(\n                (GUARD) ? LOAD : 0.0f)")
    ),
    "float to half, by a cast": ("float32", 4, converting("float", "__half", "GUARD ? static_cast<__half>(LOAD) : (__half)0.0f")),
    "float to bfloat16": ("float32", 4, converting("float", "__nv_bfloat16", "__float2bfloat16_rn(GUARD ? __ldg(&LOAD) : 0)")),
    "half to float": ("float16", 8, converting("__half", "float", "GUARD ? __half2float(LOAD) : 0.0f")),
    "half to float, the fill too": (
        "float16", 8, converting("__half", "float", "__half2float(GUARD ? LOAD : __float2half(0.0f))", pitch=20)
    ),
    "bytes to float": ("int8", 16, converting("signed char", "float", "GUARD ? LOAD : 0")),
    "bytes to half": ("int8", 16, converting("signed char", "__half", "__int2half_rn(GUARD ? (int)LOAD : 0)")),
}  # fmt: skip
# Siblings, of float to half where nothing else is said: what is changed, and what the refusal says.
KEPT = {
    "scaled": (converting("float", "__half", "__float2half(GUARD ? LOAD * 0.5f : 0.0f)"), "more than a known conversion"),
    "two elements": (converting("float", "__half", "__float2half(GUARD ? LOAD + A[0] : 0.0f)"), "more than a known conversion"),
    "a fill that is loaded": (converting("float", "__half", "__float2half(GUARD ? LOAD : A[0])"), "more than a known conversion"),
    "a guard that is loaded": (converting("float", "__half", "__float2half(A[r] > 0 ? LOAD : 0.0f)"), "more than a known conversion"),
    "read where the guard is false": (converting("float", "__half", "__float2half(r > 3 ? 0.0f : LOAD)"), "more than a known conversion"),
    # int and unsigned: as one, which -1 becomes 4294967295 in.
    "a fill that changes the sign": (converting("int", "float", "GUARD ? LOAD : 0u"), "more than a known conversion"),
    # float and double: which the function is chosen by.
    "a fill that changes the type": (converting("float", "__half", "static_cast<__half>(GUARD ? LOAD : 0.0)"), "more than a known conversion"),
    "another function": (converting("float", "__half", "__float2half(GUARD ? sqrtf(LOAD) : 0.0f)"), "more than a known conversion"),
    "transposed": (
        converting("float", "__half", "__float2half(GUARD ? LOAD : 0.0f)", store="Bs[c][r]"), "neighbours in shared"
    ),
    "rows that are not aligned": (
        converting("float", "__half", "__float2half(GUARD ? LOAD : 0.0f)", pitch=18), "not aligned in shared memory"
    ),
    "of the thread": (
        converting("float", "__half", "__float2half(GUARD && tid < 250 ? LOAD : 0.0f)"), "depends on `tid`"
    ),
    "a guard that is no bound": (converting("float", "__half", "__float2half(c != 3 ? LOAD : 0.0f)"), "no conjunction"),
}  # fmt: skip
