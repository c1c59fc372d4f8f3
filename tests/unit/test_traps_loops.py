"""Dangerous siblings of the K-loops that are accepted: each is refused, with its code and line."""

from __future__ import annotations

import pytest
from source_samples import REWRITERS, opened
from trap_kernels import BLOCK, LOAD_B, MATH, PARAMS, gemm, line_of

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite.result import Remedy
from tilewright.workflow.understanding import understand

RESTRICT = PARAMS.replace("*", "* __restrict__ ")
SCRATCH = "__shared__ float scratch[T][T];"
SECOND = "\n        __syncthreads();\n        {0}\n        __syncthreads();\n        sum += Vs[tx][ty];"
LOAD_V = LOAD_B.replace("Bs", "Vs")

INNER = "for (int k0 = 0; k0 < K; k0 += T)"
THRICE = "for (int i = 0; i < 3; ++i) {\n    " + INNER
# name → (kernel, code, what its line holds)
REFUSED: dict[str, tuple[str, str, str]] = {
    "return in the loop": (gemm(compute="if (row >= M) return;\n        {0}"), "not_understood", "if (row >="),
    "return in a loop in front": (
        gemm(before="for (int i = tx; i < 3; ++i) if (A[i] > 0) return;"), "divergent_barrier", "i < 3"),
    "goto in front": (gemm(before="if (tx > 3) goto done;", last="done: ;"), "not_understood", "goto done"),
    "divergent branch": (
        gemm(loop="if (tx < N) {\n    " + INNER, after="}"), "divergent_barrier", "if (tx < N) {"),
    "divergent outer loop": (
        gemm(loop="for (int i = 0; i < row; ++i) {\n    " + INNER, after="}"),
        "divergent_barrier", "i < row"),
    "an outer loop that some threads leave": (
        gemm(loop=THRICE, after="if (sum > 9.0f) break;\n    }"),
        "divergent_barrier", "i < 3"),
    "a return in the outer loop": (
        gemm(loop=THRICE, after="if (row > M) return;\n    }"),
        "divergent_barrier", "i < 3"),
    "no braces": (gemm(loop="if (K > 3)\n    " + INNER), "not_understood", "k0 < K; k0 += T"),
    "a struct of the thread": (
        gemm(file="struct Shape { int m, k; };", before="Shape shape;\n    shape.m = M;\n    shape.k = K + tx;",
             loop="for (int k0 = 0; k0 < shape.k; k0 += T)"), "divergent_barrier", "k0 < shape.k"),
    "a struct that a call changes": (
        gemm(file="struct Shape { int k; };\n__device__ void set(Shape& s) { s.k = threadIdx.x; }",
             before="Shape shape;\n    shape.k = K;\n    set(shape);", loop="for (int k0 = 0; k0 < shape.k; k0 += T)"),
        "divergent_barrier", "k0 < shape.k"),
    "a bound from a function of the thread": (
        gemm(file="__device__ int upto(int k) { return k - threadIdx.x; }", before="const int last = upto(K);",
             loop="for (int k0 = 0; k0 < last; k0 += T)"), "divergent_barrier", "k0 < last"),
    "a bound that others may write": (
        gemm(params=PARAMS + ", int* lengths", before="const int last = lengths[0];",
             loop="for (int k0 = 0; k0 < last; k0 += T)"), "divergent_barrier", "k0 < last"),
    "a barrier that some threads pass": (
        gemm(compute="if (tx < 8) { __syncthreads(); }\n        {0}"), "divergent_barrier", "if (tx < 8)"),
    "a barrier in a divergent loop": (
        gemm(compute="for (int i = 0; i < tx; ++i) { __syncthreads(); }\n        {0}"), "divergent_barrier", "i < tx"),
    "a barrier in the load phase": (
        gemm(load="{0}\n        if (K > 3) { __syncthreads(); }\n        " + LOAD_B),
        "not_understood", "if (K > 3)"),
    "scratch in a tile": (
        gemm(compute="{0}\n        __syncthreads();\n        As[ty][tx] = sum;\n        __syncthreads();\n"
             "        sum += As[tx][ty];"),
        "loop_carried_shared", "As[ty][tx] = sum;"),
    "scratch in a tile, through a pointer": (
        gemm(compute="{0}\n        __syncthreads();\n        float* p = &As[0][0];\n        p[ty * T + tx] = sum;"),
        "loop_carried_shared", "p[ty * T + tx] = sum;"),
    "two tiles in one array": (
        gemm(compute=MATH + SECOND.replace("{0}", LOAD_B).replace("Vs", "Bs")), "loop_carried_shared", "MARK"),
    "one barrier": (gemm(end=""), "baseline_race", "__syncthreads();"),
    "one barrier, and loads in a function": (
        gemm(file="__device__ void put(float (*S)[T], const float* from) "
             "{ S[threadIdx.y][threadIdx.x] = from[threadIdx.x]; }",
             load="put(As, A + k0);\n        put(Bs, B + k0);", end=""), "baseline_race", "__syncthreads();"),
    "one barrier, and places that an inner loop counts": (
        gemm(load="for (int i = 0; i < 2; ++i) {\n            const int at = i * 8 + ty / 2;\n"
             "            As[at][tx] = A[at * K + k0 + tx];\n        }\n        " + LOAD_B, end=""),
        "baseline_race", "__syncthreads();"),
    "one barrier, and another buffer each time": (
        gemm(shared="__shared__ float Two[2][T][T];",
             load="Two[k0 / T % 2][ty][tx] = A[row * K + k0 + tx];", compute="sum += Two[k0 / T % 2][tx][ty];", end=""),
        "already_pipelined", "__syncthreads();"),
    "a tile that is read behind the last barrier": (
        gemm(compute="{0}\n        __syncthreads();\n        sum += As[tx][ty]; // late", end=""),
        "baseline_race", "// late"),
    "stores that loads may see": (
        gemm(compute="{0}\n        C[row * N + col] = sum; // between"), "may_alias", "// between"),
    "stores that loads see": (
        gemm(params=RESTRICT, load="{0}\n        if (k0 > 9) Bs[ty][tx] = C[k0 + tx]; else Bs[ty][tx] = 0.0f;",
             compute="{0}\n        C[row * N + col] = sum; // between"), "may_alias", "// between"),
    "stores through one of two pointers": (
        gemm(params=RESTRICT, before="float* out = C;\n    if (K > 9) out = C + 5; else out = (float*)A;",
             compute="{0}\n        out[row * N + col] = sum; // between"), "may_alias", "// between"),
    "only one pointer is restrict": (
        gemm(params=PARAMS.replace("float *C", "float * __restrict__ C"),
             compute="{0}\n        C[row * N + col] = sum; // between"), "may_alias", "// between"),
    "two K-loops": (
        gemm(after="for (int k1 = 0; k1 < K; k1 += T) {\n        As[ty][tx] = A[k1 + tx];\n        __syncthreads();\n"
             "        sum += As[tx][ty];\n        __syncthreads();\n    }"), "not_understood", "k1 < K"),
}  # fmt: skip


