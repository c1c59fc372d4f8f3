"""Load phases that are taken as a whole: the small GEMM of ``trap_kernels`` with other ways to fill its tiles."""

# ruff: noqa: E501  (a line of a kernel stays on one line)

from __future__ import annotations

from trap_kernels import LOAD_A, LOAD_B, MATH, gemm

VECTOR = "#define FLOAT4(x) (reinterpret_cast<float4 *>(&(x))[0])\n"
CONST4 = "#define CONST4(x) (reinterpret_cast<const float4 *>(&(x))[0])\n"
SCATTER = "\n            ".join(f"As[ty][4 * tx + {i}] = keep[{i}];" for i in range(4))
TAKE = "__device__ float take(const float *p, int i, bool ok) { return ok ? p[i] : 0.0f; }\n"
TID = "const int tid = ty * T + tx;"
ROWS = "const int r = i / T, c = i % T;"
AT_A = "blockIdx.y * T + r < M && k0 + c < K"
VALUE_A = "A[(blockIdx.y * T + r) * K + k0 + c]"

# Every variant is made, and gives the bits of the original.
ALL = {
    "an array from outside": gemm(
        before="float keep[2];",
        load="keep[0] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n"
        "        keep[1] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;\n"
        "        As[ty][tx] = keep[0];\n        Bs[ty][tx] = keep[1];",
    ),
    "a vector scattered, by some threads": gemm(
        file=VECTOR + CONST4,
        before="float keep[4];",
        load="if (tx < 4) {\n            FLOAT4(keep[0]) = CONST4(A[row * K + k0 + 4 * tx]);\n            "
        f"{SCATTER}\n        }}\n        {LOAD_B}",
    ),
    "a guard that every tile shares": gemm(
        load=f"if (row < M) {{\n            As[ty][tx] = (k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        }}\n        {LOAD_B}",
        compute=f"if (row < M) {{\n        {MATH}\n        }}",
    ),
    "both sides of an if": gemm(
        load="const bool inside = row < M && k0 + tx < K;\n        if (inside) {\n            const int at = row * K + k0;\n"
        f"            As[ty][tx] = A[at + tx];\n        }} else {{\n            As[ty][tx] = 0.0f;\n        }}\n        {LOAD_B}",
    ),
    "both sides of an if, by other names": gemm(
        load="if (row < M && k0 + tx < K) {\n            const int c = tx;\n            As[ty][c] = A[row * K + k0 + c];\n"
        f"        }} else {{\n            As[ty][tx] = 0.0f;\n        }}\n        {LOAD_B}",
    ),
    "one place by indices of one name on both sides": gemm(
        load="if (k0 + tx < K && row < M) {\n            const int c = tx;\n            As[ty][c] = A[row * K + k0 + c];\n"
        f"        }} else {{\n            const int c = tx;\n            As[ty][c] = 0.0f;\n        }}\n        {LOAD_B}",
    ),
    "a choice by what is loaded": gemm(
        load="int which = reinterpret_cast<const int *>(A)[min(k0 + tx, K - 1)];\n"
        "        if (which > 0) As[ty][tx] = A[min(row * K + k0 + tx, M * K - 1)];\n        else As[ty][tx] = 0.0f;\n"
        f"        {LOAD_B}",
    ),
    "a local set on both sides": gemm(
        load="float v;\n        if (row < M && k0 + tx < K) v = A[row * K + k0 + tx];\n        else v = 0.0f;\n"
        f"        As[ty][tx] = v;\n        {LOAD_B}",
    ),
    "a local filled before an if": gemm(
        load="float v{0.0f};\n        if (row < M && k0 + tx < K) {\n            v = A[row * K + k0 + tx];\n        }\n"
        f"        As[ty][tx] = v;\n        {LOAD_B}",
    ),
    "a row that moves in the copy loop": gemm(
        load="if (ty < 8) {\n            int r = ty;\n            const float *from = A + (blockIdx.y * T + ty) * K + k0 + tx;\n"
        "            for (int i = 0; i < 2; ++i) {\n                const bool ok = blockIdx.y * T + r < M && k0 + tx < K;\n"
        "                As[r][tx] = ok ? *from : 0.0f;\n                from += 8 * K;\n                r += 8;\n            }\n"
        f"        }}\n        {LOAD_B}",
    ),
    "a pointer and an index that the compute phase reads too": gemm(
        before="const float *pa = A + row * K;\n    int kb = ty;",
        load="As[ty][tx] = (row < M && k0 + tx < K) ? pa[tx] : 0.0f;\n"
        "        Bs[ty][tx] = (kb < K && col < N) ? B[kb * N + col] : 0.0f;\n        pa += T;\n        kb += T;",
        compute=f"{MATH}\n        sum += 0.125f * kb;",
        after="sum += (float)(pa - A) * 0.5f;",
    ),
    "an index that the compute phase advances and reads": gemm(
        before="int tile = 0;",
        load=f"As[ty][tx] = (row < M && tile * T + tx < K) ? A[row * K + tile * T + tx] : 0.0f;\n        {LOAD_B}",
        compute=f"{MATH}\n        sum += 0.125f * tile;\n        tile += 1;",
        after="sum += tile;",
    ),
    "copy loops in copy loops": gemm(
        load="if (ty < 4 && tx < 8) {\n            for (int i = 0; i < 4; ++i) {\n                for (int j = 0; j < 16; j += 8) {\n"
        "                    const int r = ty + 4 * i, c = tx + j;\n"
        f"                    As[r][c] = ({AT_A}) ? {VALUE_A} : 0.0f;\n                }}\n            }}\n        }}\n        {LOAD_B}",
    ),
    "passes that differ from thread to thread": gemm(
        before=TID,
        load=f"if (tid < 96) {{\n            for (int i = tid; i < T * T; i += 96) {{\n                {ROWS}\n"
        f"                As[r][c] = ({AT_A}) ? {VALUE_A} : 0.0f;\n            }}\n        }}\n        {LOAD_B}",
    ),
    "offsets in a table of registers": gemm(
        before="int off[2];\n    for (int i = 0; i < 2; ++i) off[i] = (blockIdx.y * T + ty % 8 + 8 * i) * K;",
        load="if (ty < 8) {\n            for (int i = 0; i < 2; ++i) {\n"
        "                if (off[i] < M * K && k0 + tx < K) As[ty + 8 * i][tx] = A[off[i] + k0 + tx];\n"
        f"                else As[ty + 8 * i][tx] = 0.0f;\n            }}\n        }}\n        {LOAD_B}",
    ),
    "through a pointer into the tile": gemm(
        load="float *to = &As[ty][0];\n        to[tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n"
        f"        {LOAD_B}",
    ),
    "two arrays in one loop": gemm(
        before=TID,
        load=f"for (int i = tid; i < T * T; i += T * T) {{\n            {ROWS}\n"
        f"            As[r][c] = ({AT_A}) ? {VALUE_A} : 0.0f;\n"
        "            Bs[r][c] = (k0 + r < K && blockIdx.x * T + c < N) ? B[(k0 + r) * N + blockIdx.x * T + c] : 0.0f;\n        }",
    ),
    "indices in a block": gemm(
        load=f"{{\n            int step = T * T;\n            int start = ty * T + tx;\n            for (int i = start; i < T * T; i += step) {{\n"
        f"                {ROWS}\n                As[r][c] = ({AT_A}) ? {VALUE_A} : 0.0f;\n            }}\n        }}\n        {LOAD_B}",
    ),
    "a local of the load phase, of a bumped index": gemm(
        before="int at = 0;",
        load=f"const int mine = at;\n        at += 3;\n        {LOAD_A}\n        {LOAD_B}",
        compute=MATH.replace("sum +=", "sum += (mine + 1) *"),
    ),
}
# Only through registers: something is computed on the way, or its width is none of cp.async.
REGISTERS = {
    "a sum of what is loaded": gemm(
        before="float norm = 0.0f;",
        load=f"float v = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        norm += v * v;\n"
        f"        As[ty][tx] = v;\n        {LOAD_B}",
        after="sum += norm;",
    ),
    # Where the guard fails, what is stored was set in front of the loop, or by an earlier tile.
    "a value from in front of the loop": gemm(
        before="float v = 1.0f;",
        load=f"if (row < M && k0 + tx < K) v = A[row * K + k0 + tx];\n        As[ty][tx] = v;\n        {LOAD_B}",
    ),
    "a value declared beside another one": gemm(
        load="float v = 0.0f, w = 2.0f;\n        if (row < M && k0 + tx < K) v = A[row * K + k0 + tx];\n"
        f"        As[ty][tx] = v;\n        {LOAD_B}\n        w += v;",
    ),
    "an array with values": gemm(
        load="float v[2] = {0.0f, 0.0f};\n        if (row < M && k0 + tx < K) v[0] = A[row * K + k0 + tx];\n"
        "        v[1] = B[min(k0 + ty, K - 1) * N + min(col, N - 1)];\n"
        "        As[ty][tx] = v[0];\n        Bs[ty][tx] = v[1];",
    ),
    "lanes fixed up through a pointer": gemm(
        file=CONST4,
        load="if (tx < 4) {\n            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);\n            const int c = k0 + 4 * tx;\n"
        "            if (row < M && c < K) v = CONST4(A[row * K + c]);\n            if (c + 4 > K) {\n"
        "                float *const lane = reinterpret_cast<float *>(&v);\n"
        "                for (int i = 0; i < c + 4 - K && i < 4; ++i) lane[3 - i] = 0.0f;\n            }\n"
        "            const float *out = reinterpret_cast<const float *>(&v);\n"
        "            for (int i = 0; i < 4; ++i) As[ty][4 * tx + i] = out[i];\n        }\n"
        f"        {LOAD_B}",
    ),
    "inline PTX that loads": gemm(
        load="float v = 0.0f;\n        if (row < M && k0 + tx < K) {\n"
        '            asm("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(A + row * K + k0 + tx));\n        }\n'
        f"        As[ty][tx] = v;\n        {LOAD_B}",
    ),
    "a value from a function": gemm(
        file=TAKE,
        load=f"const bool ok = row < M && k0 + tx < K;\n        As[ty][tx] = take(A, row * K + k0 + tx, ok);\n        {LOAD_B}",
    ),
    "a value that is computed": gemm(
        load=f"float v = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        v *= 2.0f;\n        As[ty][tx] = v;\n        {LOAD_B}"
    ),
    "a pass that is skipped": gemm(
        before=TID,
        load=f"for (int i = tid % 128; i < T * T; i += 128) {{\n            {ROWS}\n            if (tid >= 128) continue;\n"
        f"            As[r][c] = ({AT_A}) ? {VALUE_A} * 1.5f : 0.0f;\n        }}\n        {LOAD_B}",
    ),
}
# Only with the one buffer: what a tile leaves out is an earlier tile's.
SINGLE = {
    # The two indices have one name and two values: tiles past the second leave the left half as the second filled it.
    "other places by indices of one name": gemm(
        shared="__shared__ float Es[T][2 * T];",
        load=f"{LOAD_A}\n        {LOAD_B}\n        if (k0 < 32) {{\n            const int c = tx;\n            Es[ty][c] = A[tx];\n"
        "        } else {\n            const int c = tx + T;\n            Es[ty][c] = A[ty];\n        }",
        compute="{0}\n        sum += Es[tx][ty];\n        if (k0 >= 32) sum += Es[tx][ty + T];",
    ),
    "an if without else": gemm(
        load=f"if (k0 + tx < K && row < M) As[ty][tx] = A[row * K + k0 + tx];\n        {LOAD_B}",
        compute="if (row < M)\n        for (int k = 0; k < T; ++k) sum += As[ty][k] * (Bs[k][tx] + 0.5f);",
    ),
    "an if without else in a copy loop": gemm(
        load="if (ty < 8) {\n            for (int i = 0; i < 16; i += 8) {\n"
        f"                const int r = ty + i;\n                if (k0 + tx < K) As[r][tx] = A[min((int)(blockIdx.y * T + r), M - 1) * K + k0 + tx];\n            }}\n        }}\n        {LOAD_B}",
    ),
}
