"""Functions and macros with a trap: those that must come out the same, and those that must be refused."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

from dataclasses import dataclass

from front_samples import CALLS, LOAD_ROW, Sample, flat, sample

# The analysis need not take these; what is written out must mean the same.
SAME = (
    flat("a pointer that the helper advances is its own", """__device__ void load(float *tile, const float *src, int k, int ld, bool inside)
{
    src += k * ld;
    tile += threadIdx.y * TILE;
    tile[threadIdx.x] = inside ? *src : 0.0f;
}
""", """        load(As, A + row * K + tx, k0, 1, row < M && k0 + tx < K);
        load(Bs, B + ty * N + col, k0, N, k0 + ty < K && col < N);"""),
    flat("a signed parameter of an unsigned argument", """__device__ void load(float *tile, const float *src, int x, int shift, int rows, int r, int c, int cols)
{
    tile[threadIdx.y * TILE + x] = (x - shift >= -8 && r < rows && c < cols) ? src[r * cols + c] : 0.0f;
}
""", """        load(As, A, threadIdx.x, blockDim.x / 2, M, row, k0 + tx, K);
        load(Bs, B, threadIdx.x, blockDim.x / 2, K, k0 + ty, col, N);"""),
    flat("a narrow parameter", """__device__ void load(float *tile, const float *src, unsigned char at, bool inside, int i)
{
    tile[at] = inside ? src[i] : 0.0f;
}
""", """        load(As, A, ty * TILE + tx, row < M && k0 + tx < K, row * K + k0 + tx);
        load(Bs, B, ty * TILE + tx, k0 + ty < K && col < N, (k0 + ty) * N + col);"""),
    sample("an inner name that hides a parameter", """__device__ void load(float (&tile)[TILE][TILE], const float *p, int i, int n)
{
    for (int r = 0; r < 1; ++r) {
        const int n = threadIdx.y;
        tile[n][threadIdx.x] = 0.0f;
    }
    if (i < n) tile[threadIdx.y][threadIdx.x] = p[i];
}
""", "        load(As, A, row * K + k0 + tx, M * K);\n        load(Bs, B, (k0 + ty) * N + col, K * N);"),
    sample("an argument with the name of a local", """__device__ void load(float (&tile)[TILE][TILE], const float *p, int q, bool inside)
{
    const int tx = threadIdx.y, ty = threadIdx.x;
    tile[tx][ty] = inside ? p[q + ty - ty] : 0.0f;
}
""", "        load(As, A, row * K + k0 + tx, row < M && k0 + tx < K);\n        load(Bs, B, (k0 + ty) * N + col, k0 + ty < K && col < N);"),
    sample("a value that is changed through a reference meanwhile", """__device__ void load(float (&tile)[TILE][TILE], const float *p, int &seen, int before, bool inside, int i)
{
    seen += 1;
    tile[threadIdx.y][threadIdx.x] = inside ? p[i] : float(before);
}
""", """        int seen = k0;
        load(As, A, seen, seen, row < M && k0 + tx < K, row * K + k0 + tx);
        load(Bs, B, seen, seen, k0 + ty < K && col < N, (k0 + ty) * N + col);"""),
    sample("a macro whose argument has the name of its local", "#define LOAD(S, cond, src) do { const int at = 0; S[ty][tx] = (cond) ? (src) : 0.0f; } while (0)\n",
        """        const int at = 5;
        LOAD(As, row < M && k0 + tx < K && at == 0, A[row * K + k0 + tx]);
        LOAD(Bs, k0 + ty < K && col < N, B[(k0 + ty) * N + col]);"""),
    sample("a macro that leaves its own loop", "#define LOAD(S, cond, src) do { S[ty][tx] = 0.0f; if (!(cond)) break; S[ty][tx] = (src); } while (0)\n",
        """        LOAD(As, row < M && k0 + tx < K, A[row * K + k0 + tx]);
        LOAD(Bs, k0 + ty < K && col < N, B[(k0 + ty) * N + col]);"""),
    sample("a macro under an if without braces", "#define LOAD(S, v) { const float value = (v); S[ty][tx] = value; }\n",
        """        As[ty][tx] = 0.0f;
        Bs[ty][tx] = 0.0f;
        if (row < M && k0 + tx < K) LOAD(As, A[row * K + k0 + tx])
        if (k0 + ty < K && col < N) LOAD(Bs, B[(k0 + ty) * N + col])"""),
    sample("a macro with strings", """#define LOAD(S, cond, src) do { \\
        _Pragma("unroll") for (int r = 0; r < 2; ++r) { \\
            float r0; asm volatile("mov.f32 %0, %1;  // r" : "=f"(r0) : "f"((cond) ? (src) : 0.0f)); \\
            S[ty][tx] = r0; \\
        } \\
    } while (0)
