"""Macros, registers that move, and loops over bytes."""

# ruff: noqa: E501  (a line of a kernel stays on one line)

from __future__ import annotations

from collections.abc import Iterator

from attack_base import ASYNC, BEFORE, HEAD, LDG, LOAD_A, MATH, SINGLE, Attack, byte, refuse, scalar, vector


def macros() -> Iterator[Attack]:
    """Text that is not what it looks like."""
    yield scalar(
        "index macro",
        (HEAD, "#define AT(i, j) A[(i) * K + (j)]\n" + HEAD),
        (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "AT(row, k0 + tx)")),
    )
    yield scalar(
        "tile macro",
        (HEAD, "#define TA(i, j) As[i][j]\n" + HEAD),
        (LOAD_A, LOAD_A.replace("As[ty][tx]", "TA(ty, tx)")),
        (MATH, MATH.replace("As[ty][k]", "TA(ty, k)")),
    )
    yield scalar(
        "guard in a macro",
        (HEAD, "#define LOAD(p, ok) ((ok) ? *(p) : 0.0f)\n" + HEAD),
        (LOAD_A, "        As[ty][tx] = LOAD(A + row * K + k0 + tx, row < M && k0 + tx < K);\n"),
        without={ASYNC: "converts_type"},
    )
    yield scalar(
        "statement macro",
        (HEAD, "#define COPY(to, from) to = from\n" + HEAD),
        (LOAD_A, "        COPY(As[ty][tx], A[min(row * K + k0 + tx, M * K - 1)]);\n"),
        **refuse("not_understood", "        COPY("),
    )
    yield scalar(
        "open macro as a divisor",
        (HEAD, "#define HALF TILE / 2\n" + HEAD),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 / HALF]")),
        **refuse("not_understood", "/ HALF"),
    )
    yield scalar("open macro as a start", (HEAD, "#define START 0 + 0\n" + HEAD), ("int k0 = 0;", "int k0 = START;"))
    yield scalar(
        "open macro as a step", (HEAD, "#define STEP TILE / 2 + TILE / 2\n" + HEAD), ("k0 += TILE", "k0 += STEP")
    )
    yield scalar(
        "macro of a header", (HEAD, '#include "step.cuh"\n' + HEAD), ("k0 += TILE", "k0 += STEP"), values=False
    )
    yield scalar(
        "macro defined twice",
        (HEAD, "#ifdef EXACT\n#define AT(i) A[i]\n#else\n#define AT(i) A[(i)]\n#endif\n" + HEAD),
        (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "AT(row * K + k0 + tx)")),
        **refuse("not_understood", "AT(row"),
    )
    yield scalar("macro and variable", (HEAD, "#define tx threadIdx.x\n" + HEAD), ("    int tx = threadIdx.x;\n", ""))
    yield scalar(
        "macro with a side effect",
        (HEAD, "#define NEXT(i) (i)++\n" + HEAD),
        (BEFORE, BEFORE + "    int n = 0;\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * NEXT(n)]")),
        **refuse("not_understood", "NEXT(n)]"),
    )
    yield scalar(
        "file constant with a namesake",
        (HEAD, "constexpr int WIDE = 8;\n" + HEAD),
        (BEFORE, "    const int WIDE = 2 * TILE;\n" + BEFORE),
        ("As[TILE][TILE]", "As[TILE][TILE]"),
    )


