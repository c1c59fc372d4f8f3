"""Traps of shared addresses: kept, turned into numbers, swizzled, in one buffer with scratch, stored to twice."""

from __future__ import annotations

import pytest
from source_samples import REWRITERS, opened
from trap_kernels import BLOCK, LOAD_B, MATH, gemm, line_of

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite.result import Remedy
from tilewright.workflow.understanding import understand

NUMBER = "(unsigned)__cvta_generic_to_shared(&As[ty][0])"
READ = 'float x;\n        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"({0}));\n        sum += x * Bs[ty][tx];'
TURN = "__device__ unsigned turned(unsigned at) { return at ^ 16u; }"

# name → (kernel, what its line holds)
SWIZZLED = {
    "in the loop": (
        gemm(compute=f"const unsigned at = {NUMBER} ^ 16u;\n        " + READ.replace("{0}", "at")),
        "^ 16u",
    ),
    "in front of the loop": (
        gemm(before=f"const unsigned at = {NUMBER} ^ 16u;", compute=READ.replace("{0}", "at")),
        "^ 16u",
    ),
    "of an address from in front": (
        gemm(before=f"const unsigned at = {NUMBER};", compute=READ.replace("{0}", "at ^ 16u")),
        "^ 16u",
    ),
    "in a function": (
        gemm(file=TURN, before=f"const unsigned at = {NUMBER};", compute=READ.replace("{0}", "turned(at)")),
        "(turned(at))",
    ),
    "a buffer toggled": (
        gemm(before=f"unsigned at = {NUMBER};", compute=READ.replace("{0}", "at") + "\n        at ^= 1024u;"),
        "at ^= 1024u",
    ),
}


def found(text: str, shared_bytes: int | None = None) -> TiledKernel | Refusal:
    return understand(opened(text), BLOCK, shared_bytes)


@pytest.mark.parametrize("name", SWIZZLED)
def test_11_a_swizzled_address_assumes_how_its_array_is_aligned(name: str) -> None:
    text, part = SWIZZLED[name]
    result = found(text)
    assert isinstance(result, Refusal), name
    assert "aligned" in result.message
    assert result.line == line_of(text, part)


def test_11_a_swizzled_index_does_not() -> None:
    text = gemm(
        load=f"As[ty][tx ^ (ty & 7)] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n        {LOAD_B}",
        compute="for (int k = 0; k < T; ++k) sum += As[ty][k ^ (ty & 7)] * Bs[k][tx];",
    )
    assert isinstance(found(text), TiledKernel)


def refusals(kernel: TiledKernel | Refusal) -> dict[str, str]:
    assert isinstance(kernel, TiledKernel), kernel
    made = {name: rewrite(kernel, Remedy()) for name, rewrite in REWRITERS.items()}
    return {name: r.code for name, r in made.items() if isinstance(r, Refusal)}


@pytest.mark.parametrize(
    "before",
    [
        f"const unsigned at = {NUMBER};",
        "const float* at = As[ty];",
        "float (&at)[T] = As[ty];",
        "const float* at;\n    at = &As[ty][0];",
    ],
)
def test_9_an_address_from_in_front_of_the_loop_keeps_its_array_in_place(before: str) -> None:
    read = READ.replace("{0}", "at") if "unsigned" in before else "sum += at[tx] * Bs[ty][tx];"
    text = gemm(before=before, compute=read)
    assert refusals(found(text)) == {"ldg": "loop_carried_shared", "cp_async": "loop_carried_shared"}
    inside = gemm(compute=f"{before}\n        {read}".replace("    at", "        at"))
    assert refusals(found(inside)) == {}


def test_9_an_address_that_outlives_its_tile() -> None:
    text = gemm(
        before="const float* kept = nullptr;", compute=MATH + "\n        kept = &As[ty][0];", after="sum += kept[0];"
    )
    result = found(text)
    assert isinstance(result, Refusal)
    assert result.line == line_of(text, "kept = &As")


def test_9_a_store_that_mends_another() -> None:
    """Asynchronous copies land in any order, so what mends a copy may come before it."""
    text = gemm(
        load="*reinterpret_cast<float4*>(&As[ty][tx % 4 * 4]) = *reinterpret_cast<const float4*>(&A[row * K + k0]);\n"
        f"        if (k0 + 3 >= K) As[ty][tx % 4 * 4 + 3] = 0.0f;\n        {LOAD_B}"
    )
    assert "cp_async" in refusals(found(text))


POOL = """\
extern __shared__ __align__(16) unsigned char pool[];
    float* As = reinterpret_cast<float*>(pool);
    float* Bs = reinterpret_cast<float*>(pool + 1024);
    float* own = reinterpret_cast<float*>(pool + 2048);"""
LOADS = (
    "As[ty * T + tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n"
    "        Bs[ty * T + tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;"
)


def pooled(compute: str) -> str:
    text = gemm(
        shared=POOL, load=LOADS, compute=compute, before="own[ty * T + tx] = 0.0f;", after="sum = own[ty * T + tx];"
    )
    return text.replace("    __shared__ float As[T][T];\n    __shared__ float Bs[T][T];\n", "")


def test_5_scratch_in_the_same_buffer_is_not_staged() -> None:
    math = "for (int k = 0; k < T; ++k) own[ty * T + tx] += As[ty * T + k] * Bs[k * T + tx];"
    kernel = found(pooled(math), 3072)
    assert isinstance(kernel, TiledKernel), kernel
    assert {a.name for a in kernel.staged} == {"As", "Bs"}
    assert refusals(kernel) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "__syncthreads();\n        float* p = As;\n        p[tx] = sum;",  # in a tile, through another pointer
        "__syncthreads();\n        reinterpret_cast<int*>(Bs)[tx] = 1;",
    ],
)
def test_5_scratch_in_a_tile_is_refused(wrong: str) -> None:
    math = "for (int k = 0; k < T; ++k) sum += As[ty * T + k] * Bs[k * T + tx];"
    result = found(pooled(f"{math}\n        {wrong}"), 3072)
    assert isinstance(result, Refusal)
    assert result.code == "loop_carried_shared"
