"""A product of matrices, pipelined by Triton: copies of later steps are in flight while one is multiplied."""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SUM_TYPE: tl.constexpr = tl.float32,
):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM_TYPE)
    for k in range(0, K, BLOCK_K):
        a_mask = (rows[:, None] < M) & (k + steps[None, :] < K)
        b_mask = (k + steps[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + k + steps[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + (k + steps[:, None]) * N + columns[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, out_dtype=SUM_TYPE)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)