def vectors() -> Iterator[Attack]:
    """Registers and pointers that move."""
    lane0 = "        As[(a_col + 0) * BM + a_row] = tmp.x;\n"
    yield vector("as it is")
    yield vector(
        "bumps in the load phase",
        (
            "        __syncthreads();\n        A += BK;\n        B += BK * N;\n",
            "        A += BK;\n        B += BK * N;\n        __syncthreads();\n",
        ),
    )
    yield vector(
        "bump between load and store",
        ("        As[(a_col + 0)", "        A += BK;\n        As[(a_col + 0)"),
        ("        __syncthreads();\n        A += BK;\n", "        __syncthreads();\n"),
    )
    yield vector(
        "guard bumped between load and store",
        ("float sum[4][4] = {};\n", "float sum[4][4] = {};\n    int at = 0;\n"),
        (
            "float4 tmp = CONST4(A[a_row * K + a_col]);\n",
            "float4 tmp = at < K ? CONST4(A[a_row * K + a_col]) : make_float4(0, 0, 0, 0);\n        at += BK;\n",
        ),
    )
    yield vector(
        "guarded register",
        (
            "float4 tmp = CONST4(A[a_row * K + a_col]);\n",
            "float4 tmp = k + 4 < K ? CONST4(A[a_row * K + a_col]) : make_float4(0, 0, 0, 0);\n",
        ),
    )
    yield vector(
        "guarded register, other fill",
        (
            "float4 tmp = CONST4(A[a_row * K + a_col]);\n",
            "float4 tmp = k + 8 < K ? CONST4(A[a_row * K + a_col]) : make_float4(1, 2, 3, 4);\n",
        ),
    )
    yield vector("lane computed", (lane0, lane0.replace("tmp.x", "tmp.x * 2.0f")), without={ASYNC: "converts_type"})
    yield vector(
        "lane converted", (lane0, lane0.replace("tmp.x", "(float)(int)tmp.x")), without={ASYNC: "converts_type"}
    )
    yield vector(
        "lane stored twice", (lane0, lane0 + lane0.replace("tmp.x", "tmp.y")), without={ASYNC: "not_understood"}
    )
    yield vector(
        "fix-up of a lane",
        (
            "        __syncthreads();\n        A +=",
            "        Bs[b_row * BN + b_col] = B[b_row * N + b_col + 1];\n        __syncthreads();\n        A +=",
        ),
        without={ASYNC: "not_understood"},
    )
    yield vector(
        "register and outer namesake",
        ("    float sum[4][4] = {};\n", "    float sum[4][4] = {};\n    float4 tmp = {};\n"),
        ("sum[i][j] += As", "sum[i][j] += (k < 0 ? tmp.x : 1.0f) * As"),
        **refuse("not_understood", "k < 0 ? tmp"),
    )
    yield vector(
        "bumps with a local",
        ("        A += BK;\n", "        int step = BK;\n        A += step;\n"),
        **refuse("not_understood", "A += step"),
    )
    yield vector(
        "bump used behind the loop",
        ("    float sum[4][4] = {};\n", "    float sum[4][4] = {};\n    int n = 0;\n"),
        ("        A += BK;\n", "        A += BK;\n        n += 1;\n"),
        ("A[a_row * K + a_col]", "A[a_row * K + a_col + 0 * n]"),
        (
            "    for (int i = 0; i < 4; ++i) {\n        FLOAT4",
            "    sum[0][0] += n;\n    for (int i = 0; i < 4; ++i) {\n        FLOAT4",
        ),
    )
    yield vector(
        "copy cast by C",
        (
            "FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);",
            "(float4 &)Bs[b_row * BN + b_col] = (const float4 &)B[b_row * N + b_col];",
        ),
    )
    yield vector(
        "copy in a loop of its own",
        (
            "        FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);\n",
            "        for (int i = 0; i < 2; ++i)\n            reinterpret_cast<float2 *>(Bs)[tid + i * 64] =\n"
            "                *reinterpret_cast<const float2 *>(&B[(tid + i * 64) / 16 * N + (tid + i * 64) % 16 * 2]);\n",
        ),
    )
    yield vector(
        "overlapping passes",
        (
            "        FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);\n",
            "        for (int i = 0; i < 2; ++i)\n            FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[(b_row + i - i) * N + b_col]);\n",
        ),
        without={ASYNC: "not_understood"},
    )
    yield vector(
        "registers in a copy loop",
        (
            "        float4 tmp = CONST4(A[a_row * K + a_col]);\n",
            "        for (int i = 0; i < 1; ++i) {\n        float4 tmp = CONST4(A[(a_row + i) * K + a_col]);\n",
        ),
        ("a_row] = tmp.x", "a_row + i] = tmp.x"),
        ("a_row] = tmp.y", "a_row + i] = tmp.y"),
        ("a_row] = tmp.z", "a_row + i] = tmp.z"),
        ("a_row] = tmp.w;\n", "a_row + i] = tmp.w;\n        }\n"),
    )
    yield vector(
        "half to float",
        ("#define BM 32", "#include <cuda_fp16.h>\n#define BM 32"),
        (
            "    float sum[4][4] = {};\n",
            "    float sum[4][4] = {};\n    const half *H = reinterpret_cast<const half *>(B);\n",
        ),
        (
            "FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);",
            "for (int i = tid; i < BK * BN; i += 64) Bs[i] = H[i];",
        ),
        without={ASYNC: "converts_type"},
        values=False,
    )


