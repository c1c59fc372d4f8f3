"""Reading and rewriting small kernels in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite import cp_async, ldg
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.source.reader import OpenKernel, open_kernel, read_source

STATIC_LIMIT = 48 * 1024
BLOCKS = {"scalar": (16, 16, 1), "bytes": (64, 1, 1), "vector": (64, 1, 1)}
Rewriter = Callable[[TiledKernel, Remedy], RewrittenSource | Refusal]
REWRITERS: dict[str, Rewriter] = {
    "ldg": lambda k, r: ldg.rewrite(k, False, STATIC_LIMIT, r),
    "ldg_single": lambda k, r: ldg.rewrite(k, True, STATIC_LIMIT, r),
    "cp_async": lambda k, r: cp_async.rewrite(k, 3, STATIC_LIMIT, r),
}


def opened(text: str, values: Mapping[str, int] | None = None, kernel: str | None = None) -> OpenKernel:
    source = read_source(text.encode(), "sample.cu")
    return open_kernel(source, source.kernel(kernel), values or {})


def read(
    text: str, block: tuple[int, int, int] | None = None, values: Mapping[str, int] | None = None
) -> TiledKernel | Refusal:
    return analyse(opened(text, values), block)


def understood(
    text: str, block: tuple[int, int, int] | None = None, values: Mapping[str, int] | None = None
) -> TiledKernel:
    kernel = read(text, block, values)
    assert isinstance(kernel, TiledKernel), kernel
    return kernel


def rewritten(kernel: TiledKernel, variant: str, remedy: Remedy | None = None) -> RewrittenSource:
    result = REWRITERS[variant](kernel, remedy or Remedy())
    assert isinstance(result, RewrittenSource), result
    return result
