"""Intervals with a step: where indices of vectors end, and which memory an index names at all."""

from __future__ import annotations

import itertools

import pytest
from source_samples import opened, read

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.kloop.ranges import Interval
from tilewright.workflow.understanding import understand

# int8 tiles carved out of dynamic shared memory, 16 bytes a copy, the column by way of a remainder.
CARVED = """
extern "C" __global__ void k(const signed char *A, const signed char *B, int *C, int K)
{
    extern __shared__ __align__(16) char raw[];
    signed char *As = reinterpret_cast<signed char *>(raw);
    signed char *Bs = reinterpret_cast<signed char *>(raw + 1024);
    int tid = threadIdx.x;
    int sum = 0;
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = tid * STEP; i < 32 * 32; i += 64 * STEP) {
            int r = i / 32;
            int c = i % 32;
            *reinterpret_cast<int4 *>(&As[r * 32 + c]) = *reinterpret_cast<const int4 *>(&A[r * K + k0 + c]);
        }
        for (int i = tid; i < 32 * 32; i += 64) {
            Bs[i] = B[k0 * 32 + i];
        }
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += As[tid / 2 * 32 + k] * Bs[k * 32 + tid % 32];
        __syncthreads();
    }
    C[blockIdx.x * 64 + tid] = sum;
}
"""


@pytest.mark.parametrize("op", ["+", "-", "*", "union"])
def test_arithmetic_leaves_nothing_out(op: str) -> None:
    for (low, step, more), (low2, step2, more2) in itertools.product(
        [(0, 4, 3), (3, 6, 2), (-5, 5, 2), (7, 1, 0)], repeat=2
    ):
        a, b = Interval(low, low + step * more, step), Interval(low2, low2 + step2 * more2, step2)
        xs, ys = (range(i.low, i.high + 1, i.step or 1) for i in (a, b))
        match op:
            case "+":
                out, values = a + b, {x + y for x in xs for y in ys}
            case "-":
                out, values = a - b, {x - y for x in xs for y in ys}
            case "*":
                out, values = a * b, {x * y for x in xs for y in ys}
            case _:
                out, values = a.union(b), {*xs, *ys}
        assert values <= set(range(out.low, out.high + 1, out.step or 1)), (op, a, b, out)
        assert {min(values), max(values)} == {out.low, out.high}


def test_the_high_end_is_one_of_the_numbers() -> None:
    assert Interval(0, 2047, 16) == Interval(0, 2032, 16)
    assert Interval(5, 5, 8).step == 0


def test_the_last_vector_of_a_row_ends_with_the_row() -> None:
    found = understand(opened(CARVED.replace("STEP", "16")), (64, 1, 1), 2048)
    assert isinstance(found, TiledKernel), found


def test_one_that_may_begin_in_its_middle_does_not() -> None:
    found = understand(opened(CARVED.replace("STEP", "8")), (64, 1, 1), 2048)
    assert isinstance(found, Refusal)
    assert found.message == "`As` may be used beyond its 1024 bytes of the dynamic shared memory"


# The address of a tile was taken in front of the loop, and the loads name threadIdx: which is no memory.
BUILTIN = """
extern "C" __global__ void k(const float *__restrict__ A, float *__restrict__ C, float *__restrict__ log, int K)
{
    __shared__ float As[64];
    BEFORE
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 64) {
        for (int c = threadIdx.x; c < 64; c += 64) {
            As[c] = LOAD;
        }
        __syncthreads();
        for (int k = 0; k < 64; k++) sum += As[k];
        log[0] = sum;
        __syncthreads();
    }
    C[threadIdx.x] = sum;
}
"""


def test_an_index_of_the_thread_is_no_read_of_memory() -> None:
    before = "As[threadIdx.x] = 0.0f;\n    __syncthreads();"
    found = read(BUILTIN.replace("BEFORE", before).replace("LOAD", "A[k0 + c]"), (64, 1, 1))
    assert isinstance(found, TiledKernel), found
    assert "loads through `A` do not see stores through `log`: both are __restrict__" in found.assumptions


def test_a_pointer_that_may_lead_into_the_tile_is_one() -> None:
    before = "const float *p = K > 7 ? A : As;"
    found = read(BUILTIN.replace("BEFORE", before).replace("LOAD", "p[k0 + c]"), (64, 1, 1))
    assert isinstance(found, Refusal)
    assert found.code == "may_alias"
    quiet = BUILTIN.replace("log[0] = sum;", "")
    found = read(quiet.replace("BEFORE", before).replace("LOAD", "p[k0 + c]"), (64, 1, 1))
    assert isinstance(found, Refusal)
    assert found.message == "where a load reads from is not known: it may be a tile"
