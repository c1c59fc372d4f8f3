"""A small tiled product whose K-loop is written in many ways; those that are read, and those that must not be."""

from __future__ import annotations

from dataclasses import dataclass

from product_sidecars import product_sidecar

_LAUNCH = 'grid = ["N//16", "M//16"]\nblock = [16, 16]'
_SIZES = "default = { M = 32, N = 16, K = 64 }\nsmall = { M = 16, N = 16, K = 48 }"

_TEXT = """#define BK 16
__global__ void product(const float *A, const float *B, float *C, int M, int N, {kind} K)
{{
    __shared__ float As[16][16];
    __shared__ float Bs[16][16];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0.0f;
{before}    {head} {{
{first}        As[ty][tx] = {a};
        Bs[ty][tx] = {b};
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += As[ty][i] * Bs[i][tx];
        __syncthreads();
{last}    }}
    C[row * N + col] = sum{extra};
}}
"""
INDEXED = ("A[row * K + k + tx]", "B[(k + ty) * N + col]")
BUMPED = ("A[row * K + tx]", "B[ty * N + col]")


@dataclass(frozen=True)
class Form:
    """One way to write the loop.

    Attributes:
        header: what the header is afterwards; for a refused form, words of the reason.
        kind: the type of K. sizes: values of K to run at.
    """

    name: str
    head: str
    header: str
    before: str = ""
    first: str = ""
    last: str = ""
    loads: tuple[str, str] = INDEXED
    extra: str = ""
    kind: str = "int"
    sizes: tuple[int, ...] = (0, 16, 48)

    @property
    def text(self) -> str:
        a, b = self.loads
        return _TEXT.format(
            kind=self.kind,
            before="".join(f"    {x}\n" for x in self.before.splitlines()),
            head=self.head,
            first="".join(f"        {x}\n" for x in self.first.splitlines()),
            last="".join(f"        {x}\n" for x in self.last.splitlines()),
            a=a,
            b=b,
            extra=self.extra,
        )

    @property
    def sidecar(self) -> str:
        depth = {"int": "int32", "unsigned": "uint32", "size_t": "uint64"}[self.kind]
        return product_sidecar("product", _LAUNCH, _SIZES, depth=depth, fill="")


READ = (
    Form("at_most_less_one", "for (int k = 0; k <= K - 1; k += BK)", "k < K;"),
    Form("at_most", "for (int k = 0; k <= last; k += BK)", "k < last + 1;", before="int last = K - 1;"),
    Form("at_least_reversed", "for (int k = 0; last >= k; k += BK)", "k < last + 1;", before="int last = K - 1;"),
    Form("not", "for (int k = 0; !(k >= K); k += BK)", "k < K;"),
    Form("unequal", "for (int k = 0; k != K; k += BK)", "k < K;"),
    Form("unequal_unsigned", "for (unsigned k = 0; K != k; k += BK)", "k < K;", kind="unsigned"),
    Form(
        "whole_tiles",
        "for (int k = 0; k + BK <= K; k += BK)",
        "k < (K < BK ? 0 : K - BK + 1);",
        loads=("A[row * K + k + tx]", "B[(k + ty) * N + col]"),
        sizes=(0, 8, 16, 24, 48),
    ),
    Form("braces", "for (size_t k{0U}; k < K; k += BK)", "size_t k{0U}; k < K;", kind="size_t"),
    Form("outside", "for (k = 0; k < K; k += BK)", "int k = 0;", before="int k, other;"),
    Form("outside_set", "for (; k < K; k += BK)", "int k = 0;", before="int k = 0;"),
    Form("outside_read", "for (k = 0; k < K; k += BK)", "int k = 0;", before="int k;", extra=" + k", sizes=(0, 16, 48)),
    Form("while", "while (k < K)", "for (int k = 0; k < K; k += BK)", before="int k = 0;", last="k += BK;"),
    Form(
        "break", "for (;;)", "for (int k = 0; k < K; k += BK)", before="int k = 0;", first="if (k >= K) break;",
        last="k += BK;",
    ),
    Form(
        "while_true", "while (true)", "for (int k = 0; k < K; k += BK)", before="int k = 0;",
        first="if (!(k < K)) { break; }", last="k += BK;",
    ),
    Form(
        "two", "for (int a = 0, b = 0; a < K; a += BK, b += step)", "int b = 0;", before="const int step = BK * N;",
        loads=("A[row * K + a + tx]", "B[b + ty * N + col]"),
    ),
    Form(
        "two_shadowing", "for (int a = 0, b = 0; a <= last; a += BK, b += step)", "int b_tile = 0;",
        before="int step = BK * N, last = K - 1, b = 7;", loads=("A[row * K + a + tx]", "B[b + ty * N + col]"),
        extra=" + b",
    ),
    Form(
        "pointer", "for (; A < end; A += BK)", "A_done < K;", before="const float *end = A + K;",
        last="B += BK * N;", loads=BUMPED,
    ),
    Form(
        "pointer_of_its_own", "for (const float *p = A, *q = B; p != end; p += BK, q += BK * N)", "p_done < K;",
        before="const float *end = A + K;", loads=("p[row * K + tx]", "q[ty * N + col]"),
    ),
    Form(
        "pointer_read", "for (; A < end; A += BK)", "A_done < K;",
        before="const float *start = A;\nconst float *end = A + K;", last="B += BK * N;", loads=BUMPED,
        extra=" + (A - start)",
    ),
    Form(
        "two_read", "for (int a = 0; a < K; a += BK, b += step)", "for (int a = 0; a < K; a += BK) {",
        before="const int step = BK * N;\nint b = 0;", loads=("A[row * K + a + tx]", "B[b + ty * N + col]"),
        extra=" + b",
    ),
    Form(
        "step_that_shadows", "for (int b = BK, k = 0; k < K; k += b)", "k += b_tile", before="int b = 32;",
        extra=" + b",
    ),
    Form(
        "first_that_shadows", "for (int b = 0, k = b, c = b + 1; k < K; k += BK, ++c)",
        "for (int k = b_tile; k < K; k += BK)", before="int b = 16;", last="sum += c;", extra=" + b",
    ),
    Form(
        "from_the_block", "for (int a = from; a <= to; a += step)", "a < to + 1;",
        before="int from = K * 16 * blockIdx.y;\nint to = from + K - 1;\nint step = BK;",
        loads=("A[a + ty * K + tx]", "B[(a - from + ty) * N + col]"),
    ),
)  # fmt: skip

