"""What runs behind expressions that look plain, and what earlier runs of a K-loop leave behind: refused."""

from __future__ import annotations

import pytest
from source_samples import REWRITERS, read
from trap_kernels import BLOCK, LOAD_A, LOAD_B, MATH, gemm

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite.result import Remedy, RewrittenSource

_LOAD = f"As[ty][tx] = {{}};\n        {LOAD_B}"
_SEEN = f"{MATH}\n        sum += it.v;"


def _class(member: str, load: str, init: str = "It it{0};") -> str:
    body = f"struct It {{ int v; {member} }};"
    return gemm(file=body, before=init, load=_LOAD.format(load), compute=_SEEN)


HIDDEN = {
    "operator*": _class("__device__ int operator*() { v += 16; return v; }", "A[*it % K]"),
    "operator[]": _class("__device__ int operator[](int i) { ++v; return v + i; }", "A[it[tx] % K]"),
    "conversion": _class("__device__ operator int() { v += 16; return v - 16; }", "A[((int)it + tx) % K]"),
    "destructor": gemm(
        file="struct It { int *p; __device__ ~It() { *p += 3; } };",
        before="int n = 0;",
        load=f"It it{{&n}};\n        {LOAD_A}\n        {LOAD_B}",
        compute=f"{MATH}\n        sum += n;",
    ),
    "operator+": gemm(
        file="struct It { int v; };\n__device__ int operator+(It &a, int b) { a.v += b; return a.v; }",
        before="It it{0};",
        load=_LOAD.format("A[(it + 16) % K]"),
        compute=_SEEN,
    ),
    "operator-": gemm(  # one class inside another
        file="struct In { int v; __device__ int operator-() { return v++; } };\nstruct It { In in; int v; };",
        before="It it{};",
        load=_LOAD.format("A[-it.in]"),
        compute=f"{MATH}\n        sum += it.in.v;",
    ),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_operators_that_change_something_are_refused(what: str) -> None:
    found = read(HIDDEN[what], BLOCK)
    assert isinstance(found, Refusal)
    assert found.code == "not_understood"
    assert f"whose {what} changes something on the way" in found.message


@pytest.mark.parametrize(
    "member",
    [
        "__device__ int operator[](int i) const { return v + i; }",
        "__device__ int operator[](int i) { int out = v; out += i; return out; }",
        "__device__ int operator[](int i) { return v + i; } __device__ It &operator+=(int i) { v += i; return *this; }",
    ],
)
def test_operators_that_only_look_are_read(member: str) -> None:
    assert isinstance(read(_class(member, "A[it[tx] % K]"), BLOCK), TiledKernel)


def test_a_static_variable_of_a_helper_is_memory() -> None:
    helper = "__device__ int count() { static int n = 0; n = n + 1; return n; }"
    text = gemm(file=helper, load=_LOAD.format("A[count() % K] + 1.0f"), compute=f"{MATH}\n        sum += count();")
    found = read(text, BLOCK)
    assert isinstance(found, Refusal)
    assert found.code == "may_alias"


@pytest.mark.parametrize(
    "alias", ["typedef volatile float vf;", "using vf = volatile float;", "typedef float volatile vf;"]
)
@pytest.mark.parametrize("more", ["", " + 1.0f"])
def test_volatile_behind_a_typedef(alias: str, more: str) -> None:
    text = gemm(file=alias, before="const vf *v = A;", load=_LOAD.format(f"v[row * K + k0 + tx]{more}"))
    found = read(text, BLOCK)
    assert isinstance(found, Refusal)
    assert "volatile" in found.message


_RUNS = "for (int t = 0; t < 3; ++t) {{\n    const int last = row + t * 16;\n    for (int k0 = 0; k0 < K; k0 += T)"


def _several_runs(load: str) -> str:
    return gemm(loop=_RUNS.format(), load=f"{load}\n        {LOAD_B}", after="}")


UNEVEN = {
    "an if without else": "if (last < M) As[ty][tx] = A[last * K + k0 + tx];",
    "how many rows": "for (int r = ty; r < M - t * 16; r += 16) As[r % 16][tx] = A[r * K + k0 + tx];",
    "where": "As[t][tx] = A[min(last, M - 1) * K + k0 + tx];",
}


@pytest.mark.parametrize("what", UNEVEN)
def test_runs_that_fill_different_places_keep_one_buffer(what: str) -> None:
    """The second run finds the last tile of the first where it stores nothing: a ring holds another one there."""
    kernel = read(_several_runs(UNEVEN[what]), BLOCK)
    assert isinstance(kernel, TiledKernel)
    refusal = kernel.outside.refusal
    assert refusal is not None
    assert refusal.code == "loop_carried_shared"
    assert "runs several times" in refusal.message
    made = {name for name, rewrite in REWRITERS.items() if isinstance(rewrite(kernel, Remedy()), RewrittenSource)}
    assert made <= {"ldg_single"}


@pytest.mark.parametrize(
    "load",
    [
        "As[ty][tx] = last < M ? A[last * K + k0 + tx] : 0.0f;",
        "if (last < M) As[ty][tx] = A[last * K + k0 + tx]; else As[ty][tx] = 0.0f;",
        "if (ty < 12) As[ty][tx] = A[min(last, M - 1) * K + k0 + tx];",
    ],
)
def test_runs_that_fill_the_same_places_are_rings(load: str) -> None:
    kernel = read(_several_runs(load), BLOCK)
    assert isinstance(kernel, TiledKernel)
    assert kernel.outside.refusal is None


def test_a_helper_that_reads_memory_of_its_own_may_see_the_stores() -> None:
    helper = "__device__ float g[4096];\n__device__ float look(int i) { return g[i]; }"
    load = "As[ty][tx] = look((row * K + k0 + tx) % 4096);\n        Bs[ty][tx] = look((k0 * N + col) % 4096);"
    text = gemm(file=helper, load=load, compute=f"{MATH}\n        C[row * N + col] = sum;")
    found = read(text, BLOCK)
    assert isinstance(found, Refusal)
    assert found.code == "may_alias"
    assert isinstance(read(gemm(file=helper, load=load), BLOCK), TiledKernel)


@pytest.mark.parametrize(
    ("loop", "before", "accepted"),
    [
        ("for (int k0 = -16; k0 < (unsigned)K; k0 += T)", "", False),
        ("for (int k0 = M; k0 < (unsigned)K; k0 += T)", "", False),
        ("for (int k0 = 0; k0 < (unsigned)K; k0 += T)", "", True),
        ("for (int k0 = -16; k0 < K; k0 += T)", "", True),
        ("for (int k0 = from; k0 < K * gridDim.z; k0 += T)", "const int from = blockIdx.z * 32;", True),
        ("for (unsigned k0 = M; k0 < (unsigned)K; k0 += T)", "", True),
    ],
)
def test_a_start_below_zero_is_large_beside_an_unsigned_bound(loop: str, before: str, accepted: bool) -> None:
    """The original loop makes no trip there, but its second tile would pass the test of a prologue."""
    found = read(gemm(loop=loop, before=before), BLOCK)
    assert isinstance(found, TiledKernel) == accepted
    if isinstance(found, Refusal):
        assert "may start below zero" in found.message
