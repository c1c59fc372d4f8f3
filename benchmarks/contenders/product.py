"""The product that every contender computes: that of examples/igemm_wmma.cu, on the same operands."""

from __future__ import annotations

from typing import Any

import numpy as np

SCALE_A, SCALE_B = 0.05, 0.02
SCALE = np.float32(SCALE_A) * np.float32(SCALE_B)


def operands(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A and B, int8, (size, size), row-major."""
    generator = np.random.default_rng(size)
    a, b = (generator.integers(-20, 20, (size, size), dtype=np.int8) for _ in range(2))
    return a, b


def is_exact(c: np.ndarray[Any, Any], size: int) -> bool:
    """Whether C, float32, is (A @ B) * SCALE to the bit: sums are kept in int32, so no order of them matters."""
    a, b = operands(size)
    # Sums of at most 2**9 products below 2**9 are exact in double precision.
    sums = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32)
    return bool(np.array_equal(c.reshape(size, size), sums.astype(np.float32) * SCALE))
