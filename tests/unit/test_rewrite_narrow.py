"""Bytes held in registers: with a fill of their own type the compiler extends nothing it loads, and need not wait."""

from __future__ import annotations

import pytest
from source_samples import rewritten, understood

KERNEL = """
__global__ void __launch_bounds__(64) k(const TYPE *A, int *C, int M, int K)
{
    __shared__ TYPE As[64][4];
    const int t = threadIdx.x;
    int sum = 0;
    for (int k0 = 0; k0 < K; k0 += 4) {
        for (int i = t; i < 256; i += 64) {
            LOAD
        }
        __syncthreads();
        for (int k = 0; k < 4; k++) sum += As[t][k];
        __syncthreads();
    }
    C[t] = sum;
}
"""
AT = "A[(i / 4) * K + k0 + i % 4]"
GUARD = "(i / 4 < M && k0 + i % 4 < K)"


def _text(kind: str, load: str) -> str:
    return rewritten(understood(KERNEL.replace("TYPE", kind).replace("LOAD", load), (64, 1, 1)), "ldg").text


@pytest.mark.parametrize("kind", ["signed char", "unsigned char", "short"])
def test_a_fill_of_narrow_numbers_is_one_of_them(kind: str) -> None:
    text = _text(kind, f"As[i / 4][i % 4] = {GUARD} ? {AT} : 0;")
    assert f"As_next[pass] = {GUARD} ? {AT} : ({kind})0;" in text
    text = _text(kind, f"{kind} v = {GUARD} ? {AT} : 0; As[i / 4][i % 4] = v;")
    assert f"{GUARD} ? {AT} : ({kind})0;" in text


def test_a_load_phase_taken_as_a_whole_too() -> None:
    inner = f"As[i / 4][i % 4] = {GUARD} ? {AT} : 0;"
    text = _text("signed char", f"if (t / 32 < 2) {{ {inner} }}")
    assert f"{GUARD} ? {AT} : (signed char)0;" in text


@pytest.mark.parametrize(
    ("kind", "fill"), [("int", "0"), ("float", "0"), ("signed char", "(signed char)0"), ("signed char", "300")]
)
def test_other_fills_stay_as_they_are(kind: str, fill: str) -> None:
    assert f"{GUARD} ? {AT} : {fill};" in _text(kind, f"As[i / 4][i % 4] = {GUARD} ? {AT} : {fill};")


def test_a_number_that_is_not_the_fill_stays() -> None:
    load = f"As[i / 4][i % 4] = (i / 4 < M && k0 + (i > 7 ? i % 4 : i % 4) < K) ? {AT} : 0;"
    assert _text("signed char", load).count("(signed char)") == 1


HELD = """
#define VECTOR(x) (reinterpret_cast<uint2 *>(&(x))[0])
__global__ void __launch_bounds__(64) k(const TYPE *A, int *C, int M, int K)
{
    __shared__ TYPE As[COUNT][64];
    const int t = threadIdx.x;
    int sum = 0;
    for (int k0 = 0; k0 < K; k0 += COUNT) {
        TYPE held[COUNT];
        LOAD
        STORE
        __syncthreads();
        for (int k = 0; k < COUNT; k++) sum += As[k][t];
        __syncthreads();
    }
    C[t] = sum;
}
"""
ONE = "VECTOR(held[0]) = *reinterpret_cast<const uint2 *>(&A[t * K + k0]);"
STORES = "\n        ".join(f"As[{j}][t] = held[{j}];" for j in range(8))


def _held(kind: str = "signed char", load: str = ONE, store: str = STORES, count: int = 8) -> str:
    text = HELD.replace("TYPE", kind).replace("LOAD", load).replace("STORE", store).replace("COUNT", str(count))
    return rewritten(understood(text, (64, 1, 1)), "ldg").text


@pytest.mark.parametrize("load", [ONE, f"VECTOR(held[0]) = make_uint2(0, 0); if (t < M) {ONE}"])
def test_a_vector_of_bytes_is_held_whole(load: str) -> None:
    text = _held(load=load)
    assert "uint2 As_next;" in text
    assert text.count("As_next = reinterpret_cast<const uint2 &>(held[0]);") == 1
    for j in range(8):
        assert f"As[{j}][t] = reinterpret_cast<const signed char *>(&As_next)[{j}];" in text
    assert load.split(";")[0] in text


def test_of_two_vectors_each_is_held() -> None:
    load = f"{ONE} VECTOR(held[8]) = *reinterpret_cast<const uint2 *>(&A[t * K + k0 + 8]);"
    stores = "\n        ".join(f"As[{j}][t] = held[{j}];" for j in range(16))
    text = _held(load=load, store=stores, count=16)
    assert "As_next = reinterpret_cast<const uint2 &>(held[0]);" in text
    assert "As_next_2 = reinterpret_cast<const uint2 &>(held[8]);" in text
    assert "As[15][t] = reinterpret_cast<const signed char *>(&As_next_2)[7];" in text


@pytest.mark.parametrize(
    "store",
    [
        STORES.replace("As[3]", "if (t > 3) As[3]"),  # some elements only where a condition holds
        STORES.replace("As[3]", f"{ONE} As[3]"),  # loaded anew between the stores
        STORES.replace("held[3]", "held[3] + 1"),  # computed on the way
    ],
)
def test_what_is_not_one_vector_at_one_place_is_held_apart(store: str) -> None:
    assert "reinterpret_cast<const uint2 &>" not in _held(store=store)


def test_whole_registers_are_held_as_they_were() -> None:
    stores = "As[0][t] = held[0]; As[1][t] = held[1];"
    assert "reinterpret_cast<const uint2 &>" not in _held("int", store=stores, count=2)