def found(text: str) -> TiledKernel | Refusal:
    return understand(opened(text), BLOCK)


@pytest.mark.parametrize("name", REFUSED)
def test_a_dangerous_sibling_is_refused(name: str) -> None:
    text, code, part = REFUSED[name]
    result = found(text)
    assert isinstance(result, Refusal), name
    assert result.code == code, result
    if part == "MARK":
        assert "two tiles share one array" in result.message
    elif part != "__syncthreads();":
        assert result.line == line_of(text, part), result
    else:
        assert text.split("\n")[(result.line or 0) - 1].strip() == part


NUMBER = "const unsigned at = (unsigned)__cvta_generic_to_shared(&Vs[0][0]);"


def moved(between: str, load: str = LOAD_V) -> str:
    """Two load phases with something between them."""
    return gemm(
        shared="__shared__ float Vs[T][T];",
        compute=f"{MATH}\n        {between}\n        __syncthreads();\n        {load}\n        __syncthreads();\n"
        "        sum += Vs[tx][ty];",
    )


def test_a_second_load_phase_moves_where_nothing_is_in_its_way() -> None:
    free = found(moved("sum *= 2.0f;"))
    assert isinstance(free, TiledKernel), free
    assert {a.name for a in free.staged} == {"As", "Bs", "Vs"}
    assert any("second load phase" in s for s in free.steps)


