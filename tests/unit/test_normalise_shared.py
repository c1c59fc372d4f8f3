"""Declarations of shared arrays: one a statement, in front of what held them; and intervals of their indices."""

from __future__ import annotations

import pytest
from source_samples import opened

from tilewright.kloop.ranges import Interval, Ranges
from tilewright.normalise.loop_sites import Sites
from tilewright.normalise.run import normalise
from tilewright.normalise.shared_declarations import hoist, split
from tilewright.source import ir

_TEXT = """#define N 8
__global__ void k(float *C, int n)
{{
{top}    for (int k = 0; k < n; k += N) {{
{inside}        As[threadIdx.x] = C[k];
        __syncthreads();
        C[k] += As[0];
        __syncthreads();
    }}
{behind}}}
"""


def after(top: str = "", inside: str = "", behind: str = "") -> str:
    text = _TEXT.format(top=top, inside=inside, behind=behind)
    return normalise(opened(text), (8, 1, 1), passes=(split, hoist)).kernel.source.text.decode()


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("__shared__ float As[N], Bs[N][2];", "__shared__ float As[N];\n    __shared__ float Bs[N][2];"),
        (
            "__shared__ __align__(16) float As[N], Bs[N];",
            "__shared__ __align__(16) float As[N];\n    __shared__ __align__(16) float Bs[N];",
        ),
        (
            "alignas(16) __shared__ float As[N], Bs[N];",
            "alignas(16) __shared__ float As[N];\n    alignas(16) __shared__ float Bs[N];",
        ),
    ],
)
def test_several_arrays_of_one_statement_get_their_own(before: str, expected: str) -> None:
    assert after(top=f"    {before}\n") == _TEXT.format(top=f"    {expected}\n", inside="", behind="")


@pytest.mark.parametrize("before", ["__shared__ float As[N], *p;", "__shared__ float As[N] /* A */, Bs[N];"])
def test_what_is_no_plain_list_stays(before: str) -> None:
    assert after(top=f"    {before}\n") == _TEXT.format(top=f"    {before}\n", inside="", behind="")


def test_an_array_of_the_loop_stands_in_front_of_it() -> None:
    expected = _TEXT.format(top="    __shared__ float As[N];\n", inside="", behind="")
    assert after(inside="        __shared__ float As[N];\n") == expected


def test_pragmas_of_the_loop_stay_with_it() -> None:
    out = after(top="    #pragma unroll 1\n", inside="        __shared__ __align__(16) float As[N];\n")
    assert "    __shared__ __align__(16) float As[N];\n    #pragma unroll 1\n    for" in out


def test_a_name_that_means_something_else_outside_is_changed() -> None:
    out = after(inside="        __shared__ float As[N];\n", behind="    { float As = C[0]; C[1] = As; }\n")
    assert "    __shared__ float As_tile[N];\n    for" in out
    assert "As_tile[threadIdx.x] = C[k];" in out
    assert "float As = C[0]; C[1] = As;" in out


@pytest.mark.parametrize(
    "inside",
    [
        "        constexpr int size = 8;\n        __shared__ float As[size];\n",
        "        typedef float T;\n        __shared__ T As[N];\n",
    ],
)
def test_an_array_that_rests_on_names_of_the_loop_stays(inside: str) -> None:
    assert after(inside=inside) == _TEXT.format(top="", inside=inside, behind="")


INTERVALS = [
    ("threadIdx.x", (0, 255)),
    ("threadIdx.x / 8 * 32 + threadIdx.x % 8 * 4", (0, 1020, 4)),
    ("(threadIdx.x & 7) ^ 3", (0, 7)),
    ("threadIdx.x >> 5", (0, 7)),
    ("i * 16 + 1", (1, 49, 16)),
    ("at", (0, 255 + 3 * 64)),
    ("late", (0, 255 + 4 * 64)),
    ("n", None),
    ("threadIdx.x - 1u", None),
    ("threadIdx.y * n", None),
    ("moved", None),
    ("min(threadIdx.x, 3u)", (0, 3)),
    ("(threadIdx.x < 7 ? 100 : 2) + (threadIdx.x == 3)", (2, 101)),
    ("100000 * 100000", None),
]


@pytest.mark.parametrize(("text", "expected"), INTERVALS, ids=lambda x: str(x))
def test_intervals_hold_every_value(text: str, expected: tuple[int, ...] | None) -> None:
    kernel = opened(
        f"""__device__ void move(int &x) {{ x = 7; }}
__global__ void k(int *C, int n) {{
    int at = threadIdx.x, late = threadIdx.x, moved = 0;
    move(moved);
    for (int i = 0; i < 4; ++i) {{
        late += 64;
        C[0] = {text};
        at += 64;
    }}
}}"""
    )
    sites = Sites(kernel)
    ranges = Ranges(
        kernel.constants, sites.types, kernel.symbols, kernel.body, sites.changed, sites.is_plain, (256, 1, 1)
    )
    value = next(n.right for n in ir.walk(kernel.body) if isinstance(n, ir.Assign) and isinstance(n.left, ir.Index))
    assert ranges.of(value) == (None if expected is None else Interval(*expected))
