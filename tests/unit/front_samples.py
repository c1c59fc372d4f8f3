"""Load phases behind functions and macros: small kernels, all of one product C = A B, in many ways of writing it."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.front import front
from tilewright.normalise.result import Normalised
from tilewright.normalise.run import normalise
from tilewright.source.device_view import device_view
from tilewright.source.headers import own_headers
from tilewright.source.reader import OpenKernel, open_kernel, read_source

FRAME = """#include <cuda_runtime.h>
#define TILE 16
{head}
__global__ void k(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C, int M, int N, int K)
{{
    {arrays}
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    {header}
    {{
{load}
{compute}
    }}
    if (row < M && col < N) C[row * N + col] = sum;
}}
"""
COMPUTE = """        {barrier}
        for (int q = 0; q < TILE; ++q) {{
            sum += {product};
        }}
        {barrier}"""
ARRAYS = "__shared__ float As[TILE][TILE];\n    __shared__ float Bs[TILE][TILE];"
FLAT = "__shared__ float As[TILE * TILE];\n    __shared__ float Bs[TILE * TILE];"
HEADER = "for (int k0 = 0; k0 < K; k0 += TILE)"
PRODUCT = "As[ty][q] * Bs[q][tx]"
FLAT_PRODUCT = "As[ty * TILE + q] * Bs[q * TILE + tx]"
PLAIN = """        As[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;"""


@dataclass(frozen=True)
class Sample:
    """One kernel; ``left``: words that the normalised kernel must not hold, ``headers``: files beside it."""

    name: str
    head: str
    load: str = PLAIN
    arrays: str = ARRAYS
    header: str = HEADER
    barrier: str = "__syncthreads();"
    product: str = PRODUCT
    left: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    tail: str = ""
    kernel: str = "k"

    @property
    def text(self) -> str:
        compute = COMPUTE.format(barrier=self.barrier, product=self.product) if self.barrier else ""
        return (
            FRAME.format(head=self.head, arrays=self.arrays, header=self.header, load=self.load, compute=compute)
            + self.tail
        )


def sample(name: str, head: str, load: str = PLAIN, **more: object) -> Sample:
    return replace(Sample(name, head, load), **more)  # type: ignore[arg-type]


def flat(name: str, head: str, load: str, **more: object) -> Sample:
    return sample(name, head, load, **{"arrays": FLAT, "product": FLAT_PRODUCT, **more})


LOAD_ROW = """
__device__ __forceinline__ void load_row(float *tile, const float *src, int r, int c, int rows, int cols, int ld)
{
    // one element a thread
    const int at = threadIdx.y * TILE + threadIdx.x;
    tile[at] = (r < rows && c < cols) ? src[r * ld + c] : 0.0f;
}
"""
CALLS = """        load_row(As, A, row, k0 + tx, M, K, K);
        load_row(Bs, B, k0 + ty, col, K, N, N);"""

ACCEPTED = (
    flat("a helper for each tile", LOAD_ROW, CALLS, left=("load_row(As",)),
    flat("a helper in a namespace", f"namespace io {{ constexpr float nothing = 0.0f; {LOAD_ROW.replace('0.0f', 'nothing')} }}", CALLS.replace("load_row", "io::load_row"), left=("load_row(As",)),
    sample(
        "a template with an array reference",
        """template <typename T, int R, int W>
__device__ void fill(T (&tile)[R][W], const T *src, int r, int c, int rows, int cols)
{
    static_assert(R == W, "square");
    tile[threadIdx.y][threadIdx.x] = (r < rows && c < cols) ? src[r * cols + c] : T(0);
}
""",
        "        fill(As, A, row, k0 + tx, M, K);\n        fill(Bs, B, k0 + ty, col, K, N);",
        left=("fill(As",),
    ),
    sample(
        "array parameters, brace initialisation, defaults",
        """template <typename T, size_t BY, size_t BX, size_t SKEW = 0U>
__device__ void fill(T tile[BY][BX + SKEW], T const *src, size_t r, size_t c, size_t rows, size_t cols, T none = T(0))
{
    size_t const y{threadIdx.y};
    size_t const x{threadIdx.x};
    tile[y][x] = (r < rows && c < cols) ? src[r * cols + c] : none;
}
""",
        "        fill<float, TILE, TILE>(As, A, row, k0 + tx, M, K);\n        fill<float, TILE, TILE>(Bs, B, k0 + ty, col, K, N);",
        left=("fill<",),
    ),
    sample(
        "one helper for both, with template arguments of another type",
        """template <const int BM, const int STEP>
__device__ void both(const float *A, const float *B, float (*a)[TILE], float (*b)[TILE], int row, int col, int k, int M, int N, int K)
{
    const int tx = threadIdx.x, ty = threadIdx.y;
    for (int i = 0; i < BM; i += STEP) {
        a[ty + i][tx] = (row < M && k + tx < K) ? A[row * K + k + tx] : 0.0f;
        b[ty + i][tx] = (k + ty < K && col < N) ? B[(k + ty) * N + col] : 0.0f;
    }
}
constexpr unsigned WHOLE = 16;
""",
        "        both<TILE, WHOLE>(A, B, As, Bs, row, col, k0, M, N, K);",
        left=("both<",),
    ),
    sample(
        "expression helpers",
        """__device__ float load_or_zero(const float *p, int r, int c, int rows, int cols) { return (r < rows && c < cols) ? p[r * cols + c] : 0.0f; }
__device__ float &at(float (&t)[TILE][TILE], int y, int x) { return t[y][x]; }
""",
        "        at(As, ty, tx) = load_or_zero(A, row, k0 + tx, M, K);\n        at(Bs, ty, tx) = load_or_zero(B, k0 + ty, col, K, N);",
        left=("load_or_zero(A", "at(As"),
    ),
    sample(
        "a helper that returns early",
        """__device__ float load_or_zero(const float *p, int r, int c, int rows, int cols)
{
    if (r >= rows) return 0;
    if (c < cols) {
        return p[r * cols + c];  // inside
    } else {
        return 0.0f;
    }
}
""",
        "        As[ty][tx] = load_or_zero(A, row, k0 + tx, M, K);\n        Bs[ty][tx] = 1.0f * load_or_zero(B, k0 + ty, col, K, N) + 0.0f;",
        left=("load_or_zero(A", "load_or_zero(B"),
    ),
    flat(
        "a store helper",
        "__device__ void put(float *p, float v) { *p = v; }\n",
        """        put(&As[ty * TILE + tx], (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f);
        put(Bs + ty * TILE + tx, (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f);""",
        left=("put(&", "put(Bs"),
    ),
    flat(
        "an early return",
        """__device__ void load(float *tile, const float *src, int ld, int r, int c, bool takes_part)
{
    if (!takes_part) return;
    tile[threadIdx.y * TILE + threadIdx.x] = src[r * ld + c];
}
""",
        """        load(As, A, K, row, k0 + tx, true);
        load(Bs, B, N, k0 + ty, col, true);""",
        left=("load(As",),
    ),
    flat("a helper in a header", '#include "loads.cuh"\n', CALLS, left=("load_row(As",), headers=(("loads.cuh", f"#ifndef L\n#define L\n{LOAD_ROW}\n#endif\n"),)),
    sample(
        "a helper that calls another",
        """namespace io {
__device__ float take(const float *p, int i) { return p[i]; }
__device__ void fill(float (&t)[TILE][TILE], const float *p, bool inside, int i)
{
    t[threadIdx.y][threadIdx.x] = inside ? take(p, i) : 0.0f;
}
}
""",
        """        io::fill(As, A, row < M && k0 + tx < K, row * K + k0 + tx);
        io::fill(Bs, B, k0 + ty < K && col < N, (k0 + ty) * N + col);""",
        left=("fill(As", "take(A"),
    ),
    flat(
        "names of its namespaces",
        """namespace io { constexpr float none = 1.0f; using word = float;
namespace deep { constexpr float none = 0.0f; __device__ word take(const word *p, int i) { return p[i]; }
__device__ void load(word *tile, const word *p, bool inside, int i) { tile[threadIdx.y * TILE + threadIdx.x] = inside ? take(p, i) : none; }
} }
""",
        """        io::deep::load(As, A, row < M && k0 + tx < K, row * K + k0 + tx);
        io::deep::load(Bs, B, k0 + ty < K && col < N, (k0 + ty) * N + col);""",
        left=("load(As", "take(A"),
    ),
    sample(
        "names that meet",
        """__device__ void fill(float (&t)[TILE][TILE], const float *A, int tx, int row, int rows, int cols)
{
    const int ty = threadIdx.y;
    const int col = tx;
    t[ty][threadIdx.x] = (row < rows && col < cols) ? A[row * cols + col] : 0.0f;
}
""",
        "        fill(As, A, k0 + tx, row, M, K);\n        fill(Bs, B, col, k0 + ty, K, N);",
        left=("fill(As",),
    ),
    sample("a helper with both barriers", """__device__ void step(float (&a)[TILE][TILE], float (&b)[TILE][TILE], const float *A, const float *B, float &sum, int row, int col, int k, int M, int N, int K)
{
    const int tx = threadIdx.x, ty = threadIdx.y;
    a[ty][tx] = (row < M && k + tx < K) ? A[row * K + k + tx] : 0.0f;
    b[ty][tx] = (k + ty < K && col < N) ? B[(k + ty) * N + col] : 0.0f;
    __syncthreads();
    for (int q = 0; q < TILE; ++q) sum += a[ty][q] * b[q][tx];
    __syncthreads();
}
""", "        step(As, Bs, A, B, sum, row, col, k0, M, N, K);", barrier="", left=("step(As",)),
    sample("a macro for each tile", "#define LOAD(S, cond, src) do { S[ty][tx] = (cond) ? (src) : 0.0f; } while (0)\n",
        "        LOAD(As, row < M && k0 + tx < K, A[row * K + k0 + tx]);\n        LOAD(Bs, k0 + ty < K && col < N, B[(k0 + ty) * N + col]);", left=("LOAD(As",)),
    sample("macros without a semicolon", "#define LOAD(S, cond, src) { const bool ok = cond; S[ty][tx] = ok ? src : 0.0f; }\n",
        "        LOAD(As, (row < M && k0 + tx < K), A[row * K + k0 + tx])\n        LOAD(Bs, (k0 + ty < K && col < N), B[(k0 + ty) * N + col])", left=("LOAD(As",)),
    sample("a hidden barrier", "#define SYNC() __syncthreads()\n", barrier="SYNC();", left=("SYNC();",)),
    sample("a hidden barrier with its semicolon", "#define SYNC __syncthreads();\n", barrier="SYNC", left=("SYNC\n",)),
    sample("a hidden loop header", "#define K_LOOP for (int k0 = 0; k0 < K; k0 += TILE)\n", header="K_LOOP", left=("K_LOOP\n",)),
    sample("a hidden loop header with arguments", "#define OVER(i, n, s) for (int i = 0; i < (n); i += (s))\n", header="OVER(k0, K, TILE)", left=("OVER(k0, K",)),
    sample("hidden shared arrays", "#define TILE_OF(name) __shared__ float name[TILE][TILE]\n", arrays="TILE_OF(As); TILE_OF(Bs);", left=("TILE_OF(As",)),
    sample("macros as syntax", "#define A(i, j) A[(i) * K + (j)]\n#define B(i, j) B[(i) * N + (j)]\n",
        """        As[ty][tx] = (row < M && k0 + tx < K) ? A(row, k0 + tx) : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B(k0 + ty, col) : 0.0f;""", left=("A(row", "B(k0")),
    flat("macros as syntax over a tile", "#define AS(i, j) As[(i) * TILE + (j)]\n#define BS(i, j) Bs[(i) * TILE + (j)]\n",
        """        AS(ty, tx) = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;
        BS(ty, tx) = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;""", product="AS(ty, q) * BS(q, tx)", left=("AS(ty, tx)",)),
    flat("a branch that a template argument decides", """template <bool GUARDED>
__device__ void load(float *tile, const float *src, bool inside, int i)
{
    if constexpr (GUARDED) {
        tile[threadIdx.y * TILE + threadIdx.x] = inside ? src[i] : 0.0f;
    } else
        tile[threadIdx.y * TILE + threadIdx.x] = src[i];
}
""", """        load<true>(As, A, row < M && k0 + tx < K, row * K + k0 + tx);
        load<true>(Bs, B, k0 + ty < K && col < N, (k0 + ty) * N + col);""", left=("if constexpr", "load<true>")),
    flat("a macro that calls a helper", LOAD_ROW + "#define FETCH(S, X, r, c, n, m) load_row(S, X, r, c, n, m, m)\n",
        "        FETCH(As, A, row, k0 + tx, M, K);\n        FETCH(Bs, B, k0 + ty, col, K, N);", left=("FETCH(As", "load_row(As")),
)  # fmt: skip


def opened(one: Sample, folder: Path) -> OpenKernel:
    """The kernel of a sample whose headers lie in a folder."""
    for name, text in one.headers:
        (folder / name).write_text(text)
    view = device_view(one.text, folder / "k.cu")
    source = read_source(one.text.encode(), "k.cu", own_headers(view))
    return open_kernel(source, source.kernel(one.kernel), {})


def brought(one: Sample, folder: Path) -> Normalised:
    """The kernel after the passes of the front end alone."""
    out = normalise(opened(one, folder), (16, 16, 1), None, (front,))
    assert not isinstance(out, Refusal)
    return out
