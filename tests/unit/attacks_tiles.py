"""Where tiles live, and how they are filled."""

# ruff: noqa: E501  (a line of a kernel stays on one line)

from __future__ import annotations

from collections.abc import Iterator

from attack_base import (
    ASYNC,
    BEFORE,
    HEAD,
    LDG,
    LOAD_A,
    LOAD_B,
    LOOP,
    MATH,
    PARAMS,
    SECOND_BARRIER,
    SINGLE,
    Attack,
    refuse,
    scalar,
)


def tiles() -> Iterator[Attack]:
    """Where tiles live, and what else is done with the arrays."""
    yield scalar(
        "array used behind the loop",
        ("    if (row", "    As[ty][tx] = sum;\n    __syncthreads();\n    sum = As[tx][ty];\n    if (row"),
    )
    yield scalar(
        "array used in front of the loop",
        (
            BEFORE,
            BEFORE + "    As[ty][tx] = 1.0f;\n    __syncthreads();\n    sum = As[tx][ty];\n    __syncthreads();\n",
        ),
    )
    yield scalar(
        "other array written behind the loop",
        ("    __shared__ float Bs", "    __shared__ float table[TILE];\n    __shared__ float Bs"),
        (BEFORE, BEFORE + "    if (ty == 0) table[tx] = tx;\n    __syncthreads();\n"),
        (MATH, MATH.replace("sum +=", "sum += table[k] *")),
        (
            "    if (row",
            "    if (ty == 0) table[tx] = 99.0f;\n    __syncthreads();\n    sum += table[ty];\n    if (row",
        ),
    )
    yield scalar(
        "result stored into what compute reads",
        (MATH, MATH.replace("sum +=", "sum += C[0] *")),
        ("C[row * N + col] = sum", "C[row * N + col] = sum * 0.5f"),
        values=False,
    )
    yield scalar(
        "hand-made ring with two barriers",
        ("As[TILE][TILE]", "As[2][TILE][TILE]"),
        (LOAD_A, LOAD_A.replace("As[ty]", "As[k0 / TILE % 2][ty]")),
        (MATH, MATH.replace("As[ty]", "As[(k0 / TILE + 1) % 2][ty]")),
        **refuse("already_pipelined", "As[k0 / TILE % 2][ty][tx] =", False),
    )
    yield scalar(
        "toggled buffer with two barriers",
        ("As[TILE][TILE]", "As[2][TILE][TILE]"),
        (BEFORE, BEFORE + "    int b = 0;\n"),
        (LOAD_A, LOAD_A.replace("As[ty]", "As[b][ty]")),
        (MATH, MATH.replace("As[ty]", "As[b][ty]")),
        (SECOND_BARRIER, "        }\n        b ^= 1;\n        __syncthreads();\n    }\n"),
        **refuse("not_understood", "As[b][ty][tx]"),
    )
    yield scalar(
        "tiles pile up",
        ("As[TILE][TILE]", "As[TILE][4 * TILE]"),
        (LOAD_A, LOAD_A.replace("As[ty][tx]", "As[ty][k0 + tx]")),
        (MATH, MATH.replace("As[ty][k]", "As[ty][k0 + k]")),
        **refuse("loop_carried_shared", "As[ty][k0 + tx]", False),
    )
    yield scalar(
        "partial fill",
        (
            LOAD_A,
            "        for (int i = tx; i < min(TILE, K - k0); i += TILE) As[ty][i] = A[min(row, M - 1) * K + k0 + i];\n",
        ),
        without={LDG: "loop_carried_shared", SINGLE: "not_understood", ASYNC: "loop_carried_shared"},
    )
    yield scalar(
        "if without else",
        (LOAD_A, "        if (row < M && k0 + tx < K) As[ty][tx] = A[row * K + k0 + tx];\n"),
        without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"},
        values=False,
    )
    yield scalar(
        "some threads load",
        (LOAD_A, "        if (ty < TILE) {\n" + LOAD_A + "        }\n"),
    )
    yield scalar(
        "if with else",
        (
            LOAD_A,
            "        if (row < M && k0 + tx < K) {\n            As[ty][tx] = A[row * K + k0 + tx];\n        } else {\n            As[ty][tx] = 0.0f;\n        }\n",
        ),
    )
    yield scalar(
        "if with else, inverted",
        (
            LOAD_A,
            "        if (row >= M || k0 + tx >= K) As[ty][tx] = 0.0f;\n        else As[ty][tx] = A[row * K + k0 + tx];\n",
        ),
    )
    yield scalar(
        "if and else store elsewhere",
        (
            LOAD_A,
            "        if (row < M && k0 + tx < K) As[ty][tx] = A[row * K + k0 + tx];\n        else As[tx][ty] = 0.0f;\n",
        ),
        without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"},
        values=False,
    )
    yield scalar(
        "fill that is not zero",
        (LOAD_A, LOAD_A.replace(": 0.0f", ": -0.0f")),
        (LOAD_B, LOAD_B.replace(": 0.0f", ": 1.5f")),
    )
    yield scalar(
        "fill from a constant",
        (HEAD, "constexpr float FILL = 0.7f;\n" + HEAD),
        (LOAD_A, LOAD_A.replace(": 0.0f", ": FILL")),
    )
    yield scalar(
        "fill from a function",
        (HEAD, "__device__ float make_fill(float x) { return x + 1.0f; }\n" + HEAD),
        (LOAD_A, LOAD_A.replace(": 0.0f", ": make_fill(0.0f)")),
        without={ASYNC: "converts_type"},
    )
    yield scalar("fill of the thread", (LOAD_A, LOAD_A.replace(": 0.0f", ": tx * 1.0f")))
    yield scalar(
        "inverted guard", (LOAD_A, "        As[ty][tx] = (row >= M || k0 + tx >= K) ? 0.0f : A[row * K + k0 + tx];\n")
    )
    yield scalar(
        "nested guards",
        (LOAD_A, "        As[ty][tx] = row < M ? (k0 + tx < K ? A[row * K + k0 + tx] : 0.0f) : 0.0f;\n"),
        without={ASYNC: "converts_type"},
    )
    yield scalar("guard that loads", (LOAD_A, LOAD_A.replace("row < M", "A[0] < 9.0f && row < M")))
    yield scalar("guard with ||", (LOAD_A, LOAD_A.replace("k0 + tx < K)", "k0 + tx < K && (tx < TILE || K < 0))")))
    yield scalar(
        "two copies, one place",
        (LOAD_A, LOAD_A + "        As[ty][tx] = (row < M && k0 + tx < K) ? B[0] : 0.0f;\n"),
        without={ASYNC: "not_understood"},
    )
    yield scalar(
        "two copies, two places",
        ("As[TILE][TILE]", "As[TILE][2 * TILE]"),
        (LOAD_A, LOAD_A + "        As[ty][tx + TILE] = B[0];\n"),
        (MATH, MATH.replace("As[ty][k]", "As[ty][k] * As[ty][k + TILE]")),
    )
    yield scalar(
        "computed on the way",
        (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "2.0f * A[row * K + k0 + tx]")),
        without={ASYNC: "converts_type"},
    )
    yield scalar(
        "two sources",
        (LOAD_A, "        As[ty][tx] = k0 + tx < K && row < M ? A[row * K + k0 + tx] + B[0] : 0.0f;\n"),
        without={ASYNC: "converts_type"},
    )
    yield scalar(
        "not from global memory",
        (LOAD_A, LOAD_A + "        Bs[0][0] = 0.0f;\n"),
        without={ASYNC: "not_understood"},
        values=False,
    )
    yield scalar(
        "from registers through a pointer",
        (BEFORE, BEFORE + "    float mine[2] = {1.0f, 2.0f};\n    const float *p = mine;\n"),
        (LOAD_A, "        As[ty][tx] = p[tx & 1];\n"),
        without={ASYNC: "converts_type"},
    )
    yield scalar(
        "from shared memory through a pointer",
        (BEFORE, BEFORE + "    const float *p = A;\n    if (K < 0) p = &Bs[0][0];\n"),
        (LOAD_A, LOAD_A.replace("A[row", "p[row")),
        **refuse("not_understood", "p[row"),
    )
    yield scalar(
        "through another pointer",
        (BEFORE, BEFORE + "    const float *p = A + row * K;\n"),
        (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "p[k0 + tx]")),
    )
    yield scalar(
        "through a pointer of the load phase",
        (LOAD_A, "        const float *p = A + row * K + k0;\n" + LOAD_A.replace("A[row * K + k0 + tx]", "p[tx]")),
    )
    yield scalar(
        "through a pointer, dereferenced", (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "*(A + row * K + k0 + tx)"))
    )
    yield scalar("__ldg", (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "__ldg(&A[row * K + k0 + tx])")))
    yield scalar(
        "volatile pointer",
        (PARAMS, PARAMS.replace("const float *A", "const volatile float *A")),
        **refuse("not_understood", "As[ty][tx] ="),
    )
    yield scalar(
        "volatile tile",
        ("__shared__ float As", "volatile __shared__ float As"),
        **refuse("not_understood", "As[ty][tx] ="),
    )
    yield scalar(
        "volatile cast",
        (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "*(const volatile float *)&A[row * K + k0 + tx]")),
        **refuse("not_understood", "As[ty][tx] ="),
    )
    yield scalar(
        "index changed on the way",
        (BEFORE, BEFORE + "    int n = 0;\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * n++]")),
        **refuse("not_understood", "n++"),
    )
    yield scalar(
        "index changed in a declaration",
        (BEFORE, BEFORE + "    int n = 0;\n"),
        (LOAD_A, "        int m = n++;\n" + LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * m]")),
    )
    yield scalar(
        "index changed by a function",
        (HEAD, "__device__ int next(int &i) { return i++; }\n" + HEAD),
        (BEFORE, BEFORE + "    int n = 0;\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * next(n)]")),
        **refuse("not_understood", "next(n)"),
    )
    yield scalar("comma", (LOAD_A, LOAD_A.replace(": 0.0f", ": (tx, 0.0f)")))
    yield scalar(
        "index from a tile",
        ("    __shared__ float Bs", "    __shared__ int table[TILE * TILE];\n    __shared__ float Bs"),
        (PARAMS, PARAMS),
        (
            LOAD_A,
            "        table[ty * TILE + tx] = reinterpret_cast<const int *>(A)[0];\n"
            + LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * table[ty * TILE + tx]]"),
        ),
        **refuse("loop_carried_shared", "table[ty * TILE + tx]]", False),
    )
    yield scalar(
        "index from a constant table",
        ("    __shared__ float Bs", "    __shared__ int table[TILE];\n    __shared__ float Bs"),
        (BEFORE, BEFORE + "    if (ty == 0) table[tx] = tx;\n    __syncthreads();\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + table[tx]]")),
    )
    yield scalar("gathered", (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * int(B[0])]")))
    yield scalar(
        "dynamic shared memory",
        ("__shared__ float As[TILE][TILE]", "extern __shared__ float As[]"),
        (LOAD_A, LOAD_A.replace("As[ty][tx]", "As[ty * TILE + tx]")),
        (MATH, MATH.replace("As[ty][k]", "As[ty * TILE + k]")),
        **refuse("not_understood", "extern __shared__", False),
    )
    yield scalar(
        "declared in the loop",
        ("    __shared__ float Bs[TILE][TILE];\n", ""),
        (LOOP, LOOP + "        __shared__ float Bs[TILE][TILE];\n"),
        **refuse("not_understood", "__shared__ float Bs"),
    )
    yield scalar(
        "two arrays in one statement",
        ("    __shared__ float Bs[TILE][TILE];\n", ""),
        ("As[TILE][TILE];", "As[TILE][TILE], Bs[TILE][TILE];"),
    )
    yield scalar(
        "two statements on one line",
        (
            "    __shared__ float As[TILE][TILE];\n    __shared__",
            "    __shared__ __align__(16) float As[TILE][TILE]; __shared__",
        ),
    )
    yield scalar("alignment in front", ("    __shared__ float As", "    alignas(16) __shared__ float As"))
    yield scalar(
        "alignment too small",
        ("    __shared__ float As", "    __shared__ __align__(4) float As"),
        without={LDG: "misaligned", SINGLE: "misaligned", ASYNC: "misaligned"},
    )
    yield scalar(
        "alignment not understood",
        ("    __shared__ float As", "    alignas(float4) __shared__ float As"),
        without={LDG: "misaligned", SINGLE: "misaligned", ASYNC: "misaligned"},
    )
    yield scalar("a stage that is no multiple of 16 bytes", ("As[TILE][TILE]", "As[TILE][TILE + 1]"))
    yield scalar(
        "an odd stage", ("As[TILE][TILE]", "As[TILE + 1][TILE + 1]"), without={LDG: "misaligned", ASYNC: "misaligned"}
    )
    yield scalar(
        "a name that is taken",
        (HEAD, "__device__ int stage, STAGES, copy_tile, As_ring, k0_ahead, has_next, first;\n" + HEAD),
    )
    yield scalar(
        "shadowed in the compute phase",
        (MATH, "            float row = As[ty][k];\n            sum += row * Bs[k][tx];\n"),
    )
    yield scalar(
        "shadowed in the load phase",
        (LOAD_A, "        int col = k0 + tx;\n" + LOAD_A.replace("k0 + tx", "col")),
        (LOAD_B, LOAD_B.replace("col", "(blockIdx.x * TILE + tx)")),
    )
    yield scalar(
        "alias in the load phase",
        (LOAD_A, "        using T = float;\n" + LOAD_A.replace(": 0.0f", ": T(0)")),
        **refuse("not_understood", "T(0)"),
    )
    yield scalar("braces around a copy", (LOAD_A, "        {\n" + LOAD_A + "        }\n"))
    yield scalar("tabs", ("    ", "\t"))
    yield scalar("UTF-8 in comments", (LOAD_A, "        // Ä ∑ 矩阵\n" + LOAD_A.replace("\n", "  // größer als M·K\n")))
    yield scalar(
        "guard in a local",
        (LOAD_A, "        bool ok = row < M && k0 + tx < K;\n        As[ty][tx] = ok ? A[row * K + k0 + tx] : 0.0f;\n"),
    )
    yield scalar(
        "clamped row", (LOAD_A, "        int safe = min(row, M - 1);\n" + LOAD_A.replace("A[row *", "A[safe *"))
    )
    yield scalar(
        "through a register",
        (
            LOAD_A,
            "        float a = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        As[ty][tx] = a;\n",
        ),
    )
    yield scalar(
        "one register, two places",
        ("As[TILE][TILE]", "As[2][TILE][TILE]"),
        (
            LOAD_A,
            "        const float a = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        As[0][ty][tx] = a;\n        As[1][tx][ty] = a;\n",
        ),
        (MATH, MATH.replace("As[ty][k]", "As[0][ty][k] * As[1][k][ty]")),
        without={ASYNC: "not_understood"},
    )
    yield scalar(
        "auto register",
        (LOAD_A, "        auto a = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        As[ty][tx] = a;\n"),
        without={ASYNC: "converts_type"},
    )
    yield scalar(
        "offsets in registers",
        (BEFORE, BEFORE + "    const int off[2] = {0, 0};\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + off[tx & 1]]")),
        values=False,
    )
    yield scalar(
        "one buffer, cut by pointers",
        ("    __shared__ float As[TILE][TILE];\n", "    __shared__ float all[TILE * TILE];\n    float *As = all;\n"),
        (LOAD_A, LOAD_A.replace("As[ty][tx]", "As[ty * TILE + tx]")),
        (MATH, MATH.replace("As[ty][k]", "As[ty * TILE + k]")),
        without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"},
    )
    yield scalar(
        "a struct of tiles",
        (HEAD, "struct Tiles { float a[TILE][TILE]; };\n" + HEAD),
        ("__shared__ float As[TILE][TILE];", "__shared__ Tiles As;"),
        (LOAD_A, LOAD_A.replace("As[ty]", "As.a[ty]")),
        (MATH, MATH.replace("As[ty]", "As.a[ty]")),
        **refuse("not_understood", "__shared__ Tiles"),
    )
    yield scalar(
        "two bytes at a time",
        (HEAD, "#include <cuda_fp16.h>\n" + HEAD),
        ("__shared__ float As", "__shared__ half As"),
        (BEFORE, BEFORE + "    const half *H = reinterpret_cast<const half *>(A);\n"),
        (LOAD_A, LOAD_A.replace("A[row", "H[row").replace(": 0.0f", ": half(0)")),
        (MATH, MATH.replace("As[ty][k]", "float(As[ty][k])")),
        without={ASYNC: "unsupported_width"},
        values=False,
    )
