"""The rungs and tiles that products of halves get, held against what an H200 measured of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.ladder.family import load_family
from tilewright.ladder.launching import runs_code

FAMILY = load_family("hgemm")
RESULTS = Path(__file__).parents[2] / "benchmarks/results/h200-hgemm-choices.json"
ROWS = [row for row in json.loads(RESULTS.read_text("utf-8"))["results"] if row["dtype"] == "bfloat16"]
# By rung the defines that tell candidates apart, and what they were where a name says nothing.
TOLD: dict[str, dict[str, int]] = {
    "22": {"TW_BN": 256},
    "24": {"TW_BN": 256},
    "25": {"TW_BM": 128, "TW_BN": 128},
    "28": {"TW_BM": 0, "TW_BN": 0, "TW_PARTS": 0, "TW_SHARERS": 1},
    "29": {"TW_BN": 256},
    "30": {"TW_PARTS": 0, "TW_SIDE": 0, "TW_DEEP": 0},
    "31": {"TW_BN": 256, "TW_CLUSTER": 2},
}
UNTIMED = {(32, 4096, 14336)}  # a candidate of 28 that was timed with other stages, at 0.94 of cuBLAS; the others: 0.72


def candidate(rung: str, defines: dict[str, Any]) -> tuple[str, ...]:
    return rung, *(f"{name}={defines.get(name, usual)}" for name, usual in TOLD[rung].items())


def chosen(shape: tuple[int, int, int]) -> tuple[str, ...]:
    m, n, k = shape
    sizes = {"M": m, "N": n, "K": k, "ld_a": k, "ld_b": n}
    rung = FAMILY.best(sizes, "bfloat16", lambda arch: runs_code(arch, "sm_90"))
    return candidate(rung.name[:2], dict(rung.defines))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "x".join(map(str, row["shape"])))
def test_what_a_product_gets_was_within_three_percent_of_the_best(row: dict[str, Any]) -> None:
    ratios: dict[tuple[str, ...], float] = {}
    for name, ratio in row["ratio"].items():
        if name != "cublas":
            first, *words = name.split()
            found = candidate(first, dict(word.split("=") for word in words if "=" in word))
            ratios[found] = max(ratio, ratios.get(found, 0))
    taken = chosen(tuple(row["shape"]))
    if tuple(row["shape"]) in UNTIMED:
        assert taken not in ratios  # else it is to be judged
    else:
        assert ratios.get(taken, 0) >= 0.97 * max(ratios.values()), taken


@pytest.mark.parametrize(
    ("shape", "rung"),
    [
        ((1, 64, 16384), "30"),  # long and narrow: parts of k
        ((17, 8192, 8192), "28"),
        ((16, 128256, 4096), "30"),
        ((128, 128256, 4096), "29"),
        ((2048, 4096, 4096), "25"),
        ((8192, 28672, 8192), "25"),
        ((512, 512, 512), "28"),
        ((2048, 4096, 64), "25"),  # little of k: sums that meet would cost more than tiles that wait
    ],
)
def test_sizes_that_were_not_timed_get_what_their_neighbours_got(shape: tuple[int, int, int], rung: str) -> None:
    assert chosen(shape)[0] == rung


def test_what_is_more_than_l2_holds_goes_from_it_first() -> None:
    for name, rows in (("28", 64), ("30", 8)):
        for columns in (4096, 14336):
            sizes = {"M": rows, "N": columns, "K": 4096, "ld_a": 4096, "ld_b": columns}
            assert FAMILY.rung(name).at(sizes, "bfloat16").defines["TW_ONCE"] == (columns > 4096)
