"""Skeletons in Triton: compiled without a GPU, run in the emulator at ragged sizes; broken twins are caught."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install 'tilewright[triton]'")

from skeleton_runs import coverage, poison, problems_of

from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.bind import bind
from tilewright.launch.sidecar import load_sidecar
from tilewright.settings import Settings
from tilewright.skeleton.triton_kernels import (
    TritonSkeleton,
    attention_triton,
    elementwise_triton,
    gemm_triton,
    rows_triton,
)
from tilewright.triton.build import build_triton

ARCH = "sm_86"
Edits = tuple[tuple[str, str], ...]


def outcome(
    folder: Path,
    skeleton: TritonSkeleton,
    sizes: dict[str, int],
    inputs: dict[str, np.ndarray],
    output: str,
    edits: Edits,
) -> tuple[list[str], np.ndarray | None]:
    """What is wrong with the launch, and its output."""
    text = skeleton.text
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "skeleton.py").write_text(text)
    (folder / "skeleton.toml").write_text(skeleton.sidecar)
    made = build_triton(
        folder / "skeleton.py", load_sidecar(folder / "skeleton.toml"), ARCH, Settings.from_environment()
    )
    launch = bind(made.spec, sizes, made.constants)
    given = {b.name: inputs[b.name].reshape(-1) if b.name in inputs else poison(b) for b in launch.buffers}
    executor = EmulatorExecutor(ARCH, EmulatorOptions(counters=True), "skeleton.py")
    result, emulation = executor.run_counted(made.program, launch, given)
    problems = problems_of(result)
    if result.error or emulation is None:
        return problems, None
    return problems + coverage(emulation, [result.arrays[output]]), result.arrays[output].astype(np.float64)


def product(folder: Path, dtype: str, *edits: tuple[str, str]) -> tuple[list[str], bool]:
    batch, m, n, k = 2, 37, 43, 50
    rng = np.random.default_rng(7)
    a, b = rng.integers(-3, 4, (batch, m, k)), rng.integers(-3, 4, (batch, k, n))
    element = {"fp16": np.float16, "int8": np.int8}[dtype]
    skeleton = gemm_triton(dtype, bm=32, bn=32, bk=32, warps=2)
    sizes = {"M": m, "N": n, "K": k, "BATCH": batch}
    problems, c = outcome(folder, skeleton, sizes, {"A": a.astype(element), "B": b.astype(element)}, "C", edits)
    return problems, c is not None and bool((c == (a @ b).reshape(-1)).all())


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_products(tmp_path: Path, dtype: str) -> None:
    assert product(tmp_path, dtype) == ([], True)


@pytest.mark.parametrize(
    "edit",
    [
        ("(rows[:, None] < M) & (columns[None, :] < N))", "rows[:, None] < M)"),
        ("mask=(k + depth[:, None] < K) & (columns[None, :] < N)", "mask=columns[None, :] < N"),
        ("inside // height * BLOCK_N", "inside // GROUP_M * BLOCK_N"),
    ],
)
def test_a_broken_product_is_caught(tmp_path: Path, edit: tuple[str, str]) -> None:
    problems, right = product(tmp_path, "fp16", edit)
    assert problems or not right


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("op", ["softmax", "layernorm"])
def test_rows(tmp_path: Path, op: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(3, 1, (2, 203)).astype(np.float32)
    inputs = {"X": x}
    exact = x.astype(np.float64)
    if op == "layernorm":
        inputs |= {name: rng.normal(1, 0.1, 203).astype(np.float32) for name in ("scale", "shift")}
        deviation = np.sqrt(exact.var(1, keepdims=True) + 1e-5)
        exact = (exact - exact.mean(1, keepdims=True)) / deviation * inputs["scale"] + inputs["shift"]
    else:
        exact = softmax(exact)
    skeleton = rows_triton(op, "fp32", block_c=128, warps=1)
    problems, y = outcome(tmp_path, skeleton, {"R": 2, "C": 203}, inputs, "Y", ())
    assert problems == []
    assert y is not None
    # 64 roundings of FP32: a chain of sums and an exponential.
    assert np.abs(y.reshape(exact.shape) - exact).max() <= 64 * 2**-24 * max(1.0, np.abs(exact).max())


def attention(folder: Path, *edits: tuple[str, str]) -> tuple[list[str], bool]:
    n, d, rng = 45, 16, np.random.default_rng(7)
    given = {name: rng.normal(size=(2, n, d)).astype(np.float16) for name in "QKV"}
    q, k, v = (x.astype(np.float64) for x in given.values())
    p = softmax(np.where(np.tril(np.ones((n, n), bool)), q @ k.transpose(0, 2, 1) * d**-0.5, -np.inf))
    skeleton = attention_triton("fp16", d=d, causal=True, bm=32, bn=32, warps=2, stages=2)
    problems, out = outcome(folder, skeleton, {"B": 1, "H": 2, "N": n}, given, "O", edits)
    allowed = (p @ np.abs(v)) * 2.5 * 2**-11 + 1e-5  # the weights are rounded, and the result
    return problems, out is not None and bool((np.abs(out.reshape(v.shape) - p @ v) <= allowed).all())


def test_attention(tmp_path: Path) -> None:
    assert attention(tmp_path) == ([], True)


def test_broken_attention_is_caught(tmp_path: Path) -> None:
    problems, right = attention(tmp_path, ("total = total * rescale + tl.sum(p, axis=1)", "total += tl.sum(p, axis=1)"))
    assert problems or not right


def test_elementwise(tmp_path: Path) -> None:
    n, rng = 1001, np.random.default_rng(7)
    a, b = (rng.integers(-9, 9, n).astype(np.float16) for _ in range(2))
    skeleton = elementwise_triton("fp16", inputs=2, expression="a * b + 1", block=256)
    problems, y = outcome(tmp_path, skeleton, {"n": n}, {"A_": a, "B_": b}, "Y", ())
    assert problems == []
    assert y is not None
    assert (y == a.astype(np.float64) * b + 1).all()