REFUSED = (
    Form("no_first", "for (int k, b = 0; k < K; k += BK, ++b)", "is not of the form"),
    Form("do_while", "do", "do … while", before="int k = 0;", last="k += BK;"),
    Form("downwards", "for (int k = K - BK; k >= 0; k -= BK)", "downwards"),
    Form("unequal_by_three", "for (unsigned k = 0; k != K; k += 3)", "cannot be shown", kind="unsigned"),
    Form("unequal_from_sixteen", "for (unsigned k = 16; k != K; k += BK)", "cannot be shown", kind="unsigned"),
    Form("unequal_unknown_step", "for (int k = 0; k != K; k += N)", "cannot be shown"),
    Form("may_end_early", "for (int k = 0; k <= K; k += BK)", "cannot be shown", first="if (k == N) return;"),
    Form("sum_that_wraps", "for (unsigned k = 0xfffffff0u; k + 16u < K; k += BK)", "not of the form", kind="unsigned"),
    Form("narrow", "for (int k = 0; k <= last; k += BK)", "cannot be shown", before="double last = K - 1;"),
    Form(
        "changed_step", "for (int k = 0; k < K; k += step)", "changes its own", before="int step = BK;",
        last="step = 8;",
    ),
    Form(
        "read_later", "for (k = first; k < K; k += BK)", "is read behind the K-loop",
        before="int k, first = threadIdx.x * 0;", extra=" + k",
    ),
    Form(
        "step_by_another_name", "while (k < K)", "is not of the form",
        before="int k = 0, q = BK;\nconst int &step = q;", first="k += step;\nq = 2 * BK - q;",
        loads=("A[row * K + tx]", "B[ty * N + col]"),
    ),
    Form(  # in front of the loop `f` is another one than where `k` is declared
        "first_is_hidden", "for (; k < K; k += BK)", "is not of the form",
        before="const int f = 0;\n{\nint k = f;\nint f = BK;\nsum += f;", extra=";\n    }",
    ),
    Form(
        "length_is_hidden", "for (; A < end; A += BK)", "is not of the form", loads=BUMPED, last="B += BK * N;",
        before="const float *end = A + K;\n{\nconst int K = BK;\nsum += K;", extra=";\n    }",
    ),
    Form(
        "pointer_unknown_step", "for (; A != end; A += N)", "cannot be shown", before="const float *end = A + K;",
        loads=BUMPED,
    ),
)  # fmt: skip
