"""Widening: what is claimed of a copy loop is checked by going through every element of the tile."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from source_samples import read

from tilewright.kloop.affine import P, Poly, Q, R
from tilewright.kloop.kernel import Copy, CopyLoop, Refusal, TiledKernel, Widening

KERNEL = """
#include <cstdint>
constexpr int BM = {bm};
constexpr int BK = {bk};
constexpr int PAD = {pad};
constexpr int T = {threads};
__global__ void sample(const int8_t *A, float *C, int M, int N, int K)
{{
    __shared__ __align__(16) int8_t S{dims};
    const int tid = {tid};
    const int row0 = blockIdx.y * BM;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {{
        for ({kind} i = tid; i < BM * BK; i += T) {{
            {locals}
            S{place} = ({guard}) ? A[{source}] : 0;
        }}
        __syncthreads();
        sum += *(&S[0]{first} + threadIdx.x);
        __syncthreads();
    }}
    C[threadIdx.x] = sum;
}}
"""
BLOCK = {
    "threadIdx.x": (1, 1),
    "threadIdx.y * blockDim.x + threadIdx.x": (2, 1),
    "threadIdx.x + blockDim.x * threadIdx.y": (2, 1),
}


class Unsigned(int):
    """C's unsigned int."""

    @staticmethod
    def of(value: int) -> Unsigned:
        return Unsigned(value & 0xFFFFFFFF)

    def __add__(self, other: int) -> Unsigned:
        return Unsigned.of(int(self) + int(other))

    __radd__ = __add__

    def __mul__(self, other: int) -> Unsigned:
        return Unsigned.of(int(self) * int(other))

    def __lt__(self, other: int) -> bool:
        return int(self) < (int(other) & 0xFFFFFFFF)

    def __le__(self, other: int) -> bool:
        return int(self) <= (int(other) & 0xFFFFFFFF)

    def __gt__(self, other: int) -> bool:
        return int(self) > (int(other) & 0xFFFFFFFF)

    def __ge__(self, other: int) -> bool:
        return int(self) >= (int(other) & 0xFFFFFFFF)


@cache
def code(expression: str) -> CodeType:
    """The C expression as Python: its operands are never negative where it divides."""
    out = expression.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    return compile(out.replace("(unsigned)(", "Unsigned.of(").strip(), expression, "eval")


def value(expression: str, env: dict[str, object]) -> int:
    result = eval(code(expression), env)
    assert isinstance(result, int)
    return result


