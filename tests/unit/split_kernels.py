"""Load phases in which something is computed between a load and its store: cut at the loads, or not."""

# ruff: noqa: E501  (a line of a kernel stays on one line)

from __future__ import annotations

from trap_kernels import LOAD_B, MATH, gemm
from whole_kernels import REGISTERS, ROWS, TID

MASK = "lanes fixed up through a pointer"
_MASKED = """\
for (int i = 0; i < 2; ++i) {
            const int r = tid / 8 + 8 * i, c = tid % 8 * 2;
            const int at = blockIdx.y * T + r;
            float2 v{0.0f, 0.0f};
            // Whole vectors; what lies past the edge is masked below.
            if (at < M && k0 + c + 1 < K + 1 && k0 + c < K) {
                v.x = A[at * K + k0 + c];
                v.y = k0 + c + 1 < K ? A[at * K + k0 + c + 1] : 3.0f;
            }
            if (k0 + c + 2 > K) {
                float *const lanes = reinterpret_cast<float *>(&v);
                for (int j = 0; j < 2; ++j)
                    if (k0 + c + j >= K) lanes[j] = 0.0f;
            }
            for (int j = 0; j < 2; ++j) As[r][c + j] = reinterpret_cast<const float *>(&v)[j];
        }"""

# Cut at its loads, with how many of them.
SPLIT = {
    MASK: (REGISTERS[MASK], 2),
    "masked pairs in a copy loop": (
        gemm(before=TID, load=f"if (tid < 64) {{\n            {_MASKED}\n        }}\n        {LOAD_B}"),
        3,
    ),
    "a value that is computed": (REGISTERS["a value that is computed"], 2),
    "a pass that is skipped": (REGISTERS["a pass that is skipped"], 2),
    "half precision on the way": (
        gemm(
            file="#include <cuda_fp16.h>\n",
            load="float v = (row < M && k0 + tx < K) ? __half2float(__float2half(__ldg(&A[row * K + k0 + tx]))) : 0.0f;\n"
            f"        v *= 2.0f;\n        As[ty][tx] = v;\n        {LOAD_B}",
        ),
        2,
    ),
    "a local array, turned": (
        gemm(
            before=TID,
            load="if (tid < 32) {\n            const int r = tid % 16, c = tid / 16 * 8;\n            float part[8];\n"
            "            for (int i = 0; i < 8; ++i)\n"
            "                part[i] = (blockIdx.y * T + r < M && k0 + c + i < K) ? A[(blockIdx.y * T + r) * K + k0 + c + i] : 0.0f;\n"
            "            for (int i = 0; i < 8; ++i) As[r][c + 7 - i] = part[7 - i] * 0.5f;\n        }\n"
            f"        {LOAD_B}",
        ),
        2,
    ),
    "a pointer that moves, an array from outside": (
        gemm(
            before="const float *pa = A + row * K + tx;\n    float keep[2];\n    int done = 0;",
            load="keep[0] = 0.0f;\n        keep[1] = 0.25f;\n        if (row < M && done + tx < K) {\n            keep[0] = *pa;\n            keep[1] = 0.0f;\n        }\n"
            f"        As[ty][tx] = keep[0] + keep[1] - keep[1];\n        pa += T;\n        done += T;\n        {LOAD_B}",
            after="sum += keep[0] + 0.5f * done;",
        ),
        2,
    ),
    "a pointer and an index that move behind the compute phase": (
        gemm(
            before="const float *pa = A + row * K + tx;\n    int done = 0;",
            load="float v = 0.0f;\n        if (row < M && k0 + tx < K) v = *pa;\n        if (done + tx > 20) v *= 0.5f;\n"
            f"        As[ty][tx] = v;\n        {LOAD_B}",
            compute=f"{MATH}\n        pa += T;\n        done += T;",
        ),
        2,
    ),
    "two loads in one statement": (
        gemm(
            load="float v = (row < M && k0 + tx < K) ? fmaxf(A[row * K + k0 + tx], A[row * K]) + (tx > 3 && A[row * K + k0] > 0.0f ? 1.0f : 0.0f) : 0.0f;\n"
            f"        v = fmaxf(v, -0.5f);\n        As[ty][tx] = v;\n        {LOAD_B}"
        ),
        4,
    ),
    "a load without braces, in front of an else": (
        gemm(
            before="int zeros = 0;",
            load="float v = 0.0f;\n        if (row < M) v = k0 + tx < K ? 2.0f * A[row * K + k0 + tx] : 0.0f;\n        else zeros += 1;\n"
            f"        As[ty][tx] = v + 0.0f * zeros;\n        {LOAD_B}",
            after="sum += zeros;",
        ),
        2,
    ),
}
# Registers can only hold what is stored.
WHOLE = {
    "inline PTX that loads": REGISTERS["inline PTX that loads"],
    "an address that was loaded": gemm(
        load=f"const int at = (int)(fabsf(A[0]) * 4.0f) % K;\n        As[ty][tx] = row < M ? 2.0f * A[row * K + at] : 0.0f;\n        {LOAD_B}"
    ),
    "an address that was loaded, in one expression": gemm(
        load="float v = row < M ? 2.0f * A[row * K + (int)(fabsf(A[0]) * 4.0f) % K] : 0.0f;\n"
        f"        v += 1.0f;\n        As[ty][tx] = v;\n        {LOAD_B}"
    ),
    "a guard that was loaded": gemm(
        load=f"float v = 1.0f;\n        if (A[0] > 0.0f) v = 2.0f * A[min(k0 + tx, K - 1)];\n        As[ty][tx] = v;\n        {LOAD_B}"
    ),
    "a guard that was loaded, in one expression": gemm(
        load="float v = A[0] > 0.0f ? 2.0f * A[min(k0 + tx, K - 1)] : 1.0f;\n"
        f"        v += 1.0f;\n        As[ty][tx] = v;\n        {LOAD_B}"
    ),
    "a guard through a local that was loaded": gemm(
        load="const float first = A[min(k0, K - 1)];\n        float v = 1.0f;\n        if (first > 0.0f) v = 2.0f * A[min(k0 + tx, K - 1)];\n"
        f"        As[ty][tx] = v;\n        {LOAD_B}"
    ),
    "a load that is passed more than once": gemm(
        load="float v = 0.0f;\n        int i = 0;\n        while (i < 3) {\n            v += A[min(k0 + tx + i, K - 1)];\n            i += 1;\n        }\n"
        f"        As[ty][tx] = v;\n        {LOAD_B}"
    ),
    "a load by another name": gemm(
        load=f"const float &from = A[min(row, M - 1) * K + min(k0 + tx, K - 1)];\n        As[ty][tx] = 2.0f * from;\n        {LOAD_B}"
    ),
    "nothing is computed on the way": gemm(
        before=TID,
        load=f"for (int i = tid % 128; i < T * T; i += 128) {{\n            {ROWS}\n            if (tid >= 128) continue;\n"
        f"            As[r][c] = (blockIdx.y * T + r < M && k0 + c < K) ? A[(blockIdx.y * T + r) * K + k0 + c] : 0.0f;\n        }}\n        {LOAD_B}",
    ),
}
