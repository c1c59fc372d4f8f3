"""Row ops, elementwise ops and attention from skeletons: within their type's rounding, each output written once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from skeleton_runs import Done, compiled, edited, run

from tilewright.arch.arch import load_arch
from tilewright.skeleton.attention import AttentionTile, attention_cuda
from tilewright.skeleton.elementwise import ElementwiseTile, elementwise_cuda
from tilewright.skeleton.rows import RowTile, rows_cuda
from tilewright.skeleton.skeleton import Skeleton

ARCH = "sm_86"
NUMPY = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
EPSILON = {"fp16": 2**-11, "bf16": 2**-8, "fp32": 2**-24}  # of one rounding
FP32_STEPS = 64 * 2**-24  # what a chain of FP32 steps, exponentials among them, adds to it


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rows(op: str, tile: RowTile, dtype: str, shape: tuple[int, int], *edits: tuple[str, str]) -> tuple[Done, bool]:
    """What came out, and whether it is within the rounding of the exact result."""
    count, columns = shape
    skeleton = edited(rows_cuda(op, tile, dtype, load_arch(ARCH), columns=columns), *edits)
    rng = np.random.default_rng(columns)
    x = rng.normal(3, 1, shape).astype(NUMPY[dtype])
    inputs = {"X": x}
    exact = x.astype(np.float64)
    if op == "softmax":
        x[:, : columns // 3] = -np.inf  # a row may begin masked
        exact = softmax(x.astype(np.float64))
        allowed = exact * (EPSILON[dtype] + FP32_STEPS) + 2**-25
    elif op == "layernorm":
        inputs |= {name: rng.normal(1, 0.1, columns).astype(np.float32) for name in ("scale", "shift")}
        deviation = np.sqrt(exact.var(1, keepdims=True) + 1e-5)
        exact = (exact - exact.mean(1, keepdims=True)) / deviation * inputs["scale"] + inputs["shift"]
        allowed = np.abs(exact) * (EPSILON[dtype] + FP32_STEPS) + 8 * FP32_STEPS
    else:
        allowed = np.abs(exact).sum(1) * FP32_STEPS
        exact = exact.sum(1)
    done = run(skeleton, ARCH, {"R": count, "C": columns}, inputs, ["Y"], 1)
    return done, is_close(done, "Y", exact, allowed)


def is_close(done: Done, name: str, exact: np.ndarray, allowed: np.ndarray) -> bool:
    if name not in done.arrays:
        return False
    return bool((np.abs(done.arrays[name].astype(np.float64).reshape(exact.shape) - exact) <= allowed).all())


@pytest.mark.parametrize(
    ("op", "tile", "dtype", "shape"),
    [
        ("sum", RowTile(128, 4, 2), "fp32", (9, 148)),  # a warp per row, the last block not full
        ("sum", RowTile(64, 1, 1, 3), "bf16", (2, 1030)),  # three blocks per row
        ("softmax", RowTile(64, 1, 2), "fp16", (3, 1304)),  # a block per row, in more than one round
        ("softmax", RowTile(64, 1, 1, 2), "fp32", (2, 333)),  # no vectors
        ("layernorm", RowTile(64, 2, 4), "bf16", (3, 264)),
        ("layernorm", RowTile(64, 1, 1, 2), "fp32", (2, 1100)),
    ],
)
def test_rows(op: str, tile: RowTile, dtype: str, shape: tuple[int, int]) -> None:
    done, right = rows(op, tile, dtype, shape)
    assert done.problems == ()
    assert right


WRITES = "        Vector values[LOADS];\n        load(values, from"


@pytest.mark.parametrize(
    ("op", "edit"),
    [
        ("sum", ("if (at < end) {\n            values[i] =", "if (true) {\n            values[i] =")),
        ("sum", ("__syncthreads();", "")),
        ("sum", ("lane < WARPS ? states[lane] : nothing()", "states[0]")),
        ("softmax", ("state.sum = state.sum * __expf(state.largest - base) + sum;", "state.sum += sum;")),
        (
            "softmax",
            (
                "at = column + ROUND; at < end; at += ROUND) {\n" + WRITES,
                "at = column; at < end; at += ROUND) {\n" + WRITES,
            ),
        ),
        ("layernorm", ("difference * difference * a.count * share", "0.0f")),
    ],
)
def test_a_broken_row_op_is_caught(op: str, edit: tuple[str, str]) -> None:
    done, right = rows(op, RowTile(64, 1, 2), "fp32", (3, 1100), edit)
    assert done.problems or not right


def elementwise(tile: ElementwiseTile, dtype: str, n: int, *edits: tuple[str, str]) -> tuple[Done, bool]:
    skeleton = edited(elementwise_cuda(tile, dtype, load_arch(ARCH), inputs=2, expression="a * b + 1.0f"), *edits)
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-9, 9, n).astype(NUMPY[dtype]) for _ in range(2))
    expected = (a.astype(np.float32) * b.astype(np.float32) + 1).astype(NUMPY[dtype])
    done = run(skeleton, ARCH, {"n": n}, {"A_": a, "B_": b}, ["Y"])
    return done, "Y" in done.arrays and bool((done.arrays["Y"] == expected).all())


@pytest.mark.parametrize(
    ("tile", "dtype", "n"),
    [(ElementwiseTile(64, 2), "fp32", 4099), (ElementwiseTile(128, 4, blocks_max=2), "fp16", 12345)],
)
def test_elementwise(tile: ElementwiseTile, dtype: str, n: int) -> None:
    done, right = elementwise(tile, dtype, n)
    assert done.problems == ()
    assert right


@pytest.mark.parametrize(
    "edit",
    [
        ("if (left < n) {", "if (false) {"),
        ("base < vectors; base += stride", "base < vectors; base += 2 * stride"),
        ("long long vectors = n / VEC;", "long long vectors = n / VEC + 1;"),
    ],
)
def test_a_broken_elementwise_op_is_caught(edit: tuple[str, str]) -> None:
    done, right = elementwise(ElementwiseTile(64, 1, blocks_max=2), "fp32", 4099, edit)
    assert done.problems or not right


HEADS = {"B": 1, "H": 2, "N": 45}


def attention(tile: AttentionTile, dtype: str, d: int, causal: bool, *edits: tuple[str, str]) -> tuple[Done, bool]:
    """Weights are rounded to the operands' type before they meet V, the result once more."""
    skeleton = edited(attention_cuda(tile, dtype, load_arch(ARCH), d=d, causal=causal), *edits)
    n, rng = HEADS["N"], np.random.default_rng(d)
    given = {name: rng.normal(size=(2, n, d)).astype(NUMPY[dtype]) for name in "QKV"}
    q, k, v = (x.astype(np.float64) for x in given.values())
    scores = q @ k.transpose(0, 2, 1) * d**-0.5
    p = softmax(np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf) if causal else scores)
    allowed = (p @ np.abs(v)) * 2.5 * EPSILON[dtype] + 1e-5
    done = run(skeleton, ARCH, HEADS, given, ["O"], 1)
    return done, is_close(done, "O", p @ v, allowed)


