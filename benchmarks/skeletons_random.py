"""Random skeletons at random sizes, in the emulator: right, without a hazard, and every output written once.

    python benchmarks/skeletons_random.py --count 300 --seed 1 --out benchmarks/results/skeletons_random.json

The checks are those of tests/emulator/test_skeleton_*.py, which run a few fixed cases of the same kind.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "emulator"))

import test_skeleton_gemm as products
import test_skeleton_ops as ops

from tilewright.arch.arch import load_arch
from tilewright.skeleton.attention import AttentionTile, why_no_attention
from tilewright.skeleton.conv import ConvShape
from tilewright.skeleton.elementwise import ElementwiseTile
from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_cuda, why_no_gemm
from tilewright.skeleton.rows import RowTile, why_no_rows
from tilewright.skeleton.skeleton import Skeleton

ARCH = load_arch(products.ARCH)
# A case in words, and whether it went through; None: these parameters are refused.
Case = tuple[str, bool, str] | None


def product(r: random.Random) -> Case:
    dtype = r.choice(["fp16", "fp16", "bf16", "int8", "tf32", "fp32"])
    warps_m, warps_n = r.choice([(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4)])
    tile = GemmTile(
        r.choice([16, 32, 48, 64, 96, 128]),
        r.choice([32, 64, 128, 192, 256]),
        r.choice([16, 32, 64, 128]),
        warps_m,
        warps_n,
        r.randint(2, 5),
        r.choice([1, 1, 2, 3, 5]),
        r.choice([1, 2, 8]),
    )
    if why_no_gemm(tile, dtype, ARCH):  # type: ignore[arg-type]
        return None
    step = r.choice([1, 2, 4, 8, 16])
    dims = (r.randint(1, 2), r.randint(1, 2 * tile.bm + 9), *(step * r.randint(1, 260 // step) for _ in range(2)))
    more: dict[str, Any] = {}
    if tile.split_k == 1 and r.random() < 0.3:
        more = {"mode": "persistent", "persistent_blocks": r.randint(1, 5)}
    vectors = Vectors.of(dims[2], dims[3], dtype)  # type: ignore[arg-type]
    skeleton: Skeleton = gemm_cuda(tile, dtype, ARCH, vectors=vectors, **more)  # type: ignore[arg-type]
    done, right = products.product(skeleton, dtype, dims, r.randint(0, 2))
    return f"product {dtype} {tile} {vectors} {dims} {more}", right and not done.problems, str(done.problems)


def convolution(r: random.Random) -> Case:
    shape = ConvShape(r.randint(1, 5), r.randint(1, 5), r.randint(1, 3), r.randint(0, 3))
    step = r.choice([1, 2, 8])
    dims = (
        r.randint(1, 2),
        r.randint(shape.r, 9),
        r.randint(shape.s, 9),
        step * r.randint(1, 40 // step),
        r.randint(1, 70),
    )
    done, right = products.convolution(shape, dims)
    return f"convolution {shape} {dims}", right and not done.problems, str(done.problems)


def rows(r: random.Random) -> Case:
    threads = 32 * r.choice([1, 2, 4, 8])
    tile = RowTile(threads, r.choice([1, threads // 32]), r.choice([1, 2, 4, 8]), r.choice([1, 1, 2, 5]))
    if why_no_rows(tile, ARCH):
        return None
    op, dtype = r.choice(["sum", "softmax", "layernorm"]), r.choice(["fp16", "bf16", "fp32"])
    shape = (r.randint(1, 9), r.choice([1, 8]) * r.randint(3, 300))
    done, right = ops.rows(op, tile, dtype, shape)
    return f"rows {op} {dtype} {tile} {shape}", right and not done.problems, str(done.problems)


def elementwise(r: random.Random) -> Case:
    tile = ElementwiseTile(32 * r.choice([1, 2, 8]), r.choice([1, 2, 4]), r.choice([0, 1, 3]))
    dtype, n = r.choice(["fp16", "bf16", "fp32"]), r.randint(1, 9000)
    done, right = ops.elementwise(tile, dtype, n)
    return f"elementwise {dtype} {tile} {n}", right and not done.problems, str(done.problems)


def attention(r: random.Random) -> Case:
    d, warps = r.choice([16, 32, 64, 128]), r.choice([1, 2, 4])
    tile = AttentionTile(16 * warps * r.choice([1, 2]), r.choice([16, 32, 64]), warps, r.randint(1, 4))
    if why_no_attention(tile, d, ARCH):
        return None
    dtype, causal = r.choice(["fp16", "bf16"]), r.random() < 0.5
    ops.HEADS["N"] = r.randint(1, 150)
    done, right = ops.attention(tile, dtype, d, causal)
    words = f"attention {dtype} d {d} {tile} {dict(ops.HEADS)} {'causal' if causal else ''}"
    return words, right and not done.problems, str(done.problems)


KINDS: tuple[Callable[[random.Random], Case], ...] = (
    product,
    product,
    product,
    convolution,
    rows,
    elementwise,
    attention,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    r = random.Random(options.seed)
    passed: Counter[str] = Counter()
    failed: list[str] = []
    while passed.total() + len(failed) < options.count:
        case = r.choice(KINDS)(r)
        if case is None:
            continue
        words, is_right, why = case
        if is_right:
            passed[words.split()[0]] += 1
        else:
            failed.append(f"{words}: {why}")
            print(f"WRONG {words}: {why}", flush=True)
        if (passed.total() + len(failed)) % 25 == 0:
            print(f"{passed.total()} right, {len(failed)} wrong", flush=True)
    report = {"seed": options.seed, "arch": products.ARCH, "right": dict(passed), "wrong": failed}
    print(json.dumps(report["right"]))
    if options.out:
        Path(options.out).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
