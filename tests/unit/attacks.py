"""Kernels that a careless rewrite gets wrong: each is one of ``kernels/*.cu`` with a few edits.

``refused`` ones must be refused with that code at that line. The others must be rewritten rightly: every variant that is
not named in ``without`` is made, and gives the values of the original (checked by whatever can run them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
LDG, SINGLE, ASYNC = "ldg", "ldg_single", "cp_async"


@dataclass(frozen=True)
class Attack:
    """``refused``: the code for the whole kernel. ``at``: what its line holds. ``without``: variant → code."""

    name: str
    base: str
    edits: tuple[tuple[str, str], ...]
    refused: str = ""
    at: str = ""
    without: dict[str, str] = field(default_factory=dict)
    values: bool = True  # whether the original runs as it stands

    def text(self) -> str:
        text = (KERNELS / f"{self.base}.cu").read_text()
        for old, new in self.edits:
            assert old in text, (self.name, old)
            text = text.replace(old, new)
        return text

    def line(self) -> int | None:
        """The 1-based line that the refusal should name."""
        lines = self.text().split("\n")
        found = [i + 1 for i, line in enumerate(lines) if self.at in line] if self.at else []
        return found[0] if found else None


# Texts of kernels/scalar.cu.
LOAD_A = "        As[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n"
LOAD_B = "        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;\n"
FIRST_BARRIER = "        __syncthreads();\n\n        for"
LOOP = "    for (int k0 = 0; k0 < K; k0 += TILE) {\n"
MATH = "            sum += As[ty][k] * Bs[k][tx];\n"
SECOND_BARRIER = "        }\n        __syncthreads();\n    }\n"
INNER = "        for (int k = 0; k < TILE; ++k) {\n"
BEFORE = "    float sum = 0.0f;\n"
STORE = "        C[row * N + col] = sum;\n"
HEAD = "__global__ void scalar("
PARAMS = "const float *A, const float *B, float *C, int M, int N, int K"


def scalar(name: str, *edits: tuple[str, str], **expected: object) -> Attack:
    return Attack(name, "scalar", edits, **expected)  # type: ignore[arg-type]


def byte(name: str, *edits: tuple[str, str], **expected: object) -> Attack:
    return Attack(name, "bytes", edits, **expected)  # type: ignore[arg-type]


def vector(name: str, *edits: tuple[str, str], **expected: object) -> Attack:
    return Attack(name, "vector", edits, **expected)  # type: ignore[arg-type]


def refuse(code: str, at: str, values: bool = True) -> dict[str, object]:
    return {"refused": code, "at": at, "values": values}


def k_loops() -> Iterator[Attack]:
    """Forms of the K-loop, its header and its barriers."""
    yield scalar("as it is")
    yield scalar("tile counter", (LOOP, "    for (int t = 0; t < (K + TILE - 1) / TILE; t++) {\n        int k0 = t * TILE;\n"))
    yield scalar("bound first", ("k0 < K; k0 += TILE", "K > k0; k0 += TILE"))
    yield scalar("k = k + step", ("k0 += TILE", "k0 = k0 + TILE"))
    yield scalar("unsigned counter", ("int k0 = 0;", "unsigned k0 = 0;"))
    yield scalar("long counter", ("int k0 = 0;", "long long k0 = 0;"))
    yield scalar("a first that is not zero", ("int k0 = 0;", "int k0 = TILE;"))
    yield scalar("a first from a parameter", ("int k0 = 0;", "int k0 = K % TILE ? TILE : 0;"))
    yield scalar("steps of two tiles", ("k0 += TILE", "k0 += 2 * TILE"))
    yield scalar("a step from a parameter", ("k0 += TILE", "k0 += blockDim.x"))
    yield scalar("pragma", (LOOP, "    #pragma unroll 2\n" + LOOP))
    yield scalar("pragma behind a comment", (LOOP, "    #pragma unroll 1\n    // over the tiles\n\n" + LOOP))
    yield scalar("_Pragma", (LOOP, '    _Pragma("unroll 1")\n' + LOOP))
    yield scalar("_Pragma on the line", (LOOP, '    _Pragma("unroll 1") ' + LOOP.lstrip()))
    yield scalar("code on the loop's line", (LOOP, "    sum = 1.0f; " + LOOP.lstrip()))
    yield scalar("brace on its own line", (LOOP, LOOP.replace(" {\n", "\n    {  // tiles\n")))
    yield scalar("comment at the brace", (LOOP, LOOP.replace(" {\n", " {  // over the tiles\n")))
    yield scalar("code behind the brace", (LOOP + LOAD_A, LOOP[:-1] + " " + LOAD_A.lstrip()))
    yield scalar("code behind the loop", ("    }\n\n    if (row", "    } sum += 1.0f;\n\n    if (row"))
    yield scalar("k <= last", ("k0 < K;", "k0 <= K - 1;"), **refuse("not_understood", "k0 <= K"))
    yield scalar("k != bound", ("k0 < K;", "k0 != (K + TILE - 1) / TILE * TILE;"), **refuse("not_understood", "k0 !="))
    yield scalar("downwards", ("int k0 = 0; k0 < K; k0 += TILE", "int k0 = (K - 1) / TILE * TILE; k0 >= 0; k0 -= TILE"),
                 **refuse("not_understood", "k0 -= TILE"))  # fmt: skip
    yield scalar("negative step", ("k0 += TILE", "k0 += -TILE"), **refuse("not_understood", "k0 += -TILE", False))
    yield scalar("second condition", ("k0 < K;", "k0 < K && sum < 1e30f;"), **refuse("not_understood", "1e30f"))
    yield scalar("while", (LOOP, "    int k0 = 0;\n    while (k0 < K) {\n"), ("        }\n        __syncthreads();\n", "        }\n        __syncthreads();\n        k0 += TILE;\n"),
                 **refuse("not_understood", "while (k0"))  # fmt: skip
    yield scalar("no variable of its own", (LOOP, "    int k0;\n    for (k0 = 0; k0 < K; k0 += TILE) {\n"),
                 **refuse("not_understood", "for (k0 = 0"))  # fmt: skip
    yield scalar("two variables", ("int k0 = 0; k0 < K; k0 += TILE", "int k0 = 0, t = 0; k0 < K; k0 += TILE, ++t"),
                 **refuse("not_understood", "++t"))  # fmt: skip
    yield scalar("variable changed", (INNER, "        if (K < 0) k0 += 1;\n" + INNER), **refuse("not_understood", "for (int k0"))
    yield scalar("variable changed by reference", (INNER, "        int &again = k0;\n        again += 0;\n" + INNER),
                 **refuse("not_understood", "for (int k0"))  # fmt: skip
    yield scalar("variable changed by pointer", (INNER, "        int *again = &k0;\n        *again += 0;\n" + INNER),
                 **refuse("not_understood", "for (int k0"))  # fmt: skip
    yield scalar("bound changed", (INNER, "        if (sum > 1e30f) K = k0;\n" + INNER), **refuse("divergent_barrier", "for (int k0"))
    yield scalar("start changed", (LOOP, "    int start = 0;\n    for (int k0 = start; k0 < K; k0 += TILE) {\n"),
                 (INNER, "        start = k0;\n" + INNER), **refuse("not_understood", "for (int k0"))  # fmt: skip
    yield scalar("bound read from memory", ("k0 < K;", "k0 < int(A[0] * 0.0f) + K;"), **refuse("not_understood", "for (int k0"))
    yield scalar("short counter", ("int k0 = 0;", "short k0 = 0;"), **refuse("not_understood", "short k0"))
    yield scalar("bound of the thread", ("k0 < K;", "k0 < K + int(threadIdx.x) * 0;"),
                 **refuse("divergent_barrier", "for (int k0"))  # fmt: skip
    yield scalar("first of the thread", ("int k0 = 0;", "int k0 = tx & 0;"), **refuse("divergent_barrier", "for (int k0"))
    yield scalar("bound that differs", (BEFORE, BEFORE + "    int n = K;\n    if (ty > 99) n = 0;\n"), ("k0 < K;", "k0 < n;"),
                 **refuse("divergent_barrier", "for (int k0"))  # fmt: skip
    yield scalar("bound changed for all", (BEFORE, BEFORE + "    int n = K;\n    if (K > 32) n = 32;\n"), ("k0 < K;", "k0 < n;"))
    yield scalar("one barrier", (SECOND_BARRIER, "        }\n    }\n"), **refuse("baseline_race", "__syncthreads"))
    yield scalar("one barrier, a ring", (SECOND_BARRIER, "        }\n    }\n"), ("As[TILE][TILE]", "As[2][TILE][TILE]"),
                 ("Bs[TILE][TILE]", "Bs[2][TILE][TILE]"), ("        As[ty]", "        int b = k0 / TILE & 1;\n        As[b][ty]"),
                 ("        Bs[ty]", "        Bs[b][ty]"), ("As[ty][k] * Bs", "As[b][ty][k] * Bs[b]"),
                 **refuse("already_pipelined", "__syncthreads"))  # fmt: skip
    yield scalar("three barriers", (INNER, "        if (K > 0) sum += 0.0f;\n        __syncthreads();\n" + INNER),
                 **refuse("not_understood", ""))  # fmt: skip
    yield scalar("begins with the barrier", (LOOP, LOOP + "        __syncthreads();\n"), (SECOND_BARRIER, "        }\n    }\n"),
                 **refuse("not_understood", "__syncthreads"))  # fmt: skip
    yield scalar("statements behind the barrier", (SECOND_BARRIER, "        }\n        __syncthreads();\n        sum += 0.5f;\n    }\n"),
                 **refuse("not_understood", "0.5f"))  # fmt: skip
    yield scalar("barrier in a branch", (FIRST_BARRIER, "        if (K > 0) __syncthreads();\n\n        for"),
                 **refuse("not_understood", "if (K > 0)"))  # fmt: skip
    yield scalar("barrier in a macro", (FIRST_BARRIER, "        SYNC();\n\n        for"), (HEAD, "#define SYNC() __syncthreads()\n" + HEAD),
                 **refuse("not_understood", "        SYNC();"))  # fmt: skip
    yield scalar("barrier in a function", (FIRST_BARRIER, "        wait_all();\n\n        for"),
                 (HEAD, "__device__ void wait_all() { __syncthreads(); }\n" + HEAD), **refuse("not_understood", "        wait_all"))  # fmt: skip
    yield scalar("counting barrier", (FIRST_BARRIER, "        __syncthreads_count(1);\n\n        for"),
                 **refuse("not_understood", "_count"))  # fmt: skip
    yield scalar("barrier in PTX", (INNER, '        asm volatile("bar.sync 1, 256;");\n' + INNER), **refuse("not_understood", "bar.sync"))
    yield scalar("two K-loops", ("    if (row < M && col < N) {", LOOP + LOAD_A + LOAD_B + FIRST_BARRIER[:-3] + INNER + MATH + SECOND_BARRIER
                 + "    if (row < M && col < N) {"), **refuse("not_understood", ""))  # fmt: skip
    yield scalar("persistent", (LOOP, "    for (int again = 0; again < 2; ++again) {\n" + LOOP), (SECOND_BARRIER, SECOND_BARRIER + "    }\n"),
                 **refuse("not_understood", "for (int k0"))  # fmt: skip
    yield scalar("in a branch", (LOOP, "    if (K > 0) {\n" + LOOP), (SECOND_BARRIER, SECOND_BARRIER + "    }\n"),
                 **refuse("not_understood", "for (int k0"))  # fmt: skip
    yield scalar("no loop", (LOOP, "    { int k0 = 0;\n"), **refuse("no_k_loop", HEAD))
    yield scalar("no shared memory", (LOOP, "    for (int k0 = 0; k0 < 0; k0 += TILE) {\n"), ("__shared__ float", "float"),
                 **refuse("no_k_loop", HEAD))  # fmt: skip
    yield scalar("loop inside #if", (LOOP, "#if TILE > 8\n" + LOOP + "#endif\n"), **refuse("not_understood", ""))
    yield scalar("#if in the load phase", (LOAD_B, "#if TILE > 8\n" + LOAD_B + "#endif\n"), **refuse("not_understood", "#if TILE"))
    yield scalar("#if in the compute phase", (MATH, "#if TILE > 8\n" + MATH + "#endif\n"), **refuse("not_understood", "#if TILE"))


def early_returns() -> Iterator[Attack]:
    """What stands in front of the K-loop."""
    yield scalar("uniform return", (BEFORE, BEFORE + "    if (blockIdx.y * TILE >= M) return;\n"))
    yield scalar("divergent return", (BEFORE, BEFORE + "    if (row >= M + 99) return;\n"), **refuse("divergent_barrier", "return;"))
    yield scalar("return in a divergent loop", (BEFORE, BEFORE + "    for (int i = 99; i < tx; ++i) return;\n"),
                 **refuse("divergent_barrier", "return;"))  # fmt: skip
    yield scalar("return in a switch", (BEFORE, BEFORE + "    switch (tx) { case 99: return; }\n"), **refuse("not_understood", "switch"))
    yield scalar("return in #if", (BEFORE, BEFORE + "#if TILE == 16\n    if (row > M + 99) return;\n#endif\n"),
                 **refuse("not_understood", "#if"))  # fmt: skip
    yield scalar("return in a macro", (BEFORE, BEFORE + "    LEAVE(row > M + 99)\n"), (HEAD, "#define LEAVE(x) if (x) return;\n" + HEAD),
                 **refuse("not_understood", "    LEAVE("))  # fmt: skip
    yield scalar("exit in PTX", (BEFORE, BEFORE + '    if (tx > 99) asm volatile("exit;");\n'), **refuse("not_understood", "exit;"))
    yield scalar("goto", (BEFORE, BEFORE + "    if (tx > 99) goto done;\n"), (STORE, STORE + "        done:;\n"),
                 **refuse("not_understood", "goto", False))  # fmt: skip


def phases() -> Iterator[Attack]:
    """What one phase does to the other."""
    yield scalar("guard after the bump", (BEFORE, BEFORE + "    int kk = threadIdx.x;\n"),
                 (LOAD_A, "        As[ty][tx] = (row < M && kk < K) ? A[row * K + kk] : 0.0f;\n        kk += TILE;\n"),
                 (LOAD_B, "        Bs[ty][tx] = (kk - tx - TILE + ty < K && col < N) ? B[(kk - tx - TILE + ty) * N + col] : 0.0f;\n"))  # fmt: skip
    yield scalar("local of the load phase, constant", (LOAD_A, "        float one = 1.0f;\n" + LOAD_A), (MATH, MATH.replace("As[ty]", "one * As[ty]")))
    yield scalar("local of the load phase, of its tile", (LOAD_A, "        int tile = k0 / TILE;\n" + LOAD_A),
                 (MATH, MATH.replace("sum +=", "sum += (tile + 1) *")))  # fmt: skip
    yield scalar("local of the load phase, of a bumped index", (BEFORE, BEFORE + "    int tile = 0;\n"),
                 (LOAD_A, "        int mine = tile;\n        tile += 1;\n" + LOAD_A), (MATH, MATH.replace("sum +=", "sum += (mine + 1) *")),
                 **refuse("not_understood", "(mine + 1)"))  # fmt: skip
    yield scalar("loaded register used by the compute phase", (LOAD_A, "        float extra = A[row * K];\n" + LOAD_A),
                 (MATH, MATH.replace("sum +=", "sum += extra *")), **refuse("not_understood", "extra *", False))  # fmt: skip
    yield scalar("bumped index used by the compute phase", (BEFORE, BEFORE + "    int tile = 0;\n"), (LOAD_A, "        tile++;\n" + LOAD_A),
                 (MATH, MATH.replace("sum +=", "sum += tile *")), **refuse("not_understood", "tile *"))  # fmt: skip
    yield scalar("load phase reads what compute changes", (LOAD_A, LOAD_A.replace("0.0f", "sum * 0.0f")),
                 **refuse("not_understood", "sum * 0.0f"))  # fmt: skip
    yield scalar("the same through a reference", (BEFORE, BEFORE + "    float &fill = sum;\n"), (LOAD_A, LOAD_A.replace("0.0f", "fill * 0.0f")),
                 **refuse("not_understood", "fill * 0.0f"))  # fmt: skip
    yield scalar("compute changes it through a pointer", (BEFORE, BEFORE + "    int off = 0;\n    int *p = &off;\n"),
                 (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + off]")), (INNER, "        *p = 0;\n" + INNER),
                 **refuse("not_understood", "k0 + tx + off"))  # fmt: skip
    yield scalar("two registers through a reference", (MATH, "            float &into = sum;\n            into += As[ty][k] * Bs[k][tx];\n"))
    yield scalar("store between tiles", (INNER, "        C[0] = 0.0f;\n" + INNER), **refuse("may_alias", "C[0]"))
    yield scalar("store through a struct", (HEAD, "struct Out { float *p; };\n" + HEAD), (BEFORE, BEFORE + "    Out out = {C};\n"),
                 (INNER, "        out.p[0] = 0.0f;\n" + INNER), **refuse("may_alias", "out.p[0]"))  # fmt: skip
    yield scalar("store through an array of pointers", (BEFORE, BEFORE + "    float *outs[2] = {C, C};\n"),
                 (INNER, "        outs[0][0] = 0.0f;\n" + INNER), **refuse("may_alias", "outs[0][0]"))  # fmt: skip
    yield scalar("store through an alias of a pointer type", (HEAD, "typedef float *Pointer;\n" + HEAD), (BEFORE, BEFORE + "    Pointer out = C;\n"),
                 (INNER, "        out[0] = 0.0f;\n" + INNER), **refuse("may_alias", "out[0]"))  # fmt: skip
    yield scalar("store through auto", (BEFORE, BEFORE + "    auto out = C;\n"), (INNER, "        out[0] = 0.0f;\n" + INNER),
                 **refuse("may_alias", "out[0]"))  # fmt: skip
    yield scalar("store in a function", (HEAD, "__device__ void put(float *p) { p[0] = 0.0f; }\n" + HEAD), (INNER, "        put(C);\n" + INNER),
                 **refuse("may_alias", "put(C);"))  # fmt: skip
    yield scalar("store in a function, const cast away", (HEAD, "__device__ void put(const float *p) { *(float *)p = 0.0f; }\n" + HEAD),
                 (INNER, "        put(C);\n" + INNER), **refuse("may_alias", "put(C);"))  # fmt: skip
    yield scalar("store in an overload", (HEAD, "__device__ void put(float *p) { p[0] = 0.0f; }\n__device__ void put(float p) {}\n" + HEAD),
                 (INNER, "        put(C);\n" + INNER), **refuse("may_alias", "put(C);"))  # fmt: skip
    yield scalar("store to a global", (HEAD, "__device__ float total;\n" + HEAD), (INNER, "        total = sum;\n" + INNER),
                 **refuse("may_alias", "total = sum"))  # fmt: skip
    yield scalar("atomics", (INNER, "        atomicAdd(C, 0.0f);\n" + INNER), **refuse("not_understood", "atomicAdd"))
    yield scalar("unknown function", (INNER, "        __prof_trigger(0);\n" + INNER), **refuse("not_understood", "__prof_trigger"))
    yield scalar("compute writes the tile", (MATH, MATH + "            As[ty][k] = 0.0f;\n"), **refuse("loop_carried_shared", "As[ty][k] = 0"))
    yield scalar("compute writes the tile through a pointer", (BEFORE, BEFORE + "    float *scratch = &As[0][0];\n"),
                 (MATH, MATH + "            scratch[0] = 0.0f;\n"), **refuse("loop_carried_shared", "scratch[0] = 0", False))  # fmt: skip
    yield scalar("compute stores to shared in PTX", (MATH, MATH + '            asm volatile("st.shared.f32 [%0], %1;" :: "r"(0), "f"(sum));\n'),
                 **refuse("may_alias", "st.shared", False))  # fmt: skip
    yield scalar("an address is kept", (BEFORE, BEFORE + "    const float *last = nullptr;\n"), (MATH, MATH + "            last = &Bs[k][tx];\n"),
                 **refuse("not_understood", "last = &Bs"))  # fmt: skip
    yield scalar("an address is kept as an integer", (BEFORE, BEFORE + "    unsigned at = 0;\n"),
                 (INNER, "        if (k0 == 0) at = __cvta_generic_to_shared(&As[ty][0]);\n        float first;\n"
                  '        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at));\n        sum += first;\n' + INNER),
                 **refuse("not_understood", "if (k0 == 0) at"))  # fmt: skip
    yield scalar("an address is kept by a function", (BEFORE, BEFORE + "    unsigned at = 0;\n"),
                 (HEAD, "__device__ void where(unsigned &to, const float *p) { to = __cvta_generic_to_shared(p); }\n" + HEAD),
                 (INNER, "        if (k0 == 0) where(at, &As[ty][0]);\n" + INNER), **refuse("not_understood", "if (k0 == 0) where"))  # fmt: skip
    yield scalar("an address is used at once", (INNER, "        unsigned at = __cvta_generic_to_shared(&As[ty][0]);\n        float first;\n"
                  '        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at));\n        sum += first;\n' + INNER))  # fmt: skip
    yield scalar("an address is swizzled", (INNER, "        unsigned at = __cvta_generic_to_shared(&As[ty][0]) ^ 4;\n        float first;\n"
                  '        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at));\n        sum += first;\n' + INNER),
                 **refuse("not_understood", "^ 4"))  # fmt: skip
    yield scalar("continue in the compute phase's own loop", (MATH, "            if (k == 3) continue;\n" + MATH))
    yield scalar("break out of the K-loop", (INNER, "        if (K < 0) break;\n" + INNER), **refuse("not_understood", "break;"))
    yield scalar("return from the compute phase", (INNER, "        if (K < 0) return;\n" + INNER), **refuse("not_understood", "return;"))
    yield scalar("lambda in the compute phase", (MATH, "            auto add = [&](float x) { sum += x; };\n            add(As[ty][k] * Bs[k][tx]);\n"),
                 **refuse("not_understood", "auto add"))  # fmt: skip
    yield scalar("method in the compute phase", (HEAD, "struct Sum { float v = 0; __device__ void add(float x) { v += x; } };\n" + HEAD),
                 (BEFORE, BEFORE + "    Sum s;\n"), (MATH, "            s.add(As[ty][k] * Bs[k][tx]);\n"), **refuse("not_understood", "s.add"))  # fmt: skip
    yield scalar("function in the compute phase", (HEAD, "__device__ void mad(float &to, float a, float b) { to += a * b; }\n" + HEAD),
                 (MATH, "            mad(sum, As[ty][k], Bs[k][tx]);\n"))  # fmt: skip
    yield scalar("recursive function", (HEAD, "__device__ void f(int n) { if (n) f(n - 1); }\n" + HEAD), (MATH, MATH + "            f(k);\n"),
                 **refuse("not_understood", "            f(k)", False))  # fmt: skip
    yield scalar("array of registers through a row", (BEFORE, BEFORE + "    float acc[2][2] = {};\n"),
                 (MATH, "            float (&one)[2] = acc[k & 1];\n            one[0] += As[ty][k] * Bs[k][tx];\n"),
                 (STORE, "        C[row * N + col] = acc[0][0] + acc[1][0];\n"))  # fmt: skip
    yield scalar("global read in the compute phase", (MATH, MATH.replace("sum +=", "sum += A[0] *")))


def tiles() -> Iterator[Attack]:
    """Where tiles live, and what else is done with the arrays."""
    yield scalar("array used behind the loop", ("    if (row", "    As[ty][tx] = sum;\n    __syncthreads();\n    sum = As[tx][ty];\n    if (row"),
                 without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"})  # fmt: skip
    yield scalar("array used in front of the loop", (BEFORE, BEFORE + "    As[ty][tx] = 1.0f;\n    __syncthreads();\n    sum = As[tx][ty];\n    __syncthreads();\n"),
                 without={LDG: "loop_carried_shared", ASYNC: "loop_carried_shared"})  # fmt: skip
    yield scalar("other array written behind the loop", ("    __shared__ float Bs", "    __shared__ float table[TILE];\n    __shared__ float Bs"),
                 (BEFORE, BEFORE + "    if (ty == 0) table[tx] = tx;\n    __syncthreads();\n"), (MATH, MATH.replace("sum +=", "sum += table[k] *")),
                 ("    if (row", "    if (ty == 0) table[tx] = 99.0f;\n    __syncthreads();\n    sum += table[ty];\n    if (row"))  # fmt: skip
    yield scalar("result stored into what compute reads", (MATH, MATH.replace("sum +=", "sum += C[0] *")), ("C[row * N + col] = sum", "C[row * N + col] = sum * 0.5f"),
                 values=False)  # fmt: skip
    yield scalar("hand-made ring with two barriers", ("As[TILE][TILE]", "As[2][TILE][TILE]"), (LOAD_A, LOAD_A.replace("As[ty]", "As[k0 / TILE % 2][ty]")),
                 (MATH, MATH.replace("As[ty]", "As[(k0 / TILE + 1) % 2][ty]")), **refuse("already_pipelined", "As[k0 / TILE % 2][ty][tx] =", False))  # fmt: skip
    yield scalar("toggled buffer with two barriers", ("As[TILE][TILE]", "As[2][TILE][TILE]"), (BEFORE, BEFORE + "    int b = 0;\n"),
                 (LOAD_A, LOAD_A.replace("As[ty]", "As[b][ty]")), (MATH, MATH.replace("As[ty]", "As[b][ty]")), (SECOND_BARRIER, "        }\n        b ^= 1;\n        __syncthreads();\n    }\n"),
                 **refuse("not_understood", "As[b][ty][tx]"))  # fmt: skip
    yield scalar("tiles pile up", ("As[TILE][TILE]", "As[TILE][4 * TILE]"), (LOAD_A, LOAD_A.replace("As[ty][tx]", "As[ty][k0 + tx]")),
                 (MATH, MATH.replace("As[ty][k]", "As[ty][k0 + k]")), **refuse("loop_carried_shared", "As[ty][k0 + tx]", False))  # fmt: skip
    yield scalar("partial fill", (LOAD_A, "        for (int i = tx; i < min(TILE, K - k0); i += TILE) As[ty][i] = A[min(row, M - 1) * K + k0 + i];\n"),
                 **refuse("loop_carried_shared", "for (int i = tx"))  # fmt: skip
    yield scalar("if without else", (LOAD_A, "        if (row < M && k0 + tx < K) As[ty][tx] = A[row * K + k0 + tx];\n"), **refuse("not_understood", "if (row < M && k0", False))
    yield scalar("some threads load", (LOAD_A, "        if (ty < TILE) {\n" + LOAD_A + "        }\n"), **refuse("not_understood", "if (ty < TILE)"))
    yield scalar("if with else", (LOAD_A, "        if (row < M && k0 + tx < K) {\n            As[ty][tx] = A[row * K + k0 + tx];\n        } else {\n            As[ty][tx] = 0.0f;\n        }\n"))
    yield scalar("if with else, inverted", (LOAD_A, "        if (row >= M || k0 + tx >= K) As[ty][tx] = 0.0f;\n        else As[ty][tx] = A[row * K + k0 + tx];\n"))
    yield scalar("if and else store elsewhere", (LOAD_A, "        if (row < M && k0 + tx < K) As[ty][tx] = A[row * K + k0 + tx];\n        else As[tx][ty] = 0.0f;\n"),
                 **refuse("not_understood", "if (row < M && k0", False))  # fmt: skip
    yield scalar("fill that is not zero", (LOAD_A, LOAD_A.replace(": 0.0f", ": -0.0f")), (LOAD_B, LOAD_B.replace(": 0.0f", ": 1.5f")))
    yield scalar("fill from a constant", (HEAD, "constexpr float FILL = 0.7f;\n" + HEAD), (LOAD_A, LOAD_A.replace(": 0.0f", ": FILL")))
    yield scalar("fill from a function", (HEAD, "__device__ float make_fill(float x) { return x + 1.0f; }\n" + HEAD),
                 (LOAD_A, LOAD_A.replace(": 0.0f", ": make_fill(0.0f)")), without={ASYNC: "converts_type"})  # fmt: skip
    yield scalar("fill of the thread", (LOAD_A, LOAD_A.replace(": 0.0f", ": tx * 1.0f")))
    yield scalar("inverted guard", (LOAD_A, "        As[ty][tx] = (row >= M || k0 + tx >= K) ? 0.0f : A[row * K + k0 + tx];\n"))
    yield scalar("nested guards", (LOAD_A, "        As[ty][tx] = row < M ? (k0 + tx < K ? A[row * K + k0 + tx] : 0.0f) : 0.0f;\n"), without={ASYNC: "converts_type"})
    yield scalar("guard that loads", (LOAD_A, LOAD_A.replace("row < M", "A[0] < 9.0f && row < M")))
    yield scalar("guard with ||", (LOAD_A, LOAD_A.replace("k0 + tx < K)", "k0 + tx < K && (tx < TILE || K < 0))")))
    yield scalar("two copies, one place", (LOAD_A, LOAD_A + "        As[ty][tx] = (row < M && k0 + tx < K) ? B[0] : 0.0f;\n"), without={ASYNC: "not_understood"})
    yield scalar("two copies, two places", ("As[TILE][TILE]", "As[TILE][2 * TILE]"), (LOAD_A, LOAD_A + "        As[ty][tx + TILE] = B[0];\n"),
                 (MATH, MATH.replace("As[ty][k]", "As[ty][k] * As[ty][k + TILE]")))  # fmt: skip
    yield scalar("computed on the way", (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "2.0f * A[row * K + k0 + tx]")), without={ASYNC: "converts_type"})
    yield scalar("two sources", (LOAD_A, "        As[ty][tx] = k0 + tx < K && row < M ? A[row * K + k0 + tx] + B[0] : 0.0f;\n"), without={ASYNC: "converts_type"})
    yield scalar("not from global memory", (LOAD_A, LOAD_A + "        Bs[0][0] = 0.0f;\n"), **refuse("not_understood", "Bs[0][0] = 0.0f", False))
    yield scalar("from registers through a pointer", (BEFORE, BEFORE + "    float mine[2] = {1.0f, 2.0f};\n    const float *p = mine;\n"),
                 (LOAD_A, "        As[ty][tx] = p[tx & 1];\n"), **refuse("not_understood", "p[tx & 1]"))  # fmt: skip
    yield scalar("from shared memory through a pointer", (BEFORE, BEFORE + "    const float *p = A;\n    if (K < 0) p = &Bs[0][0];\n"),
                 (LOAD_A, LOAD_A.replace("A[row", "p[row")), **refuse("not_understood", "p[row"))  # fmt: skip
    yield scalar("through another pointer", (BEFORE, BEFORE + "    const float *p = A + row * K;\n"), (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "p[k0 + tx]")))
    yield scalar("through a pointer of the load phase", (LOAD_A, "        const float *p = A + row * K + k0;\n" + LOAD_A.replace("A[row * K + k0 + tx]", "p[tx]")))
    yield scalar("through a pointer, dereferenced", (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "*(A + row * K + k0 + tx)")))
    yield scalar("__ldg", (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "__ldg(&A[row * K + k0 + tx])")))
    yield scalar("volatile pointer", (PARAMS, PARAMS.replace("const float *A", "const volatile float *A")), **refuse("not_understood", "As[ty][tx] ="))
    yield scalar("volatile tile", ("__shared__ float As", "volatile __shared__ float As"), **refuse("not_understood", "As[ty][tx] ="))
    yield scalar("volatile cast", (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "*(const volatile float *)&A[row * K + k0 + tx]")),
                 **refuse("not_understood", "As[ty][tx] ="))  # fmt: skip
    yield scalar("index changed on the way", (BEFORE, BEFORE + "    int n = 0;\n"), (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * n++]")),
                 **refuse("not_understood", "n++"))  # fmt: skip
    yield scalar("index changed in a declaration", (BEFORE, BEFORE + "    int n = 0;\n"), (LOAD_A, "        int m = n++;\n" + LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * m]")),
                 **refuse("not_understood", "n++"))  # fmt: skip
    yield scalar("index changed by a function", (HEAD, "__device__ int next(int &i) { return i++; }\n" + HEAD), (BEFORE, BEFORE + "    int n = 0;\n"),
                 (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * next(n)]")), **refuse("not_understood", "next(n)"))  # fmt: skip
    yield scalar("comma", (LOAD_A, LOAD_A.replace(": 0.0f", ": (tx, 0.0f)")), **refuse("not_understood", "(tx, 0.0f)"))
    yield scalar("index from a tile", ("    __shared__ float Bs", "    __shared__ int table[TILE * TILE];\n    __shared__ float Bs"),
                 (PARAMS, PARAMS), (LOAD_A, "        table[ty * TILE + tx] = reinterpret_cast<const int *>(A)[0];\n" + LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * table[ty * TILE + tx]]")),
                 **refuse("loop_carried_shared", "table[ty * TILE + tx]]", False))  # fmt: skip
    yield scalar("index from a constant table", ("    __shared__ float Bs", "    __shared__ int table[TILE];\n    __shared__ float Bs"),
                 (BEFORE, BEFORE + "    if (ty == 0) table[tx] = tx;\n    __syncthreads();\n"), (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + table[tx]]")))  # fmt: skip
    yield scalar("gathered", (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * int(B[0])]")))
    yield scalar("dynamic shared memory", ("__shared__ float As[TILE][TILE]", "extern __shared__ float As[]"), (LOAD_A, LOAD_A.replace("As[ty][tx]", "As[ty * TILE + tx]")),
                 (MATH, MATH.replace("As[ty][k]", "As[ty * TILE + k]")), **refuse("not_understood", "extern __shared__", False))  # fmt: skip
    yield scalar("declared in the loop", ("    __shared__ float Bs[TILE][TILE];\n", ""), (LOOP, LOOP + "        __shared__ float Bs[TILE][TILE];\n"),
                 **refuse("not_understood", "__shared__ float Bs"))  # fmt: skip
    yield scalar("two arrays in one statement", ("    __shared__ float Bs[TILE][TILE];\n", ""), ("As[TILE][TILE];", "As[TILE][TILE], Bs[TILE][TILE];"))
    yield scalar("two statements on one line", ("    __shared__ float As[TILE][TILE];\n    __shared__", "    __shared__ __align__(16) float As[TILE][TILE]; __shared__"))
    yield scalar("alignment in front", ("    __shared__ float As", "    alignas(16) __shared__ float As"))
    yield scalar("alignment too small", ("    __shared__ float As", "    __shared__ __align__(4) float As"),
                 without={LDG: "misaligned", SINGLE: "misaligned", ASYNC: "misaligned"})  # fmt: skip
    yield scalar("alignment not understood", ("    __shared__ float As", "    alignas(float4) __shared__ float As"),
                 without={LDG: "misaligned", SINGLE: "misaligned", ASYNC: "misaligned"})  # fmt: skip
    yield scalar("a stage that is no multiple of 16 bytes", ("As[TILE][TILE]", "As[TILE][TILE + 1]"))
    yield scalar("an odd stage", ("As[TILE][TILE]", "As[TILE + 1][TILE + 1]"), without={LDG: "misaligned", ASYNC: "misaligned"})
    yield scalar("a name that is taken", (HEAD, "__device__ int stage, STAGES, copy_tile, As_ring, k0_ahead, has_next, first;\n" + HEAD))
    yield scalar("shadowed in the compute phase", (MATH, "            float row = As[ty][k];\n            sum += row * Bs[k][tx];\n"))
    yield scalar("shadowed in the load phase", (LOAD_A, "        int col = k0 + tx;\n" + LOAD_A.replace("k0 + tx", "col")), (LOAD_B, LOAD_B.replace("col", "(blockIdx.x * TILE + tx)")))
    yield scalar("alias in the load phase", (LOAD_A, "        using T = float;\n" + LOAD_A.replace(": 0.0f", ": T(0)")), **refuse("not_understood", "T(0)"))
    yield scalar("braces around a copy", (LOAD_A, "        {\n" + LOAD_A + "        }\n"))
    yield scalar("tabs", ("    ", "\t"))
    yield scalar("UTF-8 in comments", (LOAD_A, "        // Ä ∑ 矩阵\n" + LOAD_A.replace("\n", "  // größer als M·K\n")))


def macros() -> Iterator[Attack]:
    """Text that is not what it looks like."""
    yield scalar("index macro", (HEAD, "#define AT(i, j) A[(i) * K + (j)]\n" + HEAD), (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "AT(row, k0 + tx)")))
    yield scalar("tile macro", (HEAD, "#define TA(i, j) As[i][j]\n" + HEAD), (LOAD_A, LOAD_A.replace("As[ty][tx]", "TA(ty, tx)")), (MATH, MATH.replace("As[ty][k]", "TA(ty, k)")))
    yield scalar("guard in a macro", (HEAD, "#define LOAD(p, ok) ((ok) ? *(p) : 0.0f)\n" + HEAD),
                 (LOAD_A, "        As[ty][tx] = LOAD(A + row * K + k0 + tx, row < M && k0 + tx < K);\n"), without={ASYNC: "converts_type"})  # fmt: skip
    yield scalar("statement macro", (HEAD, "#define COPY(to, from) to = from\n" + HEAD),
                 (LOAD_A, "        COPY(As[ty][tx], A[min(row * K + k0 + tx, M * K - 1)]);\n"), **refuse("not_understood", "        COPY("))  # fmt: skip
    yield scalar("open macro as a divisor", (HEAD, "#define HALF TILE / 2\n" + HEAD), (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 / HALF]")),
                 **refuse("not_understood", "/ HALF"))  # fmt: skip
    yield scalar("open macro as a start", (HEAD, "#define START 0 + 0\n" + HEAD), ("int k0 = 0;", "int k0 = START;"))
    yield scalar("open macro as a step", (HEAD, "#define STEP TILE / 2 + TILE / 2\n" + HEAD), ("k0 += TILE", "k0 += STEP"))
    yield scalar("macro of a header", (HEAD, '#include "step.cuh"\n' + HEAD), ("k0 += TILE", "k0 += STEP"), values=False)
    yield scalar("macro defined twice", (HEAD, "#if 0\n#define AT(i) A[i]\n#else\n#define AT(i) A[(i)]\n#endif\n" + HEAD),
                 (LOAD_A, LOAD_A.replace("A[row * K + k0 + tx]", "AT(row * K + k0 + tx)")), **refuse("not_understood", "AT(row"))  # fmt: skip
    yield scalar("macro and variable", (HEAD, "#define tx threadIdx.x\n" + HEAD), ("    int tx = threadIdx.x;\n", ""))
    yield scalar("macro with a side effect", (HEAD, "#define NEXT(i) (i)++\n" + HEAD), (BEFORE, BEFORE + "    int n = 0;\n"),
                 (LOAD_A, LOAD_A.replace("k0 + tx]", "k0 + tx + 0 * NEXT(n)]")), **refuse("not_understood", "NEXT(n)]"))  # fmt: skip
    yield scalar("file constant with a namesake", (HEAD, "constexpr int WIDE = 8;\n" + HEAD), (BEFORE, "    const int WIDE = 2 * TILE;\n" + BEFORE),
                 ("As[TILE][TILE]", "As[TILE][TILE]"))  # fmt: skip


def vectors() -> Iterator[Attack]:
    """Registers and pointers that move."""
    lane0 = "        As[(a_col + 0) * BM + a_row] = tmp.x;\n"
    yield vector("as it is")
    yield vector("bumps in the load phase", ("        __syncthreads();\n        A += BK;\n        B += BK * N;\n", "        A += BK;\n        B += BK * N;\n        __syncthreads();\n"))
    yield vector("bump between load and store", ("        As[(a_col + 0)", "        A += BK;\n        As[(a_col + 0)"), ("        __syncthreads();\n        A += BK;\n", "        __syncthreads();\n"))
    yield vector("guard bumped between load and store", ("float sum[4][4] = {};\n", "float sum[4][4] = {};\n    int at = 0;\n"),
                 ("float4 tmp = CONST4(A[a_row * K + a_col]);\n", "float4 tmp = at < K ? CONST4(A[a_row * K + a_col]) : make_float4(0, 0, 0, 0);\n        at += BK;\n"),
                 **refuse("not_understood", "= tmp.x;"))  # fmt: skip
    yield vector("guarded register", ("float4 tmp = CONST4(A[a_row * K + a_col]);\n", "float4 tmp = k + 4 < K ? CONST4(A[a_row * K + a_col]) : make_float4(0, 0, 0, 0);\n"))
    yield vector("guarded register, other fill", ("float4 tmp = CONST4(A[a_row * K + a_col]);\n", "float4 tmp = k + 8 < K ? CONST4(A[a_row * K + a_col]) : make_float4(1, 2, 3, 4);\n"))
    yield vector("lane computed", (lane0, lane0.replace("tmp.x", "tmp.x * 2.0f")), **refuse("not_understood", "tmp.x * 2.0f"))
    yield vector("lane converted", (lane0, lane0.replace("tmp.x", "(float)(int)tmp.x")), **refuse("not_understood", "(int)tmp.x"))
    yield vector("lane stored twice", (lane0, lane0 + lane0.replace("tmp.x", "tmp.y")), without={ASYNC: "not_understood"})
    yield vector("fix-up of a lane", ("        __syncthreads();\n        A +=", "        Bs[b_row * BN + b_col] = B[b_row * N + b_col + 1];\n        __syncthreads();\n        A +="),
                 without={ASYNC: "not_understood"})  # fmt: skip
    yield vector("register and outer namesake", ("    float sum[4][4] = {};\n", "    float sum[4][4] = {};\n    float4 tmp = {};\n"),
                 ("sum[i][j] += As", "sum[i][j] += (k < 0 ? tmp.x : 1.0f) * As"), **refuse("not_understood", "k < 0 ? tmp"))  # fmt: skip
    yield vector("bumps with a local", ("        A += BK;\n", "        int step = BK;\n        A += step;\n"), **refuse("not_understood", "A += step"))
    yield vector("bump used behind the loop", ("    float sum[4][4] = {};\n", "    float sum[4][4] = {};\n    int n = 0;\n"),
                 ("        A += BK;\n", "        A += BK;\n        n += 1;\n"), ("A[a_row * K + a_col]", "A[a_row * K + a_col + 0 * n]"),
                 ("    for (int i = 0; i < 4; ++i) {\n        FLOAT4", "    sum[0][0] += n;\n    for (int i = 0; i < 4; ++i) {\n        FLOAT4"))  # fmt: skip
    yield vector("copy cast by C", ("FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);", "(float4 &)Bs[b_row * BN + b_col] = (const float4 &)B[b_row * N + b_col];"))
    yield vector("copy in a loop of its own", ("        FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);\n",
                 "        for (int i = 0; i < 2; ++i)\n            reinterpret_cast<float2 *>(Bs)[tid + i * 64] =\n"
                 "                *reinterpret_cast<const float2 *>(&B[(tid + i * 64) / 16 * N + (tid + i * 64) % 16 * 2]);\n"))  # fmt: skip
    yield vector("overlapping passes", ("        FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);\n",
                 "        for (int i = 0; i < 2; ++i)\n            FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[(b_row + i - i) * N + b_col]);\n"),
                 without={ASYNC: "not_understood"})  # fmt: skip
    yield vector("registers in a copy loop", ("        float4 tmp = CONST4(A[a_row * K + a_col]);\n", "        for (int i = 0; i < 1; ++i) {\n        float4 tmp = CONST4(A[(a_row + i) * K + a_col]);\n"),
                 ("a_row] = tmp.x", "a_row + i] = tmp.x"), ("a_row] = tmp.y", "a_row + i] = tmp.y"), ("a_row] = tmp.z", "a_row + i] = tmp.z"),
                 ("a_row] = tmp.w;\n", "a_row + i] = tmp.w;\n        }\n"))  # fmt: skip
    yield vector("half to float", ("#define BM 32", "#include <cuda_fp16.h>\n#define BM 32"), ("    float sum[4][4] = {};\n", "    float sum[4][4] = {};\n    const half *H = reinterpret_cast<const half *>(B);\n"),
                 ("FLOAT4(Bs[b_row * BN + b_col]) = CONST4(B[b_row * N + b_col]);", "for (int i = tid; i < BK * BN; i += 64) Bs[i] = H[i];"),
                 without={ASYNC: "converts_type"}, values=False)  # fmt: skip


def widened() -> Iterator[Attack]:
    """Byte-wise loops that become loops over vectors."""
    copy_a = "As[i] = (row0 + row < M && k0 + col < K) ? A[(row0 + row) * K + k0 + col] : 0;"
    loop_a = "for (int i = tid; i < BM * BK; i += THREADS) {\n            int row = i / BK;"
    narrow = {ASYNC: "not_contiguous"}
    yield byte("as it is")
    yield byte("shifts and masks", ("int row = i / BK;\n            int col = i % BK;", "int row = i >> 5;\n            int col = i & 31;"))
    yield byte("one statement", ("            int row = i / BK;\n            int col = i % BK;\n", ""), (copy_a, copy_a.replace("row0 + row", "row0 + i / BK").replace("k0 + col", "k0 + i % BK")))
    yield byte("without braces", (loop_a + "\n            int col = i % BK;\n            " + copy_a + "\n        }",
               "for (int i = tid; i < BM * BK; i += THREADS)\n            " + copy_a.replace("row0 + row", "row0 + i / BK").replace("k0 + col", "k0 + i % BK")))  # fmt: skip
    yield byte("unsigned index", (loop_a, loop_a.replace("int i = tid", "unsigned i = tid")))
    yield byte("guard that wraps", (copy_a, "As[i] = (row0 + row < M && (unsigned)(k0 + col - 3) < (unsigned)K) ? A[(row0 + row) * K + k0 + col - 3] : 0;"))
    yield byte("unsigned guard that wraps", ("int col = i % BK;\n            As", "unsigned col = k0 + i % BK - 3;\n            As"),
               (copy_a, "As[i] = (row0 + row < M && col < K) ? A[(row0 + row) * K + col] : 0;"))  # fmt: skip
    yield byte("shifted guard", (copy_a, copy_a.replace("k0 + col < K", "(k0 + col << 1) < 2 * K")))
    yield byte("guard the other way round", (copy_a, copy_a.replace("row0 + row < M && k0 + col < K", "M > row0 + row && K - 1 >= k0 + col")))
    yield byte("guard with ||", (copy_a, copy_a.replace("k0 + col < K)", "k0 + col < K && (col < BK || K < 0))")), without=narrow)
    yield byte("guard from below", (copy_a, copy_a.replace("k0 + col < K)", "(k0 + col >= 0) && (k0 + col < K))")), without=narrow)
    yield byte("comparisons like a template", (copy_a, copy_a.replace("k0 + col < K)", "k0 + col >= 0 && k0 + col < K)")), **refuse("not_understood", "As[i] ="))
    yield byte("guard on the remainder", (copy_a, copy_a.replace("k0 + col < K)", "k0 + col < K && col % 5 < 4)")), without=narrow)
    yield byte("inverted guard", (copy_a, "As[i] = (row0 + row >= M || k0 + col >= K) ? 0 : A[(row0 + row) * K + k0 + col];"), without=narrow)
    yield byte("thread in the guard", (copy_a, copy_a.replace("row0 + row < M", "row0 + row < M && tid < 60")), without=narrow)
    yield byte("thread in the source", (copy_a, copy_a.replace("k0 + col]", "k0 + col + 0 * tid]")), without=narrow)
    yield byte("thread in the fill", (copy_a, copy_a.replace(": 0;", ": tid;")), without=narrow)
    yield byte("thread in a local", ("int col = i % BK;\n            As", "int col = i % BK;\n            int lane = threadIdx.x & 0;\n            As"), (copy_a, copy_a.replace("k0 + col]", "k0 + col + lane]")), without=narrow)
    yield byte("index in a byte", ("int row = i / BK;\n            int col = i % BK;", "int row = i / BK;\n            uint8_t col = i % BK;"), without=narrow)
    yield byte("index in a float", ("int row = i / BK;\n            int col = i % BK;", "int row = i / BK;\n            float at = i % BK;\n            int col = at;"), without=narrow)
    yield byte("transposed", (copy_a, copy_a.replace("As[i]", "As[col * BM + row]")), ("As[r * BK + k]", "As[k * BM + r]"), without=narrow)
    yield byte("swizzled", (copy_a, copy_a.replace("As[i]", "As[i ^ 1]")), ("As[r * BK + k]", "As[(r * BK + k) ^ 1]"), without=narrow)
    yield byte("padded rows", ("Bs[BK][BN]", "Bs[BK][BN + 16]"))
    yield byte("oddly padded rows", ("Bs[BK][BN]", "Bs[BK][BN + 4]"), without=narrow)
    yield byte("strided source", (copy_a, "As[i] = (row0 + row < M && k0 + col < K) ? A[(row0 + row) * K + (k0 + col) / 2 * 2] : 0;"), without=narrow)
    yield byte("clamped source", (copy_a, "As[i] = (row0 + row < M && k0 + col < K) ? A[min((row0 + row) * K + k0 + col, M * K - 1)] : 0;"), without=narrow)
    yield byte("stride that is not the block", (loop_a, loop_a.replace("i += THREADS", "i += 2 * THREADS")), without=narrow)
    yield byte("starts elsewhere", (loop_a, loop_a.replace("int i = tid;", "int i = tid ^ 1;")), without={LDG: "not_understood", SINGLE: "not_understood", **narrow})
    yield byte("does not start at the thread", (loop_a, loop_a.replace("int i = tid;", "int i = tid + 0 * row0;")))
    yield byte("twice per iteration", (copy_a, copy_a + "\n            Bs[0][0] = A[0];"), without=narrow, values=False)
    yield byte("bound from a parameter", (loop_a, loop_a.replace("i < BM * BK", "i < BM * BK + 0 * M")), without={LDG: "not_understood", SINGLE: "not_understood", **narrow})
    yield byte("index advanced in the body", (copy_a, copy_a + "\n            i += 0;"), **refuse("not_understood", "i += 0"))
    yield byte("downwards", (loop_a, "for (int i = BM * BK - 1 - tid; i >= 0; i -= THREADS) {\n            int row = i / BK;"), **refuse("not_understood", "i -= THREADS"))
    yield byte("continue in the copy loop", (copy_a, "if (K < 0) continue;\n            " + copy_a), **refuse("not_understood", "continue"))
    yield byte("nested copy loops", (loop_a, "for (int row = tid / BK; row < BM; row += THREADS / BK) {\n          for (int i = row * BK + tid % BK; i < row * BK + tid % BK + 1; ++i) {"),
               (copy_a + "\n        }", copy_a + "\n        }}"), **refuse("not_understood", "for (int i = row"))  # fmt: skip
    yield byte("pragma on the copy loop", ("        " + loop_a, "        #pragma unroll 4\n        " + loop_a))
    yield byte("constant that the copy relies on, twice", ("constexpr int BN = 32;", "constexpr int BN = 32;\nnamespace other { constexpr int BK = 16; }"),
               **refuse("not_understood", "__syncthreads();  // both"))  # fmt: skip
    yield byte("integer fill through float", (copy_a, copy_a.replace(": 0;", ": 0.0f;")), without={ASYNC: "converts_type"})
    yield byte("odd tile", ("constexpr int BK = 32;", "constexpr int BK = 24;"), without=narrow)


ATTACKS = tuple(
    a for group in (k_loops, early_returns, phases, tiles, macros, vectors, widened) for a in group()
)