def widened() -> Iterator[Attack]:
    """Byte-wise loops that become loops over vectors."""
    copy_a = "As[i] = (row0 + row < M && k0 + col < K) ? A[(row0 + row) * K + k0 + col] : 0;"
    loop_a = "for (int i = tid; i < BM * BK; i += THREADS) {\n            int row = i / BK;"
    narrow = {ASYNC: "not_contiguous"}
    passes = {LDG: "not_understood", SINGLE: "not_understood", ASYNC: "unsupported_width"}
    yield byte("as it is")
    yield byte(
        "shifts and masks",
        ("int row = i / BK;\n            int col = i % BK;", "int row = i >> 5;\n            int col = i & 31;"),
    )
    yield byte(
        "one statement",
        ("            int row = i / BK;\n            int col = i % BK;\n", ""),
        (copy_a, copy_a.replace("row0 + row", "row0 + i / BK").replace("k0 + col", "k0 + i % BK")),
    )
    yield byte(
        "without braces",
        (
            loop_a + "\n            int col = i % BK;\n            " + copy_a + "\n        }",
            "for (int i = tid; i < BM * BK; i += THREADS)\n            "
            + copy_a.replace("row0 + row", "row0 + i / BK").replace("k0 + col", "k0 + i % BK"),
        ),
    )
    yield byte("unsigned index", (loop_a, loop_a.replace("int i = tid", "unsigned i = tid")))
    yield byte(
        "guard that wraps",
        (
            copy_a,
            "As[i] = (row0 + row < M && (unsigned)(k0 + col - 3) < (unsigned)K) ? A[(row0 + row) * K + k0 + col - 3] : 0;",
        ),
    )
    yield byte(
        "unsigned guard that wraps",
        ("int col = i % BK;\n            As", "unsigned col = k0 + i % BK - 3;\n            As"),
        (copy_a, "As[i] = (row0 + row < M && col < K) ? A[(row0 + row) * K + col] : 0;"),
    )
    yield byte("shifted guard", (copy_a, copy_a.replace("k0 + col < K", "(k0 + col << 1) < 2 * K")))
    yield byte(
        "guard the other way round",
        (copy_a, copy_a.replace("row0 + row < M && k0 + col < K", "M > row0 + row && K - 1 >= k0 + col")),
    )
    yield byte(
        "guard with ||",
        (copy_a, copy_a.replace("k0 + col < K)", "k0 + col < K && (col < BK || K < 0))")),
        without=narrow,
    )
    yield byte(
        "guard from below",
        (copy_a, copy_a.replace("k0 + col < K)", "(k0 + col >= 0) && (k0 + col < K))")),
        without=narrow,
    )
    yield byte(
        "comparisons like a template",
        (copy_a, copy_a.replace("k0 + col < K)", "k0 + col >= 0 && k0 + col < K)")),
        **refuse("not_understood", "As[i] ="),
    )
    yield byte(
        "guard on the remainder",
        (copy_a, copy_a.replace("k0 + col < K)", "k0 + col < K && col % 5 < 4)")),
        without=narrow,
    )
    yield byte(
        "inverted guard",
        (copy_a, "As[i] = (row0 + row >= M || k0 + col >= K) ? 0 : A[(row0 + row) * K + k0 + col];"),
        without=narrow,
    )
    yield byte(
        "thread in the guard", (copy_a, copy_a.replace("row0 + row < M", "row0 + row < M && tid < 60")), without=narrow
    )
    yield byte("thread in the source", (copy_a, copy_a.replace("k0 + col]", "k0 + col + 0 * tid]")), without=narrow)
    yield byte("thread in the fill", (copy_a, copy_a.replace(": 0;", ": tid;")), without=narrow)
    yield byte(
        "thread in a local",
        (
            "int col = i % BK;\n            As",
            "int col = i % BK;\n            int lane = threadIdx.x & 0;\n            As",
        ),
        (copy_a, copy_a.replace("k0 + col]", "k0 + col + lane]")),
        without=narrow,
    )
    yield byte(
        "index in a byte",
        ("int row = i / BK;\n            int col = i % BK;", "int row = i / BK;\n            uint8_t col = i % BK;"),
        without=narrow,
    )
    yield byte(
        "index in a float",
        (
            "int row = i / BK;\n            int col = i % BK;",
            "int row = i / BK;\n            float at = i % BK;\n            int col = at;",
        ),
        without=narrow,
    )
    yield byte(
        "transposed",
        (copy_a, copy_a.replace("As[i]", "As[col * BM + row]")),
        ("As[r * BK + k]", "As[k * BM + r]"),
        without=narrow,
    )
    yield byte(
        "swizzled",
        (copy_a, copy_a.replace("As[i]", "As[i ^ 1]")),
        ("As[r * BK + k]", "As[(r * BK + k) ^ 1]"),
        without=narrow,
    )
    yield byte("padded rows", ("Bs[BK][BN]", "Bs[BK][BN + 16]"))
    yield byte("oddly padded rows", ("Bs[BK][BN]", "Bs[BK][BN + 4]"), without=narrow)
    yield byte(
        "strided source",
        (copy_a, "As[i] = (row0 + row < M && k0 + col < K) ? A[(row0 + row) * K + (k0 + col) / 2 * 2] : 0;"),
        without=narrow,
    )
    yield byte(
        "clamped source",
        (copy_a, "As[i] = (row0 + row < M && k0 + col < K) ? A[min((row0 + row) * K + k0 + col, M * K - 1)] : 0;"),
        without=narrow,
    )
    yield byte(
        "stride that is not the block", (loop_a, loop_a.replace("i += THREADS", "i += 2 * THREADS")), without=narrow
    )
    yield byte(
        "starts elsewhere",
        (loop_a, loop_a.replace("int i = tid;", "int i = tid ^ 1;")),
        without={LDG: "not_understood", SINGLE: "not_understood", **narrow},
    )
    yield byte("does not start at the thread", (loop_a, loop_a.replace("int i = tid;", "int i = tid + 0 * row0;")))
    yield byte("twice per iteration", (copy_a, copy_a + "\n            Bs[0][0] = A[0];"), without=narrow, values=False)
    yield byte(
        "bound from a parameter",
        (loop_a, loop_a.replace("i < BM * BK", "i < BM * BK + 0 * M")),
        without={LDG: "not_understood", SINGLE: "not_understood", **narrow},
    )
    yield byte("index advanced in the body", (copy_a, copy_a + "\n            i += 0;"), without=passes)
    yield byte(
        "downwards",
        (loop_a, "for (int i = BM * BK - 1 - tid; i >= 0; i -= THREADS) {\n            int row = i / BK;"),
        without=passes,
    )
    yield byte(
        "continue in the copy loop",
        (copy_a, "if (K < 0) continue;\n            " + copy_a),
        without={ASYNC: "unsupported_width"},
    )
    yield byte(
        "nested copy loops",
        (
            loop_a,
            "for (int row = tid / BK; row < BM; row += THREADS / BK) {\n          for (int i = row * BK + tid % BK; i < row * BK + tid % BK + 1; ++i) {",
        ),
        (copy_a + "\n        }", copy_a + "\n        }}"),
        without={ASYNC: "unsupported_width"},
    )
    yield byte("pragma on the copy loop", ("        " + loop_a, "        #pragma unroll 4\n        " + loop_a))
    yield byte(
        "constant that the copy relies on, twice",
        ("constexpr int BN = 32;", "constexpr int BN = 32;\nnamespace other { constexpr int BK = 16; }"),
        by_compiler=True,
        **refuse("not_understood", "__syncthreads();  // both"),
    )
    yield byte(
        "integer fill through float", (copy_a, copy_a.replace(": 0;", ": 0.0f;")), without={ASYNC: "converts_type"}
    )
    yield byte("odd tile", ("constexpr int BK = 32;", "constexpr int BK = 24;"), without=narrow)
    yield byte(
        "a copy loop that copies nothing",
        (loop_a, loop_a.replace("i < BM * BK", "i < BM - BM")),
        without={LDG: "not_understood", SINGLE: "not_understood", **narrow},
        values=False,
    )
