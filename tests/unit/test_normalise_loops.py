"""Loop headers: each form that is read keeps its meaning; its dangerous sibling is refused, with the reason."""

from __future__ import annotations

import pytest
from loop_kernels import READ, REFUSED, Form
from source_samples import opened

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.kloop.trips import trip_count
from tilewright.normalise.run import normalise
from tilewright.workflow.understanding import understand


@pytest.mark.parametrize("form", READ, ids=lambda f: f.name)
def test_a_form_is_read(form: Form) -> None:
    found = understand(opened(form.text), (16, 16, 1))
    assert isinstance(found, TiledKernel), found
    assert form.header in found.text.decode()
    assert found.handed_in == form.text
    for k in form.sizes:
        if form.name != "whole_tiles":
            assert trip_count(found, {"M": 32, "N": 16, "K": k}) == k // 16, k


@pytest.mark.parametrize("form", REFUSED, ids=lambda f: f.name)
def test_its_sibling_is_not(form: Form) -> None:
    text = form.text
    if form.name == "do_while":
        text = text.replace("        k += BK;\n    }", "        k += BK;\n    } while (k < K);")
    found = understand(opened(text), (16, 16, 1))
    assert isinstance(found, Refusal), found.text.decode()
    assert form.header in found.message
    assert found.line is not None


def test_what_is_not_rewritten_stays_byte_for_byte() -> None:
    form = next(f for f in READ if f.name == "two")
    text = form.text.replace(
        "        __syncthreads();\n        for", "        __syncthreads();  // wait\t\n\n        for"
    )
    after = normalise(opened(text), (16, 16, 1)).kernel.source.text.decode()
    head = "    for (int a = 0, b = 0; a < K; a += BK, b += step) {\n"
    expected = text.replace(head, "    int b = 0;\n    for (int a = 0; a < K; a += BK) {\n")
    expected = expected.replace("[i][tx];\n        __sync", "[i][tx];\n        b += step;\n        __sync")
    assert after == expected


TWO_LOADS = """__global__ void twice(const float *A, const float *B, float *C, int K)
{{
    __shared__ float As[16][16];
    __shared__ float Bs[16][16];
    const int tx = threadIdx.x, ty = threadIdx.y, r = 3;
    float sum = 0.0f;
    for (int k = 0; k < K; k += 16) {{
        As[ty][tx] = A[ty * K + k + tx];
        __syncthreads();
        sum += As[tx][ty] * r;
        __syncthreads();
        const int {name} = k + ty;
        Bs[ty][tx] = B[{name} * 16 + tx];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += As[ty][i] * Bs[i][tx];
        __syncthreads();
    }}
    C[ty * 16 + tx] = sum;
}}
"""


@pytest.mark.parametrize(("name", "moved"), [("q", True), ("r", False)])
def test_second_loads_do_not_hide_a_name_of_what_they_pass(name: str, moved: bool) -> None:
    text = TWO_LOADS.format(name=name)
    after = normalise(opened(text), (16, 16, 1))
    assert any("second load phase" in step for step in after.steps) == moved
    assert (after.kernel.source.text.decode() == text) != moved


COPY = """__global__ void load(const float *A, float *C, int K)
{{
    __shared__ float As[64][16];
    float sum = 0.0f;
    const unsigned rows = {rows};
    for (int k = 0; k < K; k += 16) {{
        for (unsigned at = 0; {condition}; at += rows)
            As[at + threadIdx.y][threadIdx.x] = A[(at + threadIdx.y) * K + k + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += As[threadIdx.y][i];
        __syncthreads();
    }}
    C[threadIdx.y * 16 + threadIdx.x] = sum;
}}
"""


@pytest.mark.parametrize(
    ("rows", "condition", "bound"),
    [
        ("16", "at + rows <= 64", "64"),
        ("24", "at + rows <= 64", "48"),
        ("16", "at <= 63", "63"),
        ("16", "at != 64", "64"),
    ],
)
def test_copy_loops_count_as_often(rows: str, condition: str, bound: str) -> None:
    after = normalise(opened(COPY.format(rows=rows, condition=condition)), (16, 16, 1))
    text = after.kernel.source.text.decode()
    assert f"for (unsigned at = 0; at < {bound}; at += rows)" in text


@pytest.mark.parametrize(
    ("rows", "condition"), [("K", "at + rows <= 64"), ("16", "at + rows <= K"), ("48", "at != 64")]
)
def test_copy_loops_of_unknown_trips_stay(rows: str, condition: str) -> None:
    text = COPY.format(rows=rows, condition=condition)
    assert normalise(opened(text), (16, 16, 1)).kernel.source.text.decode() == text
