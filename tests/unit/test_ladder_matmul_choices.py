"""What `matmul` chooses at the sizes whose candidates an H200 has timed: the fastest, or one within 1 % of it."""

from __future__ import annotations

import pytest

from tilewright.ladder.family import Rung, load_family
from tilewright.ladder.launching import runs_code

FAMILY = load_family("matmul")

# (batches, M, N, K, layout): microseconds of the rung and the defines that were asked for (benchmarks/ladder_trial.py,
# 2026-11-30 and 12-01, bfloat16, rows without gaps, a bias unless it is a batch). 21's times with STAGES=8 of 42.03
# and 20.77 are of 2026-11-30, before it got faster.
MEASURED: dict[tuple[int, int, int, int, str], dict[str, float]] = {
    (1, 64, 8192, 4096, "NT"): {
        "21_split_k BN=128 PARTS=2 PIECES=1": 23.68,
        "21_split_k BN=64 PARTS=1 STAGES=8": 23.74,
        "21_split_k BN=128 PARTS=2 PIECES=0": 23.87,
    },
    (1, 64, 4096, 4096, "NT"): {
        "21_split_k STAGES=12 PIECES=1": 14.82,
        "21_split_k STAGES=8 PIECES=1": 14.91,
        "21_split_k STAGES=8 PIECES=0": 14.94,
        "21_split_k STAGES=12 PIECES=0": 14.98,
    },
    (1, 128, 14336, 4096, "NT"): {
        "21_split_k BN=112 PARTS=1 SHARERS=1 STAGES=7 PIECES=1 ONCE=1": 37.78,
        "21_split_k BN=112 PARTS=1 SHARERS=2 STAGES=7 PIECES=1 ONCE=1": 38.21,
        "21_split_k BN=112 PARTS=1 SHARERS=2 STAGES=7 PIECES=0 ONCE=1": 39.73,
        "20_persistent": 44.08,
    },
    (1, 512, 2048, 4096, "NT"): {  # with GELU
        "21_split_k BN=128 PARTS=2 SHARERS=1 STAGES=6 PIECES=1": 15.04,
        "21_split_k BN=64 PARTS=1 SHARERS=2 STAGES=8 PIECES=1": 17.25,
        "21_split_k BN=128 PARTS=2 SHARERS=2 STAGES=6 PIECES=1": 25.63,
    },
    (1, 2048, 1024, 4096, "NT"): {
        "21_split_k BM=128 BN=128 PARTS=1 SHARERS=2 STAGES=7 PIECES=1": 23.32,
        "20_persistent CLUSTER=2": 26.49,
        "20_persistent CLUSTER=1": 35.00,
    },
    (1, 64, 28672, 8192, "NT"): {
        "21_split_k BN=224 SHARERS=1 STAGES=5 PIECES=1 ONCE=0": 122.88,
        "21_split_k BN=224 SHARERS=2 STAGES=5 PIECES=1 ONCE=0": 123.78,
        "21_split_k BN=224 STAGES=5 PIECES=0 ONCE=0": 123.87,
        "21_split_k BN=256 STAGES=5 PIECES=1": 124.90,
        "21_split_k BN=112 STAGES=5": 124.96,
        "21_split_k BN=224 STAGES=6": 125.98,
        "21_split_k SHARERS=2 STAGES=6": 126.27,
        "21_split_k ONCE=1": 128.58,
    },
    (1, 128, 8192, 8192, "NT"): {
        "21_split_k SHARERS=2 STAGES=9 PIECES=1": 43.46,
        "21_split_k SHARERS=2 STAGES=8 PIECES=1": 44.03,
        "21_split_k BN=128 PARTS=2 SHARERS=1 STAGES=6": 44.35,
        "21_split_k SHARERS=1 STAGES=8 PIECES=1": 44.59,
        "21_split_k SHARERS=1 STAGES=8 PIECES=0": 45.39,
    },
    (1, 128, 4096, 4096, "NT"): {
        "21_split_k PARTS=2 SHARERS=1 PIECES=1 ONCE=1": 15.62,
        "21_split_k PARTS=2 SHARERS=1 PIECES=0 ONCE=1": 15.98,
        "21_split_k BN=32 PARTS=1 SHARERS=2 STAGES=10 PIECES=1": 19.14,
    },
    (1, 512, 4096, 4096, "NT"): {
        "20_persistent": 29.95,  # 30.69 in the last trial, and 21 with ONCE=1 30.88
        "21_split_k BM=128 BN=128 PARTS=1 SHARERS=2 STAGES=7 PIECES=1 ONCE=0": 30.43,
        "21_split_k BM=128 BN=256 PARTS=2 SHARERS=1 STAGES=3 PIECES=1": 34.80,
    },
    (1, 1000, 1000, 1000, "NT"): {
        "21_split_k SHARERS=2 PIECES=1 AHEAD=0": 6.77,
        "21_split_k SHARERS=2 PIECES=1 AHEAD=4": 6.88,
        "21_split_k SHARERS=2 PIECES=0 AHEAD=4": 7.58,
        "21_split_k SHARERS=1 PIECES=1 AHEAD=4": 9.32,
        "21_split_k SHARERS=1 PIECES=0 AHEAD=4": 9.69,
    },
    (8, 256, 1024, 1024, "NN"): {
        "20_persistent": 7.77,
        "21_split_k BM=128 BN=128 PARTS=1 SHARERS=2 STAGES=7 PIECES=1 AHEAD=4": 8.29,
    },
    (1, 2048, 2048, 2048, "NT"): {
        "20_persistent": 23.14,
    },
    (1, 4096, 4096, 4096, "NT"): {
        "20_persistent": 177.22,
    },
    (1, 1, 1, 1, "NT"): {
        "23_little": 1.47,
    },
    (1, 64, 64, 64, "NT"): {
        "21_split_k": 1.51,
        "23_little": 1.70,
    },
    (1, 128, 128, 128, "NT"): {
        "21_split_k": 1.64,
        "23_little": 2.02,
    },
    (1, 100, 100, 101, "NT"): {
        "23_little": 1.72,
    },
    (1, 256, 256, 255, "NT"): {
        "23_little": 3.17,
        "24_packed": 7.20,  # here, and down to 1000 x 1000 x 1001, with four packs a thread: one is faster
    },
    (1, 512, 512, 511, "NT"): {
        "24_packed": 7.95,
        "23_little": 15.67,
    },
    (1, 17, 4096, 4095, "NT"): {
        "23_little": 49.76,
        "24_packed": 49.89,
    },
    (1, 1000, 1000, 1001, "NT"): {
        "24_packed BN=64 STAGES=8": 13.90,
        "24_packed BN=128 STAGES=6": 14.92,
        "23_little": 92.91,
    },
    (1, 2047, 2049, 2055, "NT"): {
        "24_packed BN=128 STAGES=6 PACKS=2": 59.74,
        "24_packed BN=128 STAGES=6 PACKS=4": 62.98,
        "24_packed BN=192 STAGES=5": 67.84,
        "24_packed BN=256 STAGES=4": 71.36,
        "01_strided": 1409.90,
    },
    (1, 4095, 4097, 4099, "NT"): {
        "24_packed BN=192 STAGES=5": 311.73,  # with four packs a thread
        "24_packed BN=256 STAGES=4 PACKS=2": 317.12,
        "24_packed BN=256 STAGES=4 PACKS=4": 319.81,
    },
    (1, 256, 256, 256, "NT"): {
        "21_split_k": 1.84,
        "23_little": 3.84,
    },
}


