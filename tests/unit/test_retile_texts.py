"""Half of a constant: which one it is, where it is defined, and what else hangs on it."""

from __future__ import annotations

import pytest
from source_samples import opened

from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite.retile import Retiling, Side, retiling
from tilewright.rewrite.retile_reach import shared_with
from tilewright.rewrite.retile_steps import once_a_tile

HEAD = "#define BM 64\nconstexpr int BN = 64;\n"
KERNEL = """
__global__ void gemm(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int n, int k)
{
    __shared__ float as[BM][BK];
    __shared__ float bs[BK][BN];
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += 128)
            as[i / BK][i % BK] = a[(blockIdx.y * BM + i / BK) * k + k0 + i % BK];
        for (int i = threadIdx.x; i < BK * BN; i += 128)
            bs[i / BN][i % BN] = b[(k0 + i / BN) * n + blockIdx.x * BN + i % BN];
        __syncthreads();
        for (int kk = 0; kk < BK; ++kk) sum += as[threadIdx.x % BM][kk] * bs[kk][threadIdx.x % BN];
        __syncthreads();
    }
    c[blockIdx.x * 128 + threadIdx.x] = sum;
}
"""


def half(head: str, side: Side = "BK", tail: str = "", values: dict[str, int] | None = None) -> Retiling | Refusal:
    kernel = opened(HEAD + head + KERNEL + tail, values, "gemm")
    tiled = analyse(kernel, (128, 1, 1))
    assert isinstance(tiled, TiledKernel), tiled
    return retiling(kernel, tiled, side)


@pytest.mark.parametrize(
    ("head", "halved"),
    [
        ("#define BK 32\n", "#define BK 16\n"),
        ("  #  define BK   (32)  // depth\n", "  #  define BK   (16)  // depth\n"),
        ("#define BK 32u\n", "#define BK 16u\n"),
        ("constexpr int BK = 32;  // 32 deep\n", "constexpr int BK = 16;  // 32 deep\n"),
        ("static const int BK = 32, OTHER = 32;\n", "static const int BK = 16, OTHER = 32;\n"),
        ("constexpr int K_STEPS = 2;\nconstexpr int BK = 16 * K_STEPS;\n",
         "constexpr int K_STEPS = 2;\nconstexpr int BK = (16 * K_STEPS) / 2;\n"),
        ("#define BK (16 + 16)\n", "#define BK ((16 + 16) / 2)\n"),
        ("#define BK ((16) + (16))\n", "#define BK (((16) + (16)) / 2)\n"),
        ("// BK = 32, long ago\n#define BK 32\n", "// BK = 32, long ago\n#define BK 16\n"),
    ],
)  # fmt: skip
def test_one_definition_is_halved_and_nothing_else(head: str, halved: str) -> None:
    found = half(head)
    assert isinstance(found, Retiling), found
    assert found.text == HEAD + halved + KERNEL
    assert (found.name, found.before, found.after, found.side) == ("BK", 32, 16, "BK")


def test_the_rows_of_the_first_array_are_bm() -> None:
    found = half("#define BK 32\n", "BM")
    assert isinstance(found, Retiling), found
    assert (found.name, found.before, found.after, found.line) == ("BM", 64, 32, 1)
    assert found.text == HEAD.replace("BM 64", "BM 32") + "#define BK 32\n" + KERNEL


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("#ifdef WIDE\n#define BK 64\n#else\n#define BK 32\n#endif\n", "more than once"),
        ("enum { BK = 32, OTHER = 3 };\n", "no constant of the form"),
        ("constexpr int BK{32};\n", "where it is not found"),
        ("#define BK 33\n", "no half"),
    ],
)
def test_what_is_not_one_plain_constant_is_refused(head: str, what: str) -> None:
    try:
        found = half(head)
    except AssertionError:
        return  # not understood in the first place
    assert isinstance(found, Refusal)
    assert what in found.message


def test_a_constant_of_the_host_with_the_same_name_is_one_too_many() -> None:
    found = half("#define BK 32\n", tail="void launch() { const int BK = 32, n = 0; }\n")
    assert isinstance(found, Refusal)
    assert "more than once" in found.message


