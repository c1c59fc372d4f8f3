"""numba's CUDA simulator: a thread block's threads are Python threads that run the kernel's own Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when numba is imported

import numba
import numpy as np
import product
from numba import cuda

TILE = 16


@cuda.jit
def igemm(a: Any, b: Any, c: Any, k: int, scale: Any) -> None:
    """A tile of A and one of B in shared memory, one element of C a thread.

    ``int`` widens faster in the simulator than numba's or NumPy's int32; tiles of 8 and 32 took longer than 16.
    """
    # The simulator tells shared arrays apart by their line: one a line.
    smem_a = cuda.shared.array((TILE, TILE), numba.int8)
    smem_b = cuda.shared.array((TILE, TILE), numba.int8)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE + x
    total = 0
    for k0 in range(0, k, TILE):
        smem_a[y, x] = a[row, k0 + x]
        smem_b[y, x] = b[k0 + y, col]
        cuda.syncthreads()
        for kk in range(TILE):
            total += int(smem_a[y, kk]) * int(smem_b[kk, x])
        cuda.syncthreads()
    c[row, col] = np.float32(total) * scale


def prepare(example: str, size: int, mode: str) -> tuple[Callable[[], Any], Callable[[Any], str]]:
    assert (example, mode) == ("igemm_wmma", f"tile_{TILE}")
    a, b = product.operands(size)
    grid = (size // TILE, size // TILE)

    def run() -> Any:
        c = np.full((size, size), np.nan, np.float32)
        igemm[grid, (TILE, TILE)](a, b, c, size, product.SCALE)
        return c

    return run, lambda c: "" if product.is_exact(c, size) else "the product is wrong"


def versions() -> dict[str, str]:
    return {"numba": numba.__version__, "numpy": np.__version__}