""", """        LOAD(As, row < M && k0 + tx < K, A[row * K + k0 + tx]);
        LOAD(Bs, k0 + ty < K && col < N, B[(k0 + ty) * N + col]);"""),
    sample("a macro beside an operator", "#define MINUS -ty\n#define S(y) As[y - MINUS - ty]\n",
        """        S(ty)[tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;"""),
    flat("an early return in the last call", LOAD_ROW.replace("const int at", "if (r < 0) return;\n    const int at"), CALLS),
)  # fmt: skip


@dataclass(frozen=True)
class Trap:
    """A kernel that must keep its call, and what the refusal says."""

    one: Sample
    why: str


def trap(name: str, head: str, load: str, why: str, **more: object) -> Trap:
    return Trap(flat(name, head, load, **more), why)


REFUSED = (
    trap("two functions could be meant", LOAD_ROW + LOAD_ROW.replace("const float *src", "const double *src"), CALLS, "2 functions of that name"),
    trap("a specialised template", """template <int S> __device__ void load(float *t, const float *p, int i) { t[threadIdx.y * TILE + threadIdx.x] = p[i]; }
template <> __device__ void load<1>(float *t, const float *p, int i) { t[threadIdx.y * TILE + threadIdx.x] = 0.0f; }
""", "        load<0>(As, A, row * K + k0 + tx);\n        load<1>(Bs, B, (k0 + ty) * N + col);", "functions of that name"),
    trap("a function that calls itself", """__device__ void load(float *t, const float *p, int i, int n)
{
    if (n > 0) load(t, p, i, n - 1);
    t[threadIdx.y * TILE + threadIdx.x] = p[i];
}
""", "        load(As, A, row * K + k0 + tx, 2);\n        load(Bs, B, (k0 + ty) * N + col, 2);", "a call of itself"),
    trap("a function that an #if decides", f"#ifdef FAST\n{LOAD_ROW}\n#else\n{LOAD_ROW.replace('0.0f', '1.0f')}\n#endif\n", CALLS, "2 functions of that name"),
    trap("a function inside an #if", f"#ifndef SLOW\n{LOAD_ROW}\n#endif\n", CALLS, "inside an #if whose outcome is not known"),
    trap("a return in the middle", LOAD_ROW.replace("tile[at]", "for (int i = 0; i < 2; ++i) { if (r + i > rows + 5) return; }\n    tile[at]"), CALLS, "a return in the middle"),
    trap("an argument that changes a variable", LOAD_ROW, "        int r = row;\n        load_row(As, A, r++, k0 + tx, M, K, K);\n        load_row(Bs, B, k0 + ty, col, K, N, N);", "changes a variable"),
    trap("a name that the kernel has too", LOAD_ROW.replace("__device__", "constexpr int row = 0;\n__device__", 1).replace("src[r * ld + c]", "src[r * ld + c + row]"), CALLS, "`row` means something else"),
    trap("a macro that rests on a local", LOAD_ROW.replace("__device__", "#define HERE (at)\n__device__", 1).replace("tile[at]", "tile[HERE]"), "        const int at = 1;\n" + CALLS.replace("k0 + tx", "k0 + tx + at - at"), "its macro HERE uses `at`"),
    trap("a macro of two meanings", "#ifdef FAST\n#define ZERO 0.0f\n#else\n#define ZERO -0.0f\n#endif\n" + LOAD_ROW.replace("0.0f", "ZERO"), CALLS, "macro ZERO"),
    trap("a shared array of its own", LOAD_ROW.replace("const int at", "__shared__ float spare[TILE]; spare[0] = 1.0f;\n    const int at"), CALLS, "a shared array in it"),
    trap("a static variable", LOAD_ROW.replace("const int at", "static int calls = 0; ++calls;\n    const int at"), CALLS, "a static variable"),
    trap("a question about a parameter's type", LOAD_ROW.replace("tile[at]", "tile[at + sizeof(tile) - 8]").replace("float *tile", "float tile[][TILE]").replace("tile[at +", "tile[0][at +"), CALLS.replace("As,", "(float(*)[TILE])As,").replace("Bs,", "(float(*)[TILE])Bs,"), "its parameter tile"),
    trap("a name that the kernel's namespace has too", "constexpr float none = 0.0f;\n" + LOAD_ROW.replace("0.0f", "none") + "namespace deep { constexpr float none = 1.0f;", CALLS, "`none` means something else", tail="}\n", kernel="deep::k"),
    trap("a volatile reference", "__device__ void load(volatile float (&t)[TILE * TILE], const float *p, int i) { t[threadIdx.y * TILE + threadIdx.x] = p[i]; }\n", "        load(As, A, row * K + k0 + tx);\n        load(Bs, B, (k0 + ty) * N + col);", "is volatile"),
    trap("a raw string", LOAD_ROW.replace("const int at", 'const char *s = R"x(tile)x"; (void)s;\n    const int at'), CALLS, "raw string"),
    trap("a lambda", LOAD_ROW.replace("tile[at]", "auto f = [&] { return at; };\n    tile[f()]"), CALLS, "lambda"),
    trap("a template argument that is not written down", "template <int S>\n" + LOAD_ROW, CALLS.replace("load_row", "load_row<>"), "template argument S"),
)  # fmt: skip