def test_what_the_command_line_defines_is_not_in_the_file() -> None:
    found = half("", values={"BK": 32})
    assert isinstance(found, Refusal)
    assert "-D" in found.message


def test_another_kernel_that_hangs_on_the_constant_is_found() -> None:
    other = "__global__ void other(float *c) { __shared__ float t[DEEP]; t[threadIdx.x] = c[0]; c[1] = t[0]; }\n"
    kernel = opened(HEAD + "#define BK 32\n#define DEEP (BK * 2)\n" + KERNEL + other, None, "gemm")
    assert shared_with(kernel, frozenset({"BK"})) == "other"
    assert shared_with(kernel, frozenset({"BM"})) is None


OTHER = "__global__ void other(float *c, int k) { c[0] = <other>; }\n"
RUN = "void run(float *c, int m, int k) { <local>other<<<<grid>, 32>>>(c, k); gemm<<<m / BM, 128>>>(c, c, c, m, k); }\n"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (OTHER.replace("<other>", "padded(k)"), True),
        (OTHER.replace("<other>", "twice(k)"), True),
        (OTHER.replace("<other>", "k") + RUN.replace("<local>", "").replace("<grid>", "m / BK"), True),
        (OTHER.replace("<other>", "k") + RUN.replace("<local>", "int g = padded(m); ").replace("<grid>", "g"), True),
        (OTHER.replace("<other>", "k") + RUN.replace("<local>", "").replace("<grid>", "m / 32"), False),
        (OTHER.replace("<other>", "k /* BK */"), False),
    ],
)
def test_what_another_kernel_hangs_on_by_way_of_functions_and_launches(text: str, is_found: bool) -> None:
    helpers = "__host__ __device__ int padded(int k) { return (k + BK - 1) / BK * BK; }\n"
    helpers += "__device__ int twice(int k) { return 2 * padded(k); }\n"
    kernel = opened(HEAD + "#define BK 32\n" + helpers + KERNEL + text, None, "gemm")
    assert shared_with(kernel, frozenset({"BK"})) == ("other" if is_found else None)


MATH = "for (int kk = 0; kk < BK; ++kk) sum += as[threadIdx.x % BM][kk] * bs[kk][threadIdx.x % BN];"


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (MATH, ""),
        ("for (int kk = 0; kk < STEPS; ++kk) sum += as[0][kk * 4] * bs[kk * 4][1];", ""),
        ("const int d = BK / 2;\n        for (int kk = 0; kk < d; ++kk) sum += as[0][kk];", ""),
        ("for (int kk = 0; kk < BK; ++kk) if (k0 + kk < k) sum += as[0][kk];", ""),
        ("for (int kk = 0; kk < min(BK, k - k0); ++kk) sum += as[0][kk];", ""),
        ("for (int r = 0; r < 2; ++r) for (int kk = 0; kk < BK; ++kk) sum += as[r][kk];", ""),
        (MATH + "\n        if (k > 999) sum *= 0.5f;", "`sum` once a tile"),
        (MATH + "\n        sum = sum > 1.0f ? 1.0f : sum;", "`sum` once a tile"),
        ("float part = 0.0f;\n        " + MATH.replace("sum", "part") + "\n        sum += part;", "`sum` once a tile"),
        (MATH + "\n        atan_into(&sum);", "`sum` once a tile"),
        ("for (int kk = 0; kk < BK; ++kk) sum += k0 == 999 ? 0.0f : as[0][kk];", "looks at `k0`"),
    ],
)
def test_what_is_done_once_a_tile(compute: str, words: str) -> None:
    """Half tiles would do it twice as often: at the sizes that are run it may not show."""
    head = "#define BK 32\n#define STEPS (BK / 4)\n__device__ void atan_into(float *x) { *x = *x * 0.5f; }\n"
    assert MATH in KERNEL
    tiled = analyse(opened(HEAD + head + KERNEL.replace(MATH, compute), None, "gemm"), (128, 1, 1))
    assert isinstance(tiled, TiledKernel), tiled
    found = once_a_tile(tiled, {"BK", "STEPS"})
    assert (found is not None) == bool(words)
    assert found is None or words in found.message
