"""The constants of a TiledKernel, for rooms below that hold expressions of it."""

from __future__ import annotations

from tilewright.source.constants import Constants
from tilewright.source.kernel import TiledKernel


def constants_of(kernel: TiledKernel) -> Constants:
    """An evaluator over the integer constants that the kernel's file defines."""
    return Constants(kernel.constants, {}, kernel.symbols, {})
