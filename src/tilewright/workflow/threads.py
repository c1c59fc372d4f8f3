"""How many threads a block has, where no sidecar says so."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import CopyLoop, TiledKernel
from tilewright.launch.expressions import parse


def bound_of(launch_bounds: str, constants: dict[str, int]) -> int | None:
    """The first argument of ``__launch_bounds__``, evaluated with the file's constants; None where there is none."""
    text = _first(launch_bounds)
    if not text:
        return None
    try:
        return parse(text).evaluate_int(constants)
    except TilewrightError:
        return None


def with_threads(kernel: TiledKernel, launch_bounds: str) -> TiledKernel:
    """The kernel with its thread count, taken from ``__launch_bounds__`` or from the stride of a copy loop.

    What is taken for granted is added to the kernel's assumptions. Without either the count stays unknown.
    """
    if kernel.tile.threads is not None:
        return kernel
    threads, source = bound_of(launch_bounds, kernel.constants), "__launch_bounds__"
    if threads is None:
        loops = [i for i in kernel.loads if isinstance(i, CopyLoop) and i.first_value is None]
        threads = next((i.stride_value for i in loops if i.stride_value), None)
        source = "the stride of a copy loop"
    if threads is None:
        return kernel
    text = f"a block has {threads} threads, from {source}"
    return replace(kernel, tile=replace(kernel.tile, threads=threads), assumptions=(*kernel.assumptions, text))


def _first(arguments: str) -> str:
    """The text in front of the first comma that stands outside parentheses."""
    depth = 0
    for i, c in enumerate(arguments):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            return arguments[:i].strip()
    return arguments.strip()
