"""Results of attention over parts of the keys, merged by the logarithms of their sums of exponentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def merge_attention(values: np.ndarray, logs: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    """Each part weighed by the exponential of its logarithm. ``values``: [P, N, D]; ``logs``: [P, N].

    A part whose logarithm is -inf counts for nothing, whatever its values are; without any other, or without
    any part, the result is 0.
    """
    import numpy as np

    logs = logs.astype(np.float64)
    seen = logs != -np.inf
    base = np.where(seen, logs, -np.inf).max(axis=0, initial=-np.inf)
    base = np.where(base == -np.inf, 0.0, base)
    weights = np.exp(logs - base)
    total = weights.sum(axis=0)
    parts = np.where(seen[..., None], values.astype(np.float64) * weights[..., None], 0.0)
    merged = np.where(total[:, None] == 0, 0.0, parts.sum(axis=0) / total[:, None])
    return {"merged": merged, "merged_logs": base + np.log(total)}
