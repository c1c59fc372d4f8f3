"""What one phase does to the other."""

# ruff: noqa: E501  (a line of a kernel stays on one line)

from __future__ import annotations

from collections.abc import Iterator

from attack_base import ASYNC, BEFORE, HEAD, INNER, LDG, LOAD_A, LOAD_B, MATH, STORE, Attack, refuse, scalar


def phases() -> Iterator[Attack]:
    """What one phase does to the other."""
    yield scalar(
        "guard after the bump",
        (BEFORE, BEFORE + "    int kk = threadIdx.x;\n"),
        (LOAD_A, "        As[ty][tx] = (row < M && kk < K) ? A[row * K + kk] : 0.0f;\n        kk += TILE;\n"),
        (
            LOAD_B,
            "        Bs[ty][tx] = (kk - tx - TILE + ty < K && col < N) ? B[(kk - tx - TILE + ty) * N + col] : 0.0f;\n",
        ),
    )
    yield scalar(
        "local of the load phase, constant",
        (LOAD_A, "        float one = 1.0f;\n" + LOAD_A),
        (MATH, MATH.replace("As[ty]", "one * As[ty]")),
    )
    yield scalar(
        "local of the load phase, of its tile",
        (LOAD_A, "        int tile = k0 / TILE;\n" + LOAD_A),
        (MATH, MATH.replace("sum +=", "sum += (tile + 1) *")),
    )
    yield scalar(
        "local of the load phase, of a bumped index",
        (BEFORE, BEFORE + "    int tile = 0;\n"),
        (LOAD_A, "        int mine = tile;\n        tile += 1;\n" + LOAD_A),
        (MATH, MATH.replace("sum +=", "sum += (mine + 1) *")),
    )
    yield scalar(
        "loaded register used by the compute phase",
        (LOAD_A, "        float extra = A[row * K];\n" + LOAD_A),
        (MATH, MATH.replace("sum +=", "sum += extra *")),
        values=False,
    )
    yield scalar(
        "bumped index used by the compute phase",
        (BEFORE, BEFORE + "    int tile = 0;\n"),
        (LOAD_A, "        tile++;\n" + LOAD_A),
        (MATH, MATH.replace("sum +=", "sum += tile *")),
    )
    yield scalar(
        "load phase reads what compute changes",
        (LOAD_A, LOAD_A.replace("0.0f", "sum * 0.0f")),
        **refuse("not_understood", "sum * 0.0f"),
    )
    yield scalar(
        "the same through a reference",
        (BEFORE, BEFORE + "    float &fill = sum;\n"),
        (LOAD_A, LOAD_A.replace("0.0f", "fill * 0.0f")),
        **refuse("not_understood", "fill * 0.0f"),
    )
    yield scalar(
        "compute changes it through a pointer",
        (BEFORE, BEFORE + "    int off = 0;\n    int *p = &off;\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + off]")),
        (INNER, "        *p = 0;\n" + INNER),
        **refuse("not_understood", "k0 + tx + off"),
    )
    yield scalar(
        "two registers through a reference",
        (MATH, "            float &into = sum;\n            into += As[ty][k] * Bs[k][tx];\n"),
    )
    yield scalar("store between tiles", (INNER, "        C[0] = 0.0f;\n" + INNER), **refuse("may_alias", "C[0]"))
    yield scalar(
        "store through a struct",
        (HEAD, "struct Out { float *p; };\n" + HEAD),
        (BEFORE, BEFORE + "    Out out = {C};\n"),
        (INNER, "        out.p[0] = 0.0f;\n" + INNER),
        **refuse("may_alias", "out.p[0]"),
    )
    yield scalar(
        "store through an array of pointers",
        (BEFORE, BEFORE + "    float *outs[2] = {C, C};\n"),
        (INNER, "        outs[0][0] = 0.0f;\n" + INNER),
        **refuse("may_alias", "outs[0][0]"),
    )
    yield scalar(
        "store through an alias of a pointer type",
        (HEAD, "typedef float *Pointer;\n" + HEAD),
        (BEFORE, BEFORE + "    Pointer out = C;\n"),
        (INNER, "        out[0] = 0.0f;\n" + INNER),
        **refuse("may_alias", "out[0]"),
    )
    yield scalar(
        "store through auto",
        (BEFORE, BEFORE + "    auto out = C;\n"),
        (INNER, "        out[0] = 0.0f;\n" + INNER),
        **refuse("may_alias", "out[0]"),
    )
    yield scalar(
        "store in a function",
        (HEAD, "__device__ void put(float *p) { p[0] = 0.0f; }\n" + HEAD),
        (INNER, "        put(C);\n" + INNER),
        **refuse("may_alias", "put(C);"),
    )
    yield scalar(
        "store in a function, const cast away",
        (HEAD, "__device__ void put(const float *p) { *(float *)p = 0.0f; }\n" + HEAD),
        (INNER, "        put(C);\n" + INNER),
        **refuse("may_alias", "put(C);"),
    )
    yield scalar(
        "store in an overload",
        (HEAD, "__device__ void put(float *p) { p[0] = 0.0f; }\n__device__ void put(float p) {}\n" + HEAD),
        (INNER, "        put(C);\n" + INNER),
        **refuse("may_alias", "put(C);"),
    )
    yield scalar(
        "store to a global",
        (HEAD, "__device__ float total;\n" + HEAD),
        (INNER, "        total = sum;\n" + INNER),
        **refuse("may_alias", "total = sum"),
    )
    yield scalar("atomics", (INNER, "        atomicAdd(C, 0.0f);\n" + INNER), **refuse("not_understood", "atomicAdd"))
    yield scalar(
        "unknown function",
        (INNER, "        __prof_trigger(0);\n" + INNER),
        **refuse("not_understood", "__prof_trigger"),
    )
    yield scalar(
        "compute writes the tile",
        (MATH, MATH + "            As[ty][k] = 0.0f;\n"),
        **refuse("loop_carried_shared", "As[ty][k] = 0"),
    )
    yield scalar(
        "compute writes the tile through a pointer",
        (BEFORE, BEFORE + "    float *scratch = &As[0][0];\n"),
        (MATH, MATH + "            scratch[0] = 0.0f;\n"),
        **refuse("loop_carried_shared", "scratch[0] = 0", False),
    )
    yield scalar(
        "compute stores to shared in PTX",
        (MATH, MATH + '            asm volatile("st.shared.f32 [%0], %1;" :: "r"(0), "f"(sum));\n'),
        **refuse("may_alias", "st.shared", False),
    )
    yield scalar(
        "an address is kept",
        (BEFORE, BEFORE + "    const float *last = nullptr;\n"),
        (MATH, MATH + "            last = &Bs[k][tx];\n"),
        **refuse("not_understood", "last = &Bs"),
    )
    yield scalar(
        "an address is kept as an integer",
        (BEFORE, BEFORE + "    unsigned at = 0;\n"),
        (
            INNER,
            "        if (k0 == 0) at = __cvta_generic_to_shared(&As[ty][0]);\n        float first;\n"
            '        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at));\n        sum += first;\n' + INNER,
        ),
        **refuse("not_understood", "if (k0 == 0) at"),
    )
    yield scalar(
        "an address is kept by a function",
        (BEFORE, BEFORE + "    unsigned at = 0;\n"),
        (HEAD, "__device__ void where(unsigned &to, const float *p) { to = __cvta_generic_to_shared(p); }\n" + HEAD),
        (INNER, "        if (k0 == 0) where(at, &As[ty][0]);\n" + INNER),
        **refuse("not_understood", "if (k0 == 0) where"),
    )
    yield scalar(
        "an address is used at once",
        (
            INNER,
            "        unsigned at = __cvta_generic_to_shared(&As[ty][0]);\n        float first;\n"
            '        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at));\n        sum += first;\n' + INNER,
        ),
    )
    yield scalar(
        "an address is swizzled",
        (
            INNER,
            "        unsigned at = __cvta_generic_to_shared(&As[ty][0]) ^ 4;\n        float first;\n"
            '        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at));\n        sum += first;\n' + INNER,
        ),
        **refuse("not_understood", "^ 4"),
    )
    yield scalar("continue in the compute phase's own loop", (MATH, "            if (k == 3) continue;\n" + MATH))
    yield scalar(
        "break out of the K-loop", (INNER, "        if (K < 0) break;\n" + INNER), **refuse("not_understood", "break;")
    )
    yield scalar(
        "return from the compute phase",
        (INNER, "        if (K < 0) return;\n" + INNER),
        **refuse("not_understood", "return;"),
    )
    yield scalar(
        "lambda in the compute phase",
        (MATH, "            auto add = [&](float x) { sum += x; };\n            add(As[ty][k] * Bs[k][tx]);\n"),
        **refuse("not_understood", "auto add"),
    )
    yield scalar(
        "method in the compute phase",
        (HEAD, "struct Sum { float v = 0; __device__ void add(float x) { v += x; } };\n" + HEAD),
        (BEFORE, BEFORE + "    Sum s;\n"),
        (MATH, "            s.add(As[ty][k] * Bs[k][tx]);\n"),
        **refuse("not_understood", "s.add"),
    )
    yield scalar(
        "function in the compute phase",
        (HEAD, "__device__ void mad(float &to, float a, float b) { to += a * b; }\n" + HEAD),
        (MATH, "            mad(sum, As[ty][k], Bs[k][tx]);\n"),
    )
    yield scalar(
        "recursive function",
        (HEAD, "__device__ void f(int n) { if (n) f(n - 1); }\n" + HEAD),
        (MATH, MATH + "            f(k);\n"),
        **refuse("not_understood", "            f(k)", False),
    )
    yield scalar(
        "array of registers through a row",
        (BEFORE, BEFORE + "    float acc[2][2] = {};\n"),
        (MATH, "            float (&one)[2] = acc[k & 1];\n            one[0] += As[ty][k] * Bs[k][tx];\n"),
        (STORE, "        C[row * N + col] = acc[0][0] + acc[1][0];\n"),
    )
    yield scalar("global read in the compute phase", (MATH, MATH.replace("sum +=", "sum += A[0] *")))
    yield scalar(
        "tile waits in registers",
        (
            BEFORE,
            BEFORE
            + "    float a = (row < M && tx < K) ? A[row * K + tx] : 0.0f;\n    float b = (ty < K && col < N) ? B[ty * N + col] : 0.0f;\n",
        ),
        (LOAD_A, "        As[ty][tx] = a;\n"),
        (LOAD_B, "        Bs[ty][tx] = b;\n"),
        (
            INNER,
            "        int next = k0 + TILE;\n        a = (row < M && next + tx < K) ? A[row * K + next + tx] : 0.0f;\n"
            "        b = (next + ty < K && col < N) ? B[(next + ty) * N + col] : 0.0f;\n" + INNER,
        ),
        **refuse("already_pipelined", "a = (row < M && next"),
    )
    yield scalar(
        "break in the load phase",
        (LOAD_A, "        if (K < 0) break;\n" + LOAD_A),
        **refuse("not_understood", "break;"),
    )
    yield scalar(
        "sum advanced in the load phase",
        (LOAD_A, "        sum += 0.5f;\n" + LOAD_A),
        **refuse("not_understood", "sum += 0.5f"),
    )
    yield scalar(
        "index advanced by what compute changes",
        (BEFORE, BEFORE + "    int off = 0;\n"),
        (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + off]") + "        off += int(sum) * 0;\n"),
        **refuse("not_understood", "k0 + tx + off]"),
    )
    yield scalar(
        "row of a tile by reference",
        (MATH, "            const float (&one)[TILE] = As[ty];\n            sum += one[k] * Bs[k][tx];\n"),
    )
    yield scalar(
        "row of a tile by auto reference",
        (MATH, "            const auto &one = As[ty];\n            sum += one[k] * Bs[k][tx];\n"),
    )
    yield scalar(
        "row of a tile by reference from outside",
        (BEFORE, BEFORE + "    float (&one)[TILE] = As[ty];\n"),
        (MATH, MATH.replace("As[ty][k]", "one[k]")),
        without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"},
    )
    yield scalar(
        "row of a tile by pointer from outside",
        (BEFORE, BEFORE + "    const float *one = As[ty];\n"),
        (MATH, MATH.replace("As[ty][k]", "one[k]")),
        without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"},
    )
    yield scalar("compiler fence", (INNER, '        asm volatile("" ::: "memory");\n' + INNER))
    yield scalar(
        "const cast away",
        (INNER, "        const_cast<float *>(A)[0] += 0.0f;\n" + INNER),
        **refuse("may_alias", "const_cast"),
    )
    yield scalar(
        "a min of its own",
        (HEAD, "__device__ int min(int a, int b) { return threadIdx.x + a + b; }\n" + HEAD),
        (MATH, MATH.replace("[k][tx]", "[min(k, k) * 0 + k][tx]")),
        **refuse("not_understood", "min(k, k)"),
    )