@dataclass(frozen=True)
class Case:
    bm: int
    bk: int
    pad: int
    threads: int
    tid: str
    kind: str
    locals: tuple[tuple[str, str], ...]
    place: tuple[str, ...]
    guard: str
    source: str

    def text(self) -> str:
        dims = ("[BM]", "[BK + PAD]") if len(self.place) == 2 else ("[BM * (BK + PAD)]",)
        return KERNEL.format(
            bm=self.bm, bk=self.bk, pad=self.pad, threads=self.threads, tid=self.tid, kind=self.kind, dims="".join(dims),
            locals=" ".join(f"int {n} = {e};" for n, e in self.locals), place="".join(f"[{p}]" for p in self.place),
            guard=self.guard, source=self.source, first="[0]" if len(self.place) == 2 else "",
        )  # fmt: skip

    def kernel(self) -> TiledKernel | Refusal:
        x, _ = BLOCK.get(self.tid, (1, 1))
        return read(self.text(), (self.threads // 1, 1, 1) if x == 1 else (self.threads // 2, 2, 1))

    def element(self, i: int, names: dict[str, int]) -> dict[str, object]:
        env: dict[str, object] = {**names, "i": i, "BM": self.bm, "BK": self.bk, "PAD": self.pad, "T": self.threads}
        env["Unsigned"], env["min"] = Unsigned, min
        for name, expression in self.locals:
            env[name] = value(expression, env)
        return env

    def offset(self, env: dict[str, object]) -> int:
        indices = [value(p, env) for p in self.place]
        return indices[0] if len(indices) == 1 else indices[0] * (self.bk + self.pad) + indices[1]


def widening(kernel: TiledKernel | Refusal) -> tuple[Widening | None, TiledKernel | None]:
    if isinstance(kernel, Refusal):
        return None, None
    loop = kernel.loads[0]
    assert isinstance(loop, CopyLoop)
    return (loop.widening if isinstance(loop.widening, Widening) else None), kernel


def check(case: Case, found: Widening, kernel: TiledKernel, rng: random.Random, rounds: int = 4) -> None:
    """Contiguous, aligned, once each; and a guard that holds at the tested elements holds between them."""
    loop = kernel.loads[0]
    assert isinstance(loop, CopyLoop)
    copy = loop.body[-1]
    assert isinstance(copy, Copy)
    assert copy.guard is not None
    lanes = found.elements
    span = copy.guard.span
    guard = kernel.text[span.start : span.end].decode()
    last = kernel.text[span.start : span.end].decode()
    for m in sorted(found.guard_last, key=lambda m: -m.span.start):
        a, b = m.span.start - span.start, m.span.end - span.start
        moving = last[a:b]
        last = last[:a] + (f"({moving})" if m.loose else moving) + f" + {m.distance}" + last[b:]
    both = any(m.may_wrap for m in found.guard_last)
    for _ in range(rounds):
        names = {
            "row0": rng.choice([0, 16, 64]), "k0": rng.choice([0, 8, 32]), "M": rng.choice([1, 9, 40, 80]),
            "N": rng.choice([3, 17]), "K": rng.choice([1, 5, 20, 33, 64, 100]), "one": 1,
        }  # fmt: skip
        seen: set[int] = set()
        for v in range(case.bm * case.bk // lanes):
            envs = [case.element(v * lanes + r, names) for r in range(lanes)]
            offsets = [case.offset(e) for e in envs]
            assert offsets == list(range(offsets[0], offsets[0] + lanes))
            assert offsets[0] % lanes == 0
            assert not seen & set(offsets)
            seen |= set(offsets)
            sources = [value(case.source, e) for e in envs]
            holds = [bool(value(guard, e)) for e in envs]
            whole = value(last, envs[0]) and (not both or holds[0])
            if whole:
                assert all(holds)
                assert [int(s) for s in sources] == list(range(int(sources[0]), int(sources[0]) + lanes))


ROWS = ["i / BK", "i >> 5", "(i / BK)", "i / 32"]
COLUMNS = ["i % BK", "i & 31", "i - i / BK * BK", "i % BK ^ 1", "i % BK / 2 * 2", "(i % BK)", "BK - 1 - i % BK"]
SOURCES = ["(row0 + r) * K + k0 + c", "(row0 + r) * K + c + k0", "r * N + c", "(row0 + r) * K + 2 * c", "c * K + r",
           "i", "i + k0", "(row0 + r) * K + k0 + c / 2 * 2 + c % 2", "min((row0 + r) * K + k0 + c, M)", "(r + c) * 1"]  # fmt: skip
GUARDS = ["row0 + r < M && k0 + c < K", "k0 + c < K", "M > row0 + r && K >= k0 + c + 1", "row0 + r < M", "c + k0 <= K - 1",
          "k0 + c < K && c < 5", "(unsigned)(k0 + c - 3) < (unsigned)(K)", "(unsigned)(k0 + c) < K && row0 + r < M", "k0 - c < K",
          "(k0 + c << 1) < 2 * K", "(k0 + c & 31) < K", "K - c > k0", "k0 + c < K || r < 3", "k0 + c / 4 < K", "i < K"]  # fmt: skip
PLACES = [
    ("i",),
    ("r", "c"),
    ("r * (BK + PAD) + c",),
    ("c * BM + r",),
    ("i ^ 16",),
    ("r", "c ^ 16"),
    ("i * 2 / 2",),
    ("i % 64",),
]


def often(*good: object, among: Sequence[object]) -> st.SearchStrategy[object]:
    """Mostly what can be widened, so that there is something to check."""
    return st.one_of(st.sampled_from(good), st.sampled_from(good), st.sampled_from(list(among)))


cases = st.builds(
    lambda row, column, **rest: Case(locals=(("r", row), ("c", column)), **rest),
    bm=st.sampled_from([8, 16, 32]),
    bk=often(32, 64, among=[16, 24, 32, 48, 64]),
    pad=often(0, 16, among=[0, 4, 16]),
    threads=st.sampled_from([32, 64]),
    tid=st.sampled_from(sorted(BLOCK)),
    kind=st.sampled_from(["int", "unsigned"]),
    row=often(ROWS[0], among=ROWS),
    column=often(COLUMNS[0], among=COLUMNS),
    place=often(("i",), ("r", "c"), among=PLACES),
    guard=st.sampled_from(GUARDS),
    source=often(SOURCES[0], SOURCES[1], among=SOURCES),
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(cases)
def test_every_claim_holds_for_every_element(case: Case) -> None:
    found, kernel = widening(case.kernel())
    if found is not None and kernel is not None:
        check(case, found, kernel, random.Random(1), rounds=2)


GOOD = Case(16, 32, 0, 64, "threadIdx.x", "int", (("r", "i / BK"), ("c", "i % BK")), ("i",), GUARDS[0], SOURCES[0])


def changed(**what: object) -> Case:
    return replace(GOOD, **what)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "case",
    [GOOD, changed(place=("r", "c")), changed(place=("r", "c"), pad=16), changed(locals=(("r", "i >> 5"), ("c", "i & 31"))),
     changed(kind="unsigned"), changed(guard=GUARDS[6]), changed(guard=GUARDS[9]), changed(source="i + k0"), changed(bk=48),
     changed(tid="threadIdx.y * blockDim.x + threadIdx.x"), changed(place=("r", "c ^ 16"), bk=64, pad=0)],
    ids=str,
)  # fmt: skip
def test_the_usual_forms_are_widened(case: Case) -> None:
    found, kernel = widening(case.kernel())
    if case.place == ("r", "c ^ 16"):
        assert found is None  # a swizzle of whole vectors would be right, but is not understood
        return
    assert found is not None, case.kernel()
    assert kernel is not None
    check(case, found, kernel, random.Random(2))


@pytest.mark.parametrize(
    "case",
    [changed(place=("c * BM + r",)), changed(place=("i ^ 1",)), changed(place=("r", "c"), pad=4), changed(source=SOURCES[3]),
     changed(source=SOURCES[4]), changed(source=SOURCES[8]), changed(bk=24, threads=7),
     changed(guard="c % 3 < 2"), changed(guard=GUARDS[12]), changed(guard="K - c > k0"), changed(place=("i % 64",)),
     changed(source="i + tid"), changed(guard="tid < K"), changed(locals=(("r", "i / BK"), ("c", "i % BK + threadIdx.x")))],
    ids=str,
)  # fmt: skip
def test_what_is_not_contiguous_is_not_widened(case: Case) -> None:
    kernel = case.kernel()
    assert isinstance(kernel, TiledKernel), kernel
    assert widening(kernel)[0] is None


def test_the_check_would_notice_a_wrong_claim() -> None:
    found, kernel = widening(GOOD.kernel())
    assert found is not None
    assert kernel is not None
    for mutant in (changed(place=("c * BM + r",)), changed(source=SOURCES[3]), changed(guard="k0 + c !=K")):
        with pytest.raises(AssertionError):
            check(mutant, found, kernel_with(mutant, kernel), random.Random(3), rounds=40)


def kernel_with(case: Case, kernel: TiledKernel) -> TiledKernel:
    """The kernel, its text padded so that the guard reads as the mutant's."""
    loop = kernel.loads[0]
    assert isinstance(loop, CopyLoop)
    copy = loop.body[-1]
    assert isinstance(copy, Copy)
    if case.guard == GOOD.guard:
        return kernel
    return replace(kernel, text=kernel.text.replace(b"row0 + r < M && k0 + c < K", b"row0 + r < M && k0 + c !=K"))


def test_polynomials_split_a_vector_off_a_division() -> None:
    poly = Poly.atom(Q) * Poly.constant(16) + Poly.atom(R)
    assert poly.factor_of(R) == 1
    assert poly.without(R).multiple_of(16)
    assert (poly * poly).factor_of(R) is None
    assert Poly.atom(f"({R} / 3)").factor_of(R) is None
    assert Poly.atom(P).factor_of(R) == 0