def sizes(batches: int, m: int, n: int, k: int, layout: str) -> dict[str, int]:
    b = {"ld_b": n, "step_b": 1} if layout[1] == "N" else {"ld_b": 1, "step_b": k}
    steps = {"batch_a": m * k, "ld_a": k, "step_a": 1, "batch_b": k * n, **b, "batch_c": m * n, "ld_c": n, "step_c": 1}
    shape = {"B": batches, "M": m, "N": n, "K": k}
    return {**shape, **steps, "with_bias": int(batches == 1), "with_c": 0, "activation": 0}


def is_that(rung: Rung, candidate: str) -> bool:
    """Whether a rung at sizes is a candidate, as far as its name goes."""
    name, *defines = candidate.split()
    asked = dict(each.split("=") for each in defines)
    return rung.name == name and all(str(rung.defines[f"TW_{key}"]) == value for key, value in asked.items())


@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: "x".join(map(str, shape)))
def test_the_choice_is_the_fastest_that_was_measured(shape: tuple[int, int, int, int, str]) -> None:
    found = FAMILY.best(sizes(*shape), "bfloat16", lambda least: runs_code(least, "sm_90"))
    told = MEASURED[shape]
    chosen = [us for candidate, us in told.items() if is_that(found, candidate)]
    assert chosen, (found.name, found.defines)
    assert min(chosen) <= 1.01 * min(told.values()), (found.name, found.defines)


def test_what_no_tensor_map_has_is_no_slower_for_it() -> None:
    """100 x 100 x 101 took 40 us by element in tiles of 128 x 128; rows of 104 elements have a tensor map."""
    odd = sizes(1, 100, 100, 101, "NT")
    assert FAMILY.best(odd, "float16", lambda least: runs_code(least, "sm_90")).name == "23_little"
    assert FAMILY.best(odd, "float16", lambda least: runs_code(least, "sm_80")).name == "23_little"
    even = {**odd, "ld_a": 104, "step_b": 104}
    assert FAMILY.best(even, "float16", lambda least: runs_code(least, "sm_90")).name == "21_split_k"
    assert FAMILY.best(even, "float16", lambda least: runs_code(least, "sm_90"), address=8).name == "23_little"
    large = sizes(1, 4096, 4096, 4097, "NT")
    assert FAMILY.best(large, "float16", lambda least: runs_code(least, "sm_90")).name == "24_packed"
    assert FAMILY.best(large, "float16", lambda least: runs_code(least, "sm_80")).name == "01_strided"


def even(extent: int) -> int:
    """Elements of a packed row: long ones begin at lines of L2."""
    return -(-extent // 64) * 64 if extent >= 512 else -(-extent // 8) * 8


def test_packed_operands_take_no_more_memory_than_a_few_times_the_callers() -> None:
    """32 MB more are allowed, of each. Some are batches of windows that overlap, or rows of a single element."""
    windows = {"batch_a": 600, "ld_a": 600, "step_a": 1}
    taken = set()
    for of, has in (
        (sizes(1, 4097, 4099, 4101, "NT"), 4097 * 4101),
        (sizes(100, 20, 600, 599, "NN") | windows, 99 * 600 + 19 * 600 + 599),
        (sizes(1000, 2000, 8, 599, "NN") | windows, 999 * 600 + 1999 * 600 + 599),
        (sizes(1, 9_000_000, 9, 1, "NN"), 9_000_000),
        (sizes(1, 900_000, 9, 1, "NN"), 900_000),
    ):
        packed = of["B"] * of["M"] * even(of["K"])
        asked = FAMILY.rung("24_packed").is_meant_for(of, "float16", address=2)
        assert asked == (packed <= 4 * has + 16_000_000), (of, packed, has)
        taken.add(asked)
    assert taken == {True, False}
    thin = sizes(1, 4097, 40_000_000, 1, "NT") | {"step_b": 3}
    assert not FAMILY.rung("24_packed").is_meant_for(thin, "float16", address=2)