@pytest.mark.parametrize(
    ("between", "load"),
    [
        ("sum += Vs[tx][ty];", LOAD_V),  # the tile before is still read
        ("const int there = tx + (int)sum;", LOAD_V.replace("+ col]", "+ there]")),  # an index that is made in between
        ("seen += 1;", LOAD_V.replace("+ col]", "+ seen]")),
        ('asm volatile("ld.shared.f32 %0, [%1];" : "=f"(sum) : "r"(at));', LOAD_V),  # the tile before, by a number
    ],
)
def test_a_second_load_phase_stays_where_something_is_in_its_way(between: str, load: str) -> None:
    number = NUMBER if "asm" in between else ""
    text = moved(between, load).replace("float sum = 0.0f;", "float sum = 0.0f; int seen = 0; " + number)
    kept = found(text)
    # Its array is then scratch of the compute phase, filled where it was.
    assert isinstance(kept, Refusal) or {a.name for a in kept.staged} == {"As", "Bs"}


def test_a_bound_that_nobody_writes_is_the_same_for_all() -> None:
    loop = "for (int k0 = 0; k0 < last; k0 += T)"
    text = gemm(params=PARAMS + ", const int* lengths", before="const int last = lengths[blockIdx.x];", loop=loop)
    assert isinstance(found(text), TiledKernel)
    own = found(text.replace("lengths[blockIdx.x]", "lengths[tx]"))
    assert isinstance(own, Refusal)
    assert own.code == "divergent_barrier"


def test_an_early_return_forbids_wide_copies_only() -> None:
    copy = "As[i / T][i % T] = A[i / T * K + k0 + i % T];"
    load = f"for (int i = ty * T + tx; i < T * T; i += 256) {{\n            {copy}\n        }}"
    both = [found(gemm(before=b, load=load + "\n        " + LOAD_B)) for b in ("", "if (row >= M) return;")]
    assert all(isinstance(k, TiledKernel) for k in both)
    line = line_of(gemm(before="if (row >= M) return;"), "if (row >= M) return;")
    assert [k.divergent_return for k in both if isinstance(k, TiledKernel)] == [None, line]
    said = [a for k in both if isinstance(k, TiledKernel) for a in k.assumptions if "have not exited" in a]
    assert len(said) == 1


def test_nothing_but_the_rings_bears_the_name_of_a_tile() -> None:
    """A reference that a rewrite has missed must not compile: no view of the old name stands outside the loop."""
    text = gemm(file="#define A_(i) As[ty][i]", compute=MATH.replace("As[ty][k]", "A_(k)"), after="sum += As[tx][ty];")
    kernel = found(text)
    assert isinstance(kernel, TiledKernel)
    for name in ("ldg", "cp_async"):
        written = REWRITERS[name](kernel, Remedy())
        assert not isinstance(written, Refusal)
        body = written.text[written.text.index("__global__") :]
        outer = [x for x in body.split("\n") if x.startswith("    ") and not x.startswith("     ")]
        assert not any(word in x for x in outer for word in ("&As ", "&Bs ", " As[", " Bs[", "(As", "(Bs")), outer


PREPARED = "As[ty][tx] = 1.0f;\n    __syncthreads();"
PART = "if (k0 + tx < K) As[ty][tx] = A[row * K + k0 + tx];\n        " + LOAD_B
SIDES = "if (k0 + tx < K) As[ty][tx] = A[k0 + tx]; else As[ty][tx ^ 1] = 0.0f;\n        " + LOAD_B


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (gemm(before=PREPARED), None),  # how many threads fill it is not known
        (gemm(before=PREPARED), (16, 8, 1)),
        (gemm(before="if (row >= M) return;\n    " + PREPARED), BLOCK),
        (gemm(before=PREPARED, load=PART), BLOCK),
        (gemm(before=PREPARED, load=SIDES), BLOCK),
        (gemm(before=PREPARED).replace("As[T][T]", "As[T][T + 1]"), BLOCK),
        (gemm(before=PREPARED).replace("As[T][T]", "As[T + 1][T]"), BLOCK),
        (gemm(before="float* p = &As[0][0];\n    p[tx] = 1.0f;", after="sum += p[ty];"), BLOCK),
    ],
)
def test_what_is_prepared_in_front_must_be_gone_after_every_tile(text: str, block: tuple[int, int, int] | None) -> None:
    kernel = understand(opened(text), block)
    assert isinstance(kernel, TiledKernel), kernel
    for name in ("ldg", "cp_async"):
        refused = REWRITERS[name](kernel, Remedy())
        assert isinstance(refused, Refusal)
        assert refused.code == "loop_carried_shared"
