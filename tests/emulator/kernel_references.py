"""What the test kernels compute, in NumPy: (inputs, scalars) → the arrays that are not only read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
Scalars = Mapping[str, int]


def _product(a: np.ndarray, b_kn: np.ndarray, c: np.ndarray) -> dict[str, np.ndarray]:
    return {"c": (a.astype(np.float64) @ b_kn.astype(np.float64)).astype(c.dtype)}


def matmul_kn(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    return _product(x["a"], x["b"], x["c"])


def matmul_nk(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    return _product(x["a"], x["b"].T, x["c"])


# The eight magnitudes of e2m1; the fourth bit is the sign.
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def e2m1(packed: np.ndarray) -> np.ndarray:
    """[rows][bytes] → [rows][2 · bytes] float64, the lower nibble first."""
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
    signed: np.ndarray = np.where(nibbles & 8, -1, 1) * E2M1[nibbles & 7]
    return signed


def nvfp4(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    a, b = (e2m1(x[name]) * np.repeat(x[f"scale_{name}"].astype(np.float64), 16, 1) for name in "ab")
    return {"d": (a @ b.T).astype(np.float32)}


def weighted_rows(x: Arrays, scalars: Scalars) -> dict[str, np.ndarray]:
    weights = np.arange(1, scalars["rows"] + 1, dtype=np.int32)
    return {"out": (weights[:, None] * x["in"][:, ::-1]).sum(0, dtype=np.int32)}


def warp_operations(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    rows = np.concatenate([_one_warp(w, len(x["out"])) for w in x["in"].reshape(2, 32)], 1)
    return {"out": rows.astype(np.int64).astype(np.uint32).view(np.int32)}


def _one_warp(x: np.ndarray, count: int) -> np.ndarray:
    lane = np.arange(32)
    bits = np.int64(1) << lane

    def mask(p: np.ndarray) -> int:
        return int(bits[p].sum())

    def move(source: np.ndarray, width: int = 32) -> np.ndarray:
        """A lane outside its part of the warp keeps its own."""
        inside = (source >= lane // width * width) & (source < (lane // width + 1) * width)
        return x[np.where(inside, source, lane)]

    def match(values: np.ndarray) -> np.ndarray:
        return np.array([mask(values == v) for v in values])

    unsigned = x.astype(np.int64) & 0xFFFFFFFF
    alike = len(set(x & 1024)) == 1
    rows: list[object] = [
        x[5], x[lane * 3 % 32], move(lane - 3), move(lane + 3), x[lane ^ 9], move(lane + 2, 8), x[lane // 16 * 16 + 2],
        (x > -100).all(), (x > 0).all(), (x > 1000).any(), (x > 0).any(), mask(x & 1 == 1), match(x & 3),
        0xFFFFFFFF if alike else 0, alike, len(set(x)) > 1,
        x.sum(), x.min(), x.max(), np.bitwise_and.reduce(unsigned), np.bitwise_or.reduce(unsigned & 0xFF),
        np.bitwise_xor.reduce(unsigned), unsigned.max(), x.sum(), len(set(x > 0)) == 1,
        np.where(lane < 16, 1 + 2 * lane[:16].sum(), 0), 1, 1,
    ]  # fmt: skip
    return np.array([np.broadcast_to(np.asarray(r, np.int64), 32) for r in rows[:count]])


def atomics(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    values = x["in"]
    scrambled = (values.astype(np.uint64) * np.uint64(2654435761)).astype(np.uint32)
    bits = [np.bitwise_or.reduce(np.uint32(1) << (values % 32).astype(np.uint32)), np.bitwise_xor.reduce(scrambled)]
    return {
        "histogram": np.bincount(values // 8, minlength=8).astype(np.uint32),
        "weight": np.bincount(values % 8, weights=values, minlength=8).astype(np.float32),
        "largest": values.max(keepdims=True),
        "smallest": (np.float32(-0.5) * values.max(keepdims=True)).astype(np.float32),
        # Each of a block's 128 threads puts in its number, from 1.
        "tokens": np.full(3, 128 * 129 // 2, np.uint32),
        "bits": np.array(bits, np.uint32),
    }


def _words(matrix: np.ndarray) -> np.ndarray:
    """An 8 × 8 matrix as ldmatrix hands it out: lane l has row l / 4, columns 2 (l % 4) and the next."""
    return np.ascontiguousarray(matrix).view(np.uint32).reshape(32)


def matrix_moves(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    whole = x["in"]
    quarters = [whole[8 * (i % 2) :, 8 * (i // 2) :][:8, :8] for i in range(4)]
    registers = [*quarters, *(q.T for q in quarters), quarters[2], quarters[3], quarters[1].T]
    return {"words": np.stack([_words(m) for m in registers]), "stored": whole.copy(), "transposed": whole.T.copy()}


def last_block(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    padded = np.zeros(6 * 64 * 3, np.float32)
    padded[: x["in"].size] = x["in"]
    parts = padded.reshape(3, 6, 64).sum((0, 2))
    return {"parts": parts, "out": parts.sum(keepdims=True), "counter": np.zeros(1, np.uint32)}


def sorted_rows(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    return {"out": np.sort(x["in"], 1)}


def tables(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    n = x["in"]
    weights, shorts, small = np.array([1, -2, 0.5, 4, 8]), np.array([-300, 7, 1000]), np.array([1, 2, 250, 0])
    out = (2 * weights[n % 5] + shorts[n % 3] + small[n % 4]).astype(np.float32)
    return {"out": out, "count": np.array([40 + n.size], np.uint32)}


def generic_pointers(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    given, powers = x["in"], np.array([1, 10, 100, 1000], np.int32)
    shared, local = given.copy(), given[:, ::-1].copy()
    local[:, 0], shared[:, 1] = shared[:, 1].copy(), local[:, 0].copy()
    local[:, [1, 2]] = local[:, [2, 1]]
    return {"out": (given @ powers + 3 * (shared @ powers) + 5 * (local @ powers)).astype(np.int32)}


def doubled(x: Arrays, _: Scalars) -> dict[str, np.ndarray]:
    return {"out": 2 * x["in"]}
