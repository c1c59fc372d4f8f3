"""Where a K-loop may stand and what its compute phase may do: each form keeps its bits, and its sibling is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from trap_bench import ANYWHERE, bench
from trap_kernels import MATH, PARAMS, gemm

RAGGED = {"M": 19, "N": 11, "K": 37}
RESTRICT = PARAMS.replace("*", "* __restrict__ ")
# Rows of B come from global memory, so that threads whose row ends may leave.
OWN_ROWS = {
    "load": "As[ty][tx] = (k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;",
    "compute": "for (int k = 0; k < T; ++k) if (k0 + k < K && col < N) sum += As[ty][k] * B[(k0 + k) * N + col];",
}
REDUCE = """\
scratch[ty][tx] = As[ty][tx] * Bs[tx][ty];
        __syncthreads();
        for (int w = T / 2; w > 0; w >>= 1) {
            if (tx < w) scratch[ty][tx] += scratch[ty][tx + w];
            __syncthreads();
        }
        sum += scratch[ty][0];"""
EPILOGUE = "As[ty][tx] = sum;\n    __syncthreads();\n    sum = As[ty][tx ^ 1];"
PREPARED = "As[ty][tx] = 1.0f + tx;\n    __syncthreads();\n    sum = As[tx][ty];\n    __syncthreads();"
TWICE = "for (int again = 0; again < 2; ++again) {\n    for (int k0 = 0; k0 < K; k0 += T)"

ACCEPTED = {
    "threads return early, in two steps": gemm(before="if (row >= M) { if (M > 0) { return; } }", **OWN_ROWS),
    "in a branch": gemm(loop="if (K > 3 && gridDim.x > 0) {\n    for (int k0 = 0; k0 < K; k0 += T)", after="}"),
    "in a block": gemm(loop="{\n    for (int k0 = 0; k0 < K; k0 += T)", after="}"),
    "in a loop": gemm(loop=TWICE, after="}"),
    "in a loop that breaks": gemm(
        loop="for (int i = blockIdx.x;; ++i) {\n    if (i >= 3) break;\n    for (int k0 = 0; k0 < K; k0 += T)",
        after="}",
    ),
    "in a loop, with a tail": gemm(loop=TWICE, after=EPILOGUE + "\n    __syncthreads();\n    }"),
    "in a loop, begun by the barrier": gemm(
        loop=TWICE, load="__syncthreads();\n        {0}", end="", after="__syncthreads();\n" + EPILOGUE + "\n    }"
    ),
    "reuses its array": gemm(after=EPILOGUE),
    "prepared in front, and filled anew": gemm(before=PREPARED, after="sum += As[tx][ty];"),
    "prepared in front, begun by the barrier": gemm(
        before=PREPARED.removesuffix("__syncthreads();"), load="__syncthreads();\n        {0}", end=""
    ),
    "prepared in front of every run": gemm(
        loop="for (int i = 0; i < 2; ++i) {\n    " + PREPARED + "\n    for (int k0 = 0; k0 < K; k0 += T)",
        after=EPILOGUE + "\n    __syncthreads();\n    }",
    ),
    "prepared in front, filled by two sides": gemm(
        before=PREPARED,
        load="if (row < M && k0 + tx < K) {\n            As[ty][tx] = A[row * K + k0 + tx];\n        } else {\n"
        "            As[ty][tx] = 0.0f;\n        }\n        "
        "Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;",
    ),
    "reads its last tile": gemm(after="sum += As[tx][ty] * Bs[ty][tx];"),
    "scratch": gemm(shared="__shared__ float scratch[T][T];", compute=REDUCE, end="{0}"),
    "scratch that lives on": gemm(
        shared="__shared__ float scratch[T][T];",
        before="scratch[ty][tx] = 0.0f;",
        compute="float* own = &scratch[ty][0];\n        for (int k = 0; k < T; ++k) own[tx] += As[ty][k] * Bs[k][tx];",
        after="sum = scratch[ty][tx] + scratch[(ty + 1) % T][tx];",
    ),
    "a barrier too many": gemm(load="__syncthreads();\n        {0}"),
    "barriers in a branch": gemm(compute="if (K > 20) { __syncthreads(); sum += 1.0f; }\n        {0}"),
    "stores between tiles": gemm(
        params=RESTRICT, compute="{0}\n        if (row < M && col < N) C[row * N + col] = sum;"
    ),
    "statements behind the barrier": gemm(
        before="int seen = 0;", end="{0}\n        seen += k0;\n        sum += 0.5f * seen;"
    ),
    "statements in front of the barrier": gemm(
        load="const int at = k0 + tx;\n        __syncthreads();\n"
        "        As[ty][tx] = (row < M && at < K) ? A[row * K + at] : 0.0f;\n"
        "        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;",
        end="",
    ),
    "two load phases": gemm(
        shared="__shared__ float Vs[T][T];",
        compute=MATH + "\n        __syncthreads();\n"
        "        // the second operand\n"
        "        Vs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;\n"
        "        __syncthreads();\n        for (int k = 0; k < T; ++k) sum += Vs[k][tx];",
    ),
    "two load phases, an open end": gemm(
        shared="__shared__ float Vs[T][T];",
        compute=MATH + "\n        __syncthreads();\n"
        "        Vs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;\n"
        "        __syncthreads();\n        for (int k = 0; k < T; ++k) sum += Vs[k][tx];",
        end="",
    ),
    "a struct": gemm(
        file="struct Shape { int m, k; };",
        before="Shape shape;\n    shape.m = M;\n    shape.k = K;",
        loop="for (int k0 = 0; k0 < shape.k; k0 += T)",
    ),
    "a bound from a function": gemm(
        file="#define BOTH __host__ __device__\nBOTH int upto(int k) { return k < 0 ? 0 : k; }",
        before="const int last = upto(K);",
        loop="for (int k0 = 0; k0 < last; k0 += T)",
    ),
}

STAGED = {"threads return early, in two steps": 1, "two load phases": 3, "two load phases, an open end": 3}


@pytest.mark.parametrize("name", ACCEPTED)
def test_every_variant_has_the_bits_of_its_baseline(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, ACCEPTED[name])
    assert len(one.kernel.staged) == STAGED.get(name, 2)
    sizes = [RAGGED, {**RAGGED, "K": 0}] if "in a loop" in name or "front" in name else [RAGGED]
    for variant in ANYWHERE:
        for size in sizes:
            one.same(variant, size)
