"""What the skeletons compute, in float64 NumPy: the texts of ``KERNEL_reference.py``."""

from __future__ import annotations

_HEAD = '''"""What {kernel} computes, in float64."""

from __future__ import annotations

import numpy as np


def reference({arguments}, **_unused: object) -> dict[str, np.ndarray]:
'''


def _text(kernel: str, arguments: str, body: str) -> str:
    named = ", ".join(f"{name}: np.ndarray" for name in arguments.split())
    return _HEAD.format(kernel=kernel, arguments=named) + body


def gemm_reference(kernel: str) -> str:
    """C = A @ B, batched."""
    return _text(kernel, "A B", '    return {"C": A.astype(np.float64) @ B.astype(np.float64)}\n')


def conv_reference(kernel: str, stride: int, pad: int) -> str:
    """NHWC, filters KRSC: one product per tap."""
    body = f"""    stride, pad = {stride}, {pad}
    taps_down, taps_across = F.shape[1:3]
    rows = (X.shape[1] + 2 * pad - taps_down) // stride + 1
    columns = (X.shape[2] + 2 * pad - taps_across) // stride + 1
    padded = np.pad(X.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    y = np.zeros((X.shape[0], rows, columns, F.shape[0]))
    for i in range(taps_down):
        for j in range(taps_across):
            pixels = padded[:, i::stride, j::stride][:, :rows, :columns]
            y += pixels @ F[:, i, j].astype(np.float64).T
    return {{"Y": y}}
"""
    return _text(kernel, "X F", body)


def attention_reference(kernel: str, causal: bool) -> str:
    """Softmax of scaled scores, times V; some queries at a time, for the scores of all would not fit the memory."""
    mask = "            scores[np.arange(n) > first + np.arange(len(scores))[:, None]] = -np.inf\n" if causal else ""
    body = f"""    n, d = Q.shape[-2:]
    q, k, v = (x.astype(np.float64).reshape(-1, n, d) for x in (Q, K, V))
    out = np.empty_like(q)
    for head in range(len(q)):
        for first in range(0, n, 1024):
            scores = q[head, first : first + 1024] @ k[head].T / d**0.5
{mask}            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[head, first : first + 1024] = weights @ v[head] / weights.sum(axis=1, keepdims=True)
    return {{"O": out.reshape(Q.shape)}}
"""
    return _text(kernel, "Q K V", body)


def rows_reference(kernel: str, op: str) -> str:
    """Sums, softmax or LayerNorm of rows."""
    if op == "layernorm":
        body = """    x = X.astype(np.float64)
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return {"Y": (x - x.mean(axis=1, keepdims=True)) / deviation * scale + shift}
"""
        return _text(kernel, "X scale shift", body)
    if op == "sum":
        return _text(kernel, "X", '    return {"Y": X.astype(np.float64).sum(axis=1)}\n')
    body = """    x = X.astype(np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return {"Y": weights / weights.sum(axis=1, keepdims=True)}
"""
    return _text(kernel, "X", body)


def sum_reference(kernel: str, inputs: tuple[str, ...]) -> str:
    """Elementwise: the sum of the inputs."""
    total = " + ".join(f"{name}.astype(np.float64)" for name in inputs)
    return _text(kernel, " ".join(inputs), f'    return {{"Y": {total}}}\n')
