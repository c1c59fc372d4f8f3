"""What a skeleton should compute, as the Python file that its sidecar names: float64 with NumPy."""

from __future__ import annotations

from tilewright.skeleton.elementwise import NAMES
from tilewright.tile.ops import Attention, Convolution, Elementwise, Gemm, Op, RowReduction

_HEAD = '"""What the kernel should compute, in float64."""\n\nimport numpy as np\n\n\n'
_GEMM = """def reference(A, B, **_):
    return {"C": A.astype("float64") @ B.astype("float64")}
"""
_ATTENTION = """def reference(Q, K, V, scale, **_):
    q, k, v = (x.astype("float64") for x in (Q, K, V))
    scores = q @ np.swapaxes(k, -1, -2) * scale
$mask    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return {"O": weights / weights.sum(axis=-1, keepdims=True) @ v}
"""
_MASK = """    n = scores.shape[-1]
    scores[..., np.triu(np.ones((n, n), dtype=bool), 1)] = -np.inf
"""
_SUM = """def reference(X, **_):
    return {"Y": X.astype("float64").sum(axis=1)}
"""
_SOFTMAX = """def reference(X, **_):
    x = X.astype("float64")
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return {"Y": weights / weights.sum(axis=1, keepdims=True)}
"""
_CONV = """def reference(X, F, **_):
    pad, stride = $pad, $stride
    x = np.pad(X.astype("float64"), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    _, taps_h, taps_w, _ = F.shape
    p, q = (x.shape[1] - taps_h) // stride + 1, (x.shape[2] - taps_w) // stride + 1
    y = 0.0
    for r in range(taps_h):
        for s in range(taps_w):
            y = y + x[:, r : r + (p - 1) * stride + 1 : stride, s : s + (q - 1) * stride + 1 : stride] @ F[:, r, s].T
    return {"Y": y}
"""


def reference_of(op: Op, has_second_pass: bool) -> str:
    """The reference file's text; "" where there is none.

    A first pass has no result of its own to compare. Products as TF32 are further from float64 than the float32 of the
    arrays allows.
    """
    if has_second_pass:
        return ""
    if isinstance(op, Gemm):
        return "" if op.dtype == "float32" else _HEAD.replace("import numpy as np\n\n\n", "\n") + _GEMM
    if isinstance(op, Attention):
        return _HEAD + _ATTENTION.replace("$mask", _MASK if op.causal else "")
    if isinstance(op, RowReduction):
        return _HEAD + (_SOFTMAX if op.writes_rows else _SUM)
    if isinstance(op, Convolution):
        return _HEAD + _CONV.replace("$pad", str(op.pad)).replace("$stride", str(op.stride))
    if isinstance(op, Elementwise):
        return _elementwise(op)
    return ""


def _elementwise(op: Elementwise) -> str:
    names = [f"{name.upper()}_" for name in NAMES[: op.inputs]]
    total = " + ".join(f'{name}.astype("float64")' for name in names)
    return f'{_HEAD}def reference({", ".join(names)}, **_):\n    return {{"Y": {total}}}\n'.replace(
        "import numpy as np\n\n\n", "\n"
    )
