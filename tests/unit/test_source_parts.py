"""Places, effects, leaks, uniformity, disjoint copies, trips: the parts that the analysis is made of."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

from dataclasses import replace

import pytest
from attack_base import KERNELS
from source_samples import BLOCKS, opened, understood

from tilewright.kloop.concrete import Concrete
from tilewright.kloop.disjoint import Disjoint
from tilewright.kloop.kernel import Copy, Refusal
from tilewright.kloop.kloop import KLoopFinder
from tilewright.kloop.offsets import Offsets
from tilewright.kloop.trips import trip_count
from tilewright.kloop.uniform import Uniformity
from tilewright.source import intrinsics, ir, lexical
from tilewright.source.effects import Collector, Effects
from tilewright.source.expr_types import Types
from tilewright.source.reader import OpenKernel

HEAD = """
struct Params { float *out; float inside[4]; int n; };
typedef float *Pointer;
__device__ void store(float *p, float x) { *p = x; }
__device__ void change(int &i) { i += 1; }
__device__ float look(const float *p, int i) { return p[i]; }
__device__ void keep(unsigned &to, const float *p) { to = __cvta_generic_to_shared(p); }
__device__ unsigned swizzle(unsigned a) { return a ^ ((a >> 3) & 7); }
__device__ void both(float x) {}
__device__ void both(float *x) { x[0] = 1; }
__device__ void calls(float *p) { store(p, 2); }
__device__ void forever(int n) { forever(n - 1); }
"""
SIGNATURE = "__global__ void k(float *A, const float *B, float **tables, Params params, int n, int m)"


def kernel(body: str, head: str = "") -> OpenKernel:
    found = opened(f"{HEAD}{head}{SIGNATURE} {{\n__shared__ float S[32];\n{body}\n}}\n")
    assert found.errors == (), found.errors
    return found


def collector(found: OpenKernel) -> Collector:
    return Collector(found.symbols, found.functions, found.body.body, True, found.source.aliases)


def effects(body: str) -> tuple[OpenKernel, Effects]:
    found = kernel(body)
    return found, collector(found).collect(found.body.body)


def id_of(found: OpenKernel, name: str) -> int:
    return next(s.id for s in found.symbols.values() if s.name == name)


@pytest.mark.parametrize(
    ("body", "space"),
    [
        ("A[0] = 1;", "global"),
        ("*(A + n) = 1;", "global"),
        ("float *p = A + n; p[1] = 1;", "global"),
        ("float *p = A; p = p + 4; p++; *p = 1;", "global"),
        ("reinterpret_cast<float4 *>(&A[n])[0] = make_float4(0, 0, 0, 0);", "global"),
        ("S[n] = 1;", "shared"),
        ("float *p = S; p[1] = 1;", "shared"),
        ("float *p = &S[4] + n; *p = 1;", "shared"),
        ("float4 *p = reinterpret_cast<float4 *>(S); p->x = 1;", "shared"),
        ("float &r = S[n]; r = 1;", "shared"),
        ("float *p = A; if (n) p = S; p[0] = 1;", "unknown"),
        ("float *p = A; float **q = &p; *q = S; p[0] = 1;", "unknown"),
        ("tables[0][1] = 1;", "unknown"),
        ("float *p[2] = {A, S}; p[0][1] = 1;", "unknown"),
        ("params.out[0] = 1;", "unknown"),
        ("Pointer p = A; p[0] = 1;", "unknown"),
        ('float *p; asm("mov.u64 %0, 0;" : "=l"(p)); p[0] = 1;', "unknown"),
        ("store(A, 1);", "global"),
        ("store(&S[3], 1);", "shared"),
        ("calls(S);", "shared"),
        ("both(S);", "shared"),
        ("wmma::store_matrix_sync(A, n, 1, wmma::mem_row_major);", "global"),
    ],
)
def test_a_store_is_placed(body: str, space: str) -> None:
    _, found = effects(body)
    assert [s.place.space for s in found.stores] == [space]


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("float x[4]; x[n] = 1;", "x"),
        ("float x[2][2]; float (&row)[2] = x[1]; row[n] += 1;", "x"),
        ("float4 x; x.y = 1;", "x"),
        ("float x[4]; float *p = &x[1]; p[2] = 1;", "x"),
        ("float4 x; reinterpret_cast<float *>(&x)[n] = 1;", "x"),
        ("int x; int &r = x; ++r;", "x"),
        ("int x; change(x);", "x"),
        ("float x; store(&x, 1);", "x"),
        ("wmma::fragment<a, 1> x; x.x[n] = 1;", "x"),
        ("Params x; x.n = 3;", "x"),
        ('int x; asm("mov.u32 %0, 1;" : "=r"(x));', "x"),
        ("int x; unknown_to_all(x);", "x"),
    ],
)
def test_a_write_to_a_local_is_seen(body: str, written: str) -> None:
    kernel_, found = effects(body)
    assert id_of(kernel_, written) in found.writes


def test_reading_needs_no_store() -> None:
    _, found = effects("float x = look(S, n) + look(A, 1) + B[0]; float4 y = make_float4(x, x, x, x); y = y;")
    assert found.stores == []
    assert found.unknown == []


def test_unknown_and_recursive_calls_are_unknown() -> None:
    assert effects("unknown_to_all(n);")[1].unknown
    assert effects("forever(n);")[1].unknown
    assert not effects("both(n);")[1].unknown


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0}, [%1]", "loads"),
        ("@p mma.sync.x %0", "loads"),
        ("mov.u32 %0, 1", "values"),
        ("st.shared.f32 [%0], %1", "stores"),
        ("@!p red.add.f32 [%0], %1", "stores"),
        ("bar.sync 0", "barrier"),
        ("exit", "unknown"),
        ("prefetch.global.L2 [%0]", "unknown"),
        ("call foo", "unknown"),
    ],
)
def test_inline_ptx_is_classified(code: str, kind: str) -> None:
    assert intrinsics.asm_kind(code) == kind


def test_inline_ptx_is_cut_into_instructions() -> None:
    code = '"{.reg .pred p;\\n"\n" setp.ne.b32 p, %2, 0;  // guard\\n" "@p mma.sync.x {%0}, {%1};\\n}\\n"'
    assert intrinsics.asm_instructions(code) == ["setp.ne.b32 p, %2, 0", "@p mma.sync.x {%0}, {%1"]


def test_addresses_that_a_function_keeps_or_swizzles() -> None:
    functions = kernel("keep(n, A); look(A, n); swizzle(n); store(A, 1); calls(A); both(A);").functions
    assert functions["keep"].leaked == {1}
    assert functions["look"].leaked == frozenset()
    assert functions["swizzle"].xored == {0}
    assert functions["store"].stored == {0}
    assert functions["calls"].stored == {0}
    assert functions["both"].stored == {0}


@pytest.mark.parametrize(
    ("body", "uniform"),
    [
        ("int x = n * 2 + blockIdx.x;", True),
        ("int x = threadIdx.x;", False),
        ("int y = threadIdx.x / 32; int x = y + n;", False),
        ("int x = n; x += blockIdx.x; x++;", True),
        ("int x = n; if (n > 2) x = 3;", True),
        ("int x = n; if (threadIdx.x > 2) x = 3;", False),
        ("int x = n; for (int i = 0; i < m; ++i) x += i;", True),
        ("int x = n; for (int i = threadIdx.x; i < m; ++i) x = 2;", False),
        ("int x = n; for (int i = 0; i < m; ++i) { if (threadIdx.x == i) break; x = i; }", False),
        ("int x = n; x = A[0];", False),
        ("int x = n; int *p = &x; *p = threadIdx.x;", False),
        ("int x = n; int &r = x; r = threadIdx.x;", False),
        ("int x = n; change(x);", False),
        ("int x = min(n, m);", True),
        ("int x = look(A, n);", False),
        ("int x = n; int y = x; x = y; y = x + 1;", True),
        ("float *x = A; x += blockIdx.x * n;", True),
        ("float *x = A + threadIdx.x;", False),
        ('int x; asm("mov.u32 %0, %%laneid;" : "=r"(x));', False),
    ],
)
def test_what_all_threads_share(body: str, uniform: bool) -> None:
    found = kernel(body)
    assert Uniformity(found, collector(found)).uniform_symbol(id_of(found, "x")) is uniform


def test_an_unknown_store_may_change_what_has_an_address() -> None:
    found = kernel("int x = n; float *p[1]; p[0] = (float *)&x; p[0][0] = 1;")
    assert id_of(found, "x") in Uniformity(found, collector(found)).changed


COPIES = {
    "S[threadIdx.x] = A[n]; S[threadIdx.x + 16] = A[n + 1];": True,
    "S[threadIdx.x] = A[n]; S[threadIdx.x + 16 - m + m] = A[n + 1];": True,
    "S[threadIdx.x] = A[n]; S[threadIdx.x] = A[n + 1];": False,
    "S[threadIdx.x] = A[n]; S[threadIdx.x * 2] = A[n + 1];": False,
    "*reinterpret_cast<float4 *>(&S[threadIdx.x]) = *reinterpret_cast<float4 *>(&A[n]); S[threadIdx.x + 4] = A[n];": True,
    "*reinterpret_cast<float4 *>(&S[threadIdx.x]) = *reinterpret_cast<float4 *>(&A[n]); S[threadIdx.x + 3] = A[n];": False,
    "for (int i = 0; i < 4; ++i) S[threadIdx.x + 8 * i] = A[i];": True,
    "for (int i = 0; i < 4; ++i) S[threadIdx.x + i / 2] = A[i];": False,
    "for (int i = 0; i < 4; ++i) reinterpret_cast<float2 *>(S)[threadIdx.x + 4 * i] = reinterpret_cast<float2 *>(A)[i];": True,
    "for (int i = 0; i < 4; ++i) reinterpret_cast<float2 *>(S + threadIdx.x + i)[0] = reinterpret_cast<float2 *>(A)[i];": False,
    "for (int i = threadIdx.x; i < 32; i += 8) S[i ^ 5] = A[i];": True,
    "for (int i = threadIdx.x; i < 32; i += 8) S[i % 16] = A[i];": False,
    "for (int i = threadIdx.x; i < 16; i += 8) S[i] = A[i]; for (int i = threadIdx.x; i < 16; i += 8) S[i + 16] = A[i];": True,
    "for (int i = threadIdx.x; i < 20; i += 8) S[i] = A[i]; for (int i = threadIdx.x; i < 16; i += 8) S[i + 16] = A[i];": False,
    "for (int i = 0; i < 2; ++i) { S[threadIdx.x + i * 16] = A[i]; S[threadIdx.x + i * 16 + 8] = A[i]; }": True,
    "for (int i = 0; i < 2; ++i) { S[threadIdx.x + i * 16] = A[i]; S[threadIdx.x + i * 16 + 16] = A[i]; }": False,
}


@pytest.mark.parametrize("copies", COPIES)
def test_copies_that_touch_the_same_bytes_are_found(copies: str) -> None:
    text = f"{SIGNATURE.replace('Params params, ', '')} {{\n__shared__ float S[64]; float x = 0;\n"
    text += f"for (int k = 0; k < n; k += 4) {{ {copies} __syncthreads(); x += S[threadIdx.x]; __syncthreads(); }} A[0] = x; }}\n"
    found = understood(text, (8, 1, 1))
    assert (found.unordered is None) is COPIES[copies]
    if found.unordered is not None:
        assert found.unordered.line == 3


@pytest.mark.parametrize(
    ("index", "values"),
    [
        ("i / 4 * 4 + i % 4", [0, 1, 2, 3, 4, 5]),
        ("(i ^ 1) + LOCAL", [3, 2, 5, 4, 7, 6]),
        ("i - 1", None),  # wraps where i is unsigned
        ("i * 1000000000", None),
        ("i / (i - i)", None),
        ("i + n", None),
        ("i + threadIdx.x", None),
        ("(uint8_t)i", None),
    ],
)
def test_indices_are_evaluated_element_by_element(index: str, values: list[int] | None) -> None:
    found = kernel(f"const int LOCAL = 2; for (int i = 0; i < 6; ++i) {{ int x = {index}; A[x] = 0; }}")
    variable, target = id_of(found, "i"), found.symbols[id_of(found, "x")].init
    assert target is not None
    assert Concrete(found.constants, variable, {}, lambda name: None).values(target, 6) == values


def test_the_places_of_one_kernel_are_judged_without_a_block() -> None:
    found = opened((KERNELS / "vector.cu").read_text())
    finder = KLoopFinder(found)
    types = Types(found.symbols, found.source.aliases)
    kernel_ = understood((KERNELS / "vector.cu").read_text())
    arrays = {a.symbol: a for a in kernel_.shared}
    offsets = Offsets(found.constants, types, arrays, lambda n: finder.uniformity.fixed(n, -1))
    twice = [i for i in kernel_.loads if isinstance(i, Copy)] * 2
    assert Disjoint(offsets, found.source.line).judge(kernel_.loads) is None
    assert isinstance(Disjoint(offsets, found.source.line).judge(twice), Refusal)


@pytest.mark.parametrize(
    ("header", "scalars", "trips"),
    [
        ("int k0 = 0; k0 < K; k0 += TILE", {"K": 64}, 4),
        ("int k0 = 0; k0 < K; k0 += TILE", {"K": 65}, 5),
        ("int k0 = 0; k0 < K; k0 += TILE", {"K": 0}, 0),
        ("int k0 = TILE; k0 < K; k0 += TILE", {"K": 64}, 3),
        ("int k0 = 0; k0 < (K + TILE - 1) / TILE; ++k0", {"K": 33}, 3),
        ("int k0 = 0; k0 < K; k0 += blockDim.x", {"K": 64}, None),
        ("int k0 = 0; k0 < K; k0 += TILE", {}, None),
    ],
)
def test_trips_follow_from_the_scalars(header: str, scalars: dict[str, int], trips: int | None) -> None:
    text = (KERNELS / "scalar.cu").read_text().replace("int k0 = 0; k0 < K; k0 += TILE", header)
    assert trip_count(understood(text, BLOCKS["scalar"]), scalars) == trips


def test_a_bound_that_was_changed_gives_no_trips() -> None:
    text = (KERNELS / "scalar.cu").read_text().replace("    float sum", "    if (M > 3) K = 7;\n    float sum")
    assert trip_count(understood(text, BLOCKS["scalar"]), {"K": 64}) is None


@pytest.mark.parametrize(("threads", "rows"), [(64, 32), (None, None)])
def test_an_index_that_steps_over_whole_vectors_counts_them_once(threads: int | None, rows: int | None) -> None:
    text = """__global__ void f(const float* a, float* c, int K)
{
    __shared__ float As[32][32];
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = t * 4; i < 1024; i += 64 * 4)
            *(float4*)&As[i / 32][i % 32] = *(const float4*)&a[i / 32 * K + k0 + i % 32];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += As[t % 32][k];
        __syncthreads();
    }
    c[t] = sum;
}
"""
    found = understood(text, None if threads is None else (threads, 1, 1))
    assert (found.tile.bm, found.tile.bk) == (rows, 32)


def test_facts_for_the_receipt() -> None:
    found = understood((KERNELS / "bytes.cu").read_text(), BLOCKS["bytes"])
    assert (found.tile.bm, found.tile.bn, found.tile.bk, found.tile.threads) == (32, 32, 32, 64)
    assert found.tile.dims == {"As": (1024,), "Bs": (32, 32)}
    assert {p.tag for p in found.probes} >= {
        "size of As",
        "element of Bs",
        "constant BK",
        "type of a copy",
        "place of a load",
    }
    assert found.lines["loop"][0] < found.lines["load"][0] < found.lines["compute"][0]
    alone = understood((KERNELS / "bytes.cu").read_text())
    assert "64 threads" in " ".join(alone.assumptions)


def test_a_quoted_node_is_never_inside_a_macro() -> None:
    found = understood((KERNELS / "vector.cu").read_text(), BLOCKS["vector"])
    for item in found.loads:
        assert not item.stmt.span.within
        if isinstance(item, Copy):
            assert not item.target.span.within
            assert not item.source.span.within


def test_masking_keeps_offsets() -> None:
    text = b'#pragma unroll \\\r\n 4\r\nalignas(16) int a; // __align__(4)\n_Pragma("unroll") int b; /* #pragma x */ char c = \'"\';'
    masked = lexical.mask(text)
    assert len(masked.text) == len(text)
    assert [a for _, a in masked.alignments] == ["16"]
    assert len(masked.pragmas) == 1
    assert masked.text.count(b"\n") == text.count(b"\n")


def test_a_span_inside_a_macro_differs_from_the_use() -> None:
    assert ir.Span(1, 2) != ir.Span(1, 2, within=True)
    assert replace(ir.Span(1, 2, True), within=False) == ir.Span(1, 2)
