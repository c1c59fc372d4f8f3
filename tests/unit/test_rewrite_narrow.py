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
