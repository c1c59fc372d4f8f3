"""Launch bounds with a minimum of blocks: written byte-exactly, and refused where the kernel's head is not clear."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import Refusal
from tilewright.launch.expressions import parse
from tilewright.rewrite.cap_registers import bounded
from tilewright.source.reader import read_source

BODY = "(float *a)\n{\n    a[threadIdx.x] = 1.0f;  // __launch_bounds__(7)\n}\n"
CONSTANTS = {"THREADS": 256, "BM": 128, "TM": 8}


def value(text: str) -> int | None:
    try:
        return parse(text).evaluate_int(CONSTANTS)
    except TilewrightError:
        return None


def bound(head: str, threads: int = 256, blocks: int = 3, body: str = BODY, before: str = "") -> str | Refusal:
    """The head as it is written anew; everything else has to be as it was."""
    text = before + head + body
    source = read_source(text.encode(), "sample.cu")
    new = bounded(source, source.kernel("f"), threads, blocks, value)
    if isinstance(new, Refusal):
        return new
    assert new.startswith(before)
    assert new.endswith(body)
    return new[len(before) : len(new) - len(body)]


@pytest.mark.parametrize(
    ("head", "written"),
    [
        ("__global__ void f", "__global__ __launch_bounds__(256, 3) void f"),
        ('extern "C" __global__ void f', 'extern "C" __global__ __launch_bounds__(256, 3) void f'),
        ("static __global__ void\nf", "static __global__ __launch_bounds__(256, 3) void\nf"),
        ("void __global__ f", "void __global__ __launch_bounds__(256, 3) f"),
        ("template <int BK>\n__global__ void f", "template <int BK>\n__global__ __launch_bounds__(256, 3) void f"),
        ("__global__ /* all of it */ void f", "__global__ __launch_bounds__(256, 3) /* all of it */ void f"),
        ("__global__ void __launch_bounds__(256) f", "__global__ void __launch_bounds__(256, 3) f"),
        ("__global__ void __launch_bounds__( THREADS )\nf", "__global__ void __launch_bounds__( THREADS, 3 )\nf"),
        ("__launch_bounds__(256) __global__ void f", "__launch_bounds__(256, 3) __global__ void f"),
        ("__global__ __launch_bounds__(256, 1) void f", "__global__ __launch_bounds__(256, 3) void f"),
        ("__global__ void __launch_bounds__(256, 2, 4) f", "__global__ void __launch_bounds__(256, 3, 4) f"),
        ("__global__ __launch_bounds__(max(TM, 256), 1 /**/) void f",
         "__global__ __launch_bounds__(max(TM, 256), 3 /**/) void f"),
        ("__global__ void __launch_bounds__((BM / 8) * 16) f", "__global__ void __launch_bounds__((BM / 8) * 16, 3) f"),
        # The bound is larger than the block: the minimum counts blocks of the bound's size.
        ("__global__ void __launch_bounds__(768) f", "__global__ void __launch_bounds__(768, 1) f"),
    ],
)  # fmt: skip
def test_bounds_are_written_and_nothing_else(head: str, written: str) -> None:
    assert bound(head) == written


def test_windows_line_ends_and_a_namespace_stay() -> None:
    body = BODY.replace("\n", "\r\n") + "}\r\n"
    assert bound("__global__ void\r\nf", body=body, before="namespace n {\r\n") == (
        "__global__ __launch_bounds__(256, 3) void\r\nf"
    )


@pytest.mark.parametrize(
    ("head", "before", "what"),
    [
        ("KERNEL f", "#define KERNEL __global__ void\n", "once"),
        ("LB __global__ void f", "#define LB __launch_bounds__(256)\n", "`LB`"),
        ("LB(256) __global__ void f", "#define LB(n) __launch_bounds__(n)\n", "`LB`"),
        ("__global__ void __launch_bounds__(UNKNOWN) f", "", "UNKNOWN"),
        ("__global__ void __launch_bounds__(128) f", "", "allows"),  # fewer than are launched
        ("__global__ void __launch_bounds__(512) f", "", "divisor"),  # 3 x 256 threads are no multiple of 512
        ("__global__ void __launch_bounds__(256, 3) f", "", "already"),
        ("__global__ void __launch_bounds__(256, 8) f", "", "already"),
        ("__global__ void __launch_bounds__(256, UNKNOWN) f", "", "already"),
        ("__global__\n#ifdef X\n__launch_bounds__(256)\n#endif\nvoid f", "", "preprocessor"),
        ("__global__ __maxnreg__(64) void f", "", "other means"),
        ("__global__ __launch_bounds__(256) __launch_bounds__(256, 2) void f", "", "once"),
        ("__global__ __launch_bounds__(pick<256, 2>()) void f", "", "not understood"),
    ],
)
def test_an_unclear_head_is_refused(head: str, before: str, what: str) -> None:
    try:
        found = bound(head, before=before)
    except TilewrightError:
        return  # no kernel is found at all: refused before it comes to this
    assert isinstance(found, Refusal)
    assert what in found.message
    assert found.line is not None
