"""Triton's interpreter: each program's tensors are NumPy arrays, one program after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated

import numpy as np
import product
import torch
import triton
import triton.language as tl


@triton.jit
def igemm(
    a, b, c, m, n, k, scale,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * block_m + tl.arange(0, block_m)
    cols = tl.program_id(0) * block_n + tl.arange(0, block_n)
    depth = tl.arange(0, block_k)
    a_at = a + rows[:, None] * k + depth[None, :]
    b_at = b + depth[:, None] * n + cols[None, :]
    sums = tl.zeros((block_m, block_n), dtype=tl.int32)
    for k0 in range(0, k, block_k):
        a_tile = tl.load(a_at, mask=(rows[:, None] < m) & (k0 + depth[None, :] < k), other=0)
        b_tile = tl.load(b_at, mask=(k0 + depth[:, None] < k) & (cols[None, :] < n), other=0)
        sums = tl.dot(a_tile, b_tile, sums)
        a_at += block_k
        b_at += block_k * n
    c_at = c + rows[:, None] * n + cols[None, :]
    tl.store(c_at, sums.to(tl.float32) * scale, mask=(rows[:, None] < m) & (cols[None, :] < n))


def prepare(example: str, size: int, mode: str) -> tuple[Callable[[], Any], Callable[[Any], str]]:
    """``mode``: the block's M, N and K, ``block_64x64x32``."""
    assert example == "igemm_wmma"
    bm, bn, bk = (int(part) for part in mode.removeprefix("block_").split("x"))
    a, b = (torch.from_numpy(m) for m in product.operands(size))
    grid = (-(-size // bn), -(-size // bm))

    def run() -> Any:
        c = torch.full((size, size), float("nan"), dtype=torch.float32)
        igemm[grid](a, b, c, size, size, size, float(product.SCALE), bm, bn, bk)
        return c

    return run, lambda c: "" if product.is_exact(c.numpy(), size) else "the product is wrong"


def versions() -> dict[str, str]:
    return {"triton": triton.__version__, "torch": torch.__version__, "numpy": np.__version__}
