"""Counts, summed by atomics, and their total."""

import triton
import triton.language as tl


@triton.jit
def histogram_kernel(values_ptr, counts_ptr, total_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    values = tl.load(values_ptr + at, mask=mask, other=0)
    tl.atomic_add(counts_ptr + values, 1, mask=mask)
    tl.atomic_add(total_ptr, tl.sum(tl.where(mask, values, 0), axis=0))