@pytest.mark.parametrize(
    ("tile", "dtype", "d", "causal"),
    [
        (AttentionTile(32, 16, 2, 2), "fp16", 64, True),
        (AttentionTile(32, 16, 1, 3), "bf16", 32, False),
        (AttentionTile(64, 32, 2, 1), "fp16", 16, True),
    ],
)
def test_attention(tile: AttentionTile, dtype: str, d: int, causal: bool) -> None:
    done, right = attention(tile, dtype, d, causal)
    assert done.problems == ()
    assert right
    assert done.conflicts == 0


@pytest.mark.parametrize(
    "edit",
    [
        ("key >= N || ", ""),
        ("CAUSAL && key > query", "CAUSAL && key > query + 1"),
        ("sum[m][half] = sum[m][half] * rescale + part;", "sum[m][half] += part;"),
        ("if (row0 + row < N) {", "if (true) {"),
        ("wait_copies<STAGES - 2>();", ""),
        ("const int tiles = (keys + BN - 1) / BN;", "const int tiles = keys / BN;"),
    ],
)
def test_broken_attention_is_caught(edit: tuple[str, str]) -> None:
    # Without a causal mask the keys beyond N have only their own.
    causal = "key >= N" not in edit[0]
    done, right = attention(AttentionTile(32, 16, 2, 2), "fp16", 16, causal, edit)
    assert done.problems or not right


def test_what_is_generated_compiles_without_a_warning() -> None:
    arch = load_arch("sm_90a")
    made: list[Skeleton] = [
        attention_cuda(AttentionTile(16, 16, 1, 2), "bf16", arch, d=16),
        elementwise_cuda(ElementwiseTile(), "bf16", arch, inputs=3),
        rows_cuda("softmax", RowTile(128, 4, 4), "fp16", arch),
    ]
    for skeleton in made:
        artifact = compiled(skeleton, skeleton.kernel, "sm_90a")
        assert "warning" not in artifact.log
        assert artifact.resources.spill_bytes == 0
