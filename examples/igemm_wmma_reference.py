"""What igemm_wmma.cu computes, in float64 (integer sums below 2**53 are exact there)."""

from __future__ import annotations

import numpy as np


def reference(
    matrix_a: np.ndarray, matrix_b: np.ndarray, scale_a: float, scale_b: float, **_unused: object
) -> dict[str, np.ndarray]:
    """C[M, N] = A[M, K] @ B[K, N] * scale_a * scale_b."""
    product = matrix_a.astype(np.float64) @ matrix_b.astype(np.float64)
    return {"matrix_c": product * float(scale_a) * float(scale_b)}
