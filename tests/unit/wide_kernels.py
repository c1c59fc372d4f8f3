"""Half-precision tiles filled element by element, in the ways that become 16-byte copies."""

from __future__ import annotations

from product_sidecars import product_sidecar
from trap_kernels import LAUNCH, SIZES

SIDECAR = product_sidecar("gemm", LAUNCH, SIZES, elements=("float16", "float16", "float32"))
_TEXT = """\
#include <cuda_fp16.h>
#define T 16
#define PITCH 24
__global__ void gemm(const __half *A, const __half *B, float *C, int M, int N, int K)
{
    __shared__ __half As[T][PITCH];
    __shared__ __half Bs[T][PITCH];
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int tid = ty * T + tx;
    const int row = blockIdx.y * T + ty;
    const int col = blockIdx.x * T + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        <load>
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += __half2float(As[ty][k]) * __half2float(Bs[k][tx]);
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
"""
OPEN = "for (int i = tid; i < T * T; i += T * T) {\n            const int r = i / T, c = i % T;\n            "
GUARD_A, VALUE_A = "blockIdx.y * T + r < M && k0 + c < K", "A[(blockIdx.y * T + r) * K + k0 + c]"
GUARD_B, VALUE_B = "k0 + r < K && blockIdx.x * T + c < N", "B[(size_t)(k0 + r) * N + blockIdx.x * T + c]"
ZERO = "__float2half(0.0f)"
PLAIN_B = f"{OPEN}Bs[r][c] = ({GUARD_B}) ? {VALUE_B} : {ZERO};\n        }}"


def halves(load: str) -> str:
    return _TEXT.replace("<load>", load)


WIDENED = {
    "through a local": halves(
        f"{OPEN}__half val = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n            // into padded rows\n"
        f"            As[r][c] = val;\n        }}\n        {PLAIN_B}"
    ),
    "through a local that is filled first": halves(
        f"{OPEN}__half val = {ZERO};\n            if ({GUARD_A}) {{\n                val = {VALUE_A};\n            }}\n"
        f"            As[r][c] = val;\n        }}\n        {PLAIN_B}"
    ),
    "two arrays in one loop": halves(
        f"{OPEN}__half a = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n            As[r][c] = a;\n"
        f"            Bs[r][c] = ({GUARD_B}) ? {VALUE_B} : {ZERO};\n        }}"
    ),
    "indices in a block": halves(
        "{\n            int count = T * T;\n            int start = ty * T + tx;\n"
        f"            for (int i = start; i < T * T; i += count) {{\n            const int r = i / T, c = i % T;\n"
        f"            As[r][c] = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n        }}\n        }}\n        {PLAIN_B}"
    ),
}
# The load phase as a whole is a stream, and one loop of it is widened all the same. K and N are multiples of 16.
MIXED = {
    "beside vectors of some threads": halves(
        f"{OPEN}__half val = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n            As[r][c] = val;\n        }}\n"
        "        if (tid < 32) {\n            const int r = tid / 2, c = tid % 2 * 8;\n"
        "            const uint4 *from = reinterpret_cast<const uint4 *>(&B[(k0 + r) * N + blockIdx.x * T + c]);\n"
        "            *reinterpret_cast<uint4 *>(&Bs[r][c]) = *from;\n        }"
    ),
}
# Their siblings: cp.async must not copy them by 16 bytes.
NARROW = {
    "a local that is stored twice": halves(
        f"{OPEN}__half val = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n            As[r][c] = val;\n"
        f"            Bs[r][c] = val;\n        }}"
    ),
    "a local that is changed": halves(
        f"{OPEN}__half val = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n            val = __hneg(val);\n"
        f"            As[r][c] = val;\n        }}\n        {PLAIN_B}"
    ),
    "one array twice in a loop": halves(
        f"{OPEN}As[r][c] = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n"
        f"            As[r][c] = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n        }}\n        {PLAIN_B}"
    ),
    "a fill that is not zero, by an if": halves(
        f"{OPEN}__half val = __float2half(1.0f);\n            if ({GUARD_A}) val = {VALUE_A};\n"
        f"            As[r][c] = val;\n        }}\n        {PLAIN_B}"
    ),
    "rows that the other array transposes": halves(
        f"{OPEN}As[r][c] = ({GUARD_A}) ? {VALUE_A} : {ZERO};\n"
        f"            const bool in = k0 + c < K && blockIdx.x * T + r < N;\n"
        f"            Bs[c][r] = in ? B[(k0 + c) * N + blockIdx.x * T + r] : {ZERO};\n"
        "        }"
    ),
}
