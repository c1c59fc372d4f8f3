"""Softmax of each row, a row for each program. What the kernel does not need (torch, a GPU's driver) may be missing."""

import torch_that_is_not_installed as torch
import triton
import triton.language as tl

DEVICE = torch.device("cuda")


def choices():
    return [triton.Config({}, num_warps=triton.runtime.driver.active.get_current_target().warp_size // 8)]


@triton.autotune(configs=choices(), key=["columns"])
@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["columns"])})
@triton.jit
def softmax_kernel(out_ptr, in_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](out, x, x.shape[1])
    return out
