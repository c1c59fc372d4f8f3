"""Products with layouts and epilogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ladder.references.gelu import gelu

if TYPE_CHECKING:
    import numpy as np

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")  # at the places by which kernels know them


def matmul(
    a: np.ndarray,
    b: np.ndarray,
    bias: np.ndarray,
    c: np.ndarray,
    *,
    alpha: float,
    beta: float,
    activation: int,
    **_: object,
) -> dict[str, np.ndarray]:
    """``y = activation(alpha * a @ b + beta * c + bias)``.

    Args:
        a: [B, M, K]. b: [B, K, N]. bias: [N], or empty for none. c: [B, M, N], or empty.
        activation: an index of ``ACTIVATIONS``; ``gelu`` is the exact one, by the error function.
    """
    import numpy as np

    with np.errstate(all="ignore"):  # inf - inf is NaN, and no mistake
        y = float(alpha) * (a.astype("float64") @ b.astype("float64"))
        if c.size:
            y = y + float(beta) * c.astype("float64")
        if bias.size:
            y = y + bias.astype("float64")
        return {"y": _activated(y, ACTIVATIONS[int(activation)])}


def _activated(x: np.ndarray, name: str) -> np.ndarray:
    import numpy as np

    if name == "relu":
        return np.where(x < 0, 0.0, x)
    if name == "gelu":
        return np.asarray(gelu(x)["y"])
    if name == "gelu_tanh":
        x = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    elif name == "silu":
        x = x / (1.0 + np.exp(-x))
    return x
