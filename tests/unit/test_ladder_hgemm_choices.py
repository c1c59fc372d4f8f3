"""The rungs and tiles that products of halves get, held against what an H200 measured of them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from tilewright.ladder.family import load_family
from tilewright.ladder.launching import runs_code

FAMILY = load_family("hgemm")
RESULTS = Path(__file__).parents[2] / "benchmarks/results"
ROWS = [
    row
    for row in json.loads((RESULTS / "h200-hgemm-choices.json").read_text("utf-8"))["results"]
    if row["dtype"] == "bfloat16"
]
SHAPES = sorted({tuple(row["shape"]) for row in ROWS})
PEERS = ("cublas", "cublaslt")
# By rung the defines that tell candidates of the first run apart, and what they were where a name says nothing; names
# of the second run ("at") say all that matters.
TOLD: dict[str, dict[str, int]] = {
    "22": {"TW_BN": 256},
    "24": {"TW_BN": 256, "TW_GROUP": 8},
    "25": {"TW_BM": 128, "TW_BN": 128},
    "28": {"TW_BM": 0, "TW_BN": 0, "TW_PARTS": 0, "TW_SHARERS": 1},
    "29": {"TW_BN": 256},
    "30": {"TW_PARTS": 0, "TW_SIDE": 0, "TW_DEEP": 0},
    "31": {"TW_BN": 256, "TW_CLUSTER": 2},
}
# 224 columns, the rim of rows apart: timed as the ladder's bench does, below.
# So were tiles of which two share a, and what is in two parts at 64 x 14336 x 4096.
# What has tiles that fit since then, and 512 x 8192 x 28672, follow trials under steady load:
# test_ladder_hgemm_steady.py.
STEADY = {
    (512, 8192, 28672), (2048, 5120, 4096), (2048, 11008, 4096), (2056, 5000, 4008), (3072, 3072, 3072),
    (8192, 28672, 8192), (16384, 16384, 16384),
}  # fmt: skip
# What is the product turned over follows the trials of 2026-12-01, there as well.
TURNED = {
    (1, 4096, 4096), (16, 4096, 4096), (16, 14336, 4096), (16, 128256, 4096), (32, 4096, 4096), (32, 4096, 14336),
    (128, 1024, 8192), (1, 8192, 28672), (8, 14336, 4096), (512, 512, 512),
}  # fmt: skip
UNTIMED = {(4097, 4104, 4104), (64, 14336, 4096)} | STEADY | TURNED


def chosen(shape: tuple[int, ...]) -> tuple[str, dict[str, int]]:
    m, n, k = shape
    sizes = {"M": m, "N": n, "K": k, "ld_a": k, "ld_b": n}
    rung = FAMILY.best(sizes, "bfloat16", lambda arch: runs_code(arch, "sm_90"))
    return rung.name[:2], {name: int(value) for name, value in rung.defines.items()}


def as_timed(shape: tuple[int, ...]) -> tuple[str, dict[str, int]]:
    """Before 36 walked back and forth, its tiles were 24's: those figures are of them."""
    name, defines = chosen(shape)
    return ("24" if name == "36" else name), defines


def is_of(name: str, row: dict[str, Any], rung: str, defines: dict[str, int]) -> bool:
    """Whether that is what a candidate's name in a row means."""
    first, *words = name.split()
    said = {key: int(value) for key, value in (word.split("=") for word in words if "=" in word)}
    if first != rung or {"l2_256", "nopdl", "nomath", "noa"} & set(words):
        return False
    if rung == "24" and said.get("TW_STAGES", defines["TW_STAGES"]) != defines["TW_STAGES"]:
        return False
    if defines.get("TW_SHARERS") == 2 and defines["TW_BM"] * defines["TW_BN"] <= 8192:
        return False  # timed before results left in pieces: other kernels
    if "at" not in row:
        return all(defines.get(key, usual) == said.get(key, usual) for key, usual in TOLD[rung].items())
    # 24's bands of 16 rows of tiles stand for those of 8: 0.1 % apart in the first run, 0.8 % behind in the trial. That
    # lines of a b of 33 MB leave L2 first was found in later trials: 64 x 4096 x 4096, below.
    later = {("24", "TW_GROUP")} | ({("28", "TW_ONCE")} if row["shape"][1:] == [4096, 4096] else set())
    return all(defines[key] == value for key, value in said.items() if (rung, key) not in later)


def timed(shape: tuple[int, ...]) -> list[tuple[float, dict[str, Any]]]:
    """In each row of a shape that has what is taken there: its ratio to cuBLAS."""
    found = []
    for row in ROWS:
        if tuple(row["shape"]) == shape:
            taken = as_timed(shape)
            ratios = [ratio for name, ratio in row["ratio"].items() if name not in PEERS and is_of(name, row, *taken)]
            found += [(max(ratios), row)] if ratios else []
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_what_a_product_gets_was_within_three_percent_of_the_best(shape: tuple[int, ...]) -> None:
    if shape == (256, 4096, 4096):
        return  # timed before b's lines went first: what is taken since is in the trials below
    found = timed(shape)
    assert bool(found) is (shape not in UNTIMED), chosen(shape)
    for ratio, row in found:
        assert ratio >= 0.97 * max(r for name, r in row["ratio"].items() if name not in PEERS), chosen(shape)


def test_what_was_timed_under_load_is_what_is_chosen() -> None:
    """``h200-hgemm-sustained.json``: both types, against ``torch.mm`` and cublasLt's best of 16 offers."""
    points = json.loads((RESULTS / "h200-hgemm-sustained.json").read_text("utf-8"))["points"]
    for point in points:
        shape = tuple(point["sizes"])
        assert chosen(shape) == (point["rung"][:2], point["defines"]), shape
    for dtype in ("bfloat16", "float16"):
        for peer, least, of_few_rows in (("torch", 1.11, 1.14), ("cublaslt", 1.09, 1.11)):
            mine = [(p["sizes"][0], p["ratios"][peer]["value"]) for p in points if p["dtype"] == dtype]
            assert len(mine) >= 71
            assert min(ratio for _, ratio in mine) >= 0.95
            assert geometric_mean(ratio for _, ratio in mine) >= least
            assert geometric_mean(ratio for rows, ratio in mine if rows <= 128) >= of_few_rows


@pytest.mark.parametrize(
    ("shape", "rung"),
    [
        ((1, 64, 16384), "30"),  # long and narrow: parts of k
        ((17, 8192, 8192), "38"),
        ((16, 128256, 4096), "38"),
        ((160, 4096, 11008), "38"),
        ((3, 14336, 4096), "38"),
        ((128, 128256, 4096), "29"),
        ((2048, 4096, 4096), "36"),
        ((8192, 14336, 8192), "37"),
        ((1024, 1024, 2048), "28"),
        ((2048, 4096, 64), "25"),  # little of k: sums that meet would cost more than tiles that wait
    ],
)
def test_sizes_that_were_not_timed_get_what_their_neighbours_got(shape: tuple[int, int, int], rung: str) -> None:
    assert chosen(shape)[0] == rung


# The fastest of what `benchmarks/ladder_trial.py` timed on an H200, in microseconds, and what was behind it.
TRIALS = {
    (1, 1, 1): ("34", {}),  # 1.06, 01: 7.09
    (64, 64, 64): ("34", {}),  # 1.38, 25: 2.49
    (128, 128, 128): ("34", {}),  # 1.75, 28: 1.77
    (128, 128, 256): ("28", {"TW_BM": 64, "TW_BN": 64, "TW_PARTS": 1}),  # 1.98, 34: 2.13
    (256, 256, 1021): ("32", {"TW_BN": 64}),  # 5.87, 34: 7.28
    (512, 512, 511): ("32", {"TW_BN": 64}),  # 5.05, 34: 14.9
    (257, 1000, 777): ("32", {"TW_BN": 64}),  # 6.62, of 128: 8.92, 34: 18.6
    (1000, 1000, 1001): ("32", {"TW_BN": 64}),  # 8.81, of 128: 11.6, 34: 77.7
    (2047, 2049, 2055): ("32", {"TW_BN": 128}),  # 55.2, of 192: 63.0, of 256: 66.2
    (4095, 4097, 4099): ("32", {"TW_BN": 192}),  # 293, of 256: 299
    (100, 100, 101): ("34", {}),  # 1.56, 32: 6.2
    (256, 256, 255): ("34", {}),  # 2.92, 32: 6.21
    (31, 33, 500): ("34", {}),  # 2.81, 32: 6.96
    (128, 128, 16384): ("35", {"TW_BM": 64, "TW_BN": 64, "TW_PARTS": 8, "TW_SPLITS": 3}),  # 5.17, 28: 9.99
    (256, 256, 16384): ("35", {"TW_BM": 128, "TW_PARTS": 2, "TW_SPLITS": 8, "TW_BESIDE": 1}),  # 9.86, 28: 13.1
    (1024, 1024, 64): ("25", {"TW_BM": 64}),  # 2.79, with 128: 2.97
    (1024, 1024, 512): ("25", {"TW_BM": 64}),  # 4.30, 28: 4.38
    (1024, 1024, 1024): ("38", {"TW_BM": 128, "TW_BN": 64, "TW_SHARERS": 1}),  # under load 4.81, 28: 4.88
    (1024, 1024, 4096): ("28", {"TW_BN": 128, "TW_PARTS": 2, "TW_GROUP": 2}),  # 13.8, 64 x 128 sharing a: 14.0
    (2048, 512, 4096): ("28", {"TW_BM": 64, "TW_SHARERS": 2, "TW_STAGES": 9, "TW_GROUP": 4}),  # 13.4, 128 x 128: 13.8
    (512, 2048, 4096): ("28", {"TW_BM": 128, "TW_BN": 128, "TW_PARTS": 2}),  # 13.8, 36: 14.0; under load 14.5 for 15.8
    (512, 1024, 1024): ("28", {"TW_BM": 64, "TW_BN": 64, "TW_SHARERS": 2, "TW_PIECES": 1}),  # 3.89, alone: 4.11
    (512, 512, 512): ("38", {"TW_BM": 32, "TW_BN": 64}),  # 2.42, of 48 rows: 2.38, 28: 2.45
    (256, 4096, 4096): ("28", {"TW_BN": 128, "TW_PARTS": 2, "TW_ONCE": 1}),  # 19.6, 36: 22.0; b in L2: 15.1, 17.6
    (16, 4096, 4096): ("38", {"TW_BM": 16, "TW_BN": 64, "TW_PARTS": 2}),  # where L2 has b 6.5, 30: 8.9 to 10.5
    (32, 4096, 4096): ("38", {"TW_BM": 32, "TW_BN": 64, "TW_PARTS": 2}),  # where L2 has b 6.5, 28: 9.5 to 11.3
    (1000, 1000, 1000): ("25", {"TW_BM": 64, "TW_GROUP": 4}),  # 6.81, 28: 6.82
    (2048, 1024, 4096): ("25", {"TW_BM": 128, "TW_GROUP": 2}),  # 24.4, in bands of 8: 25.3
    (128, 14336, 4096): ("28", {"TW_BN": 112, "TW_SHARERS": 2, "TW_STAGES": 6, "TW_AHEAD": 0}),  # 39.8, 7 stages: 40.3
    (128, 8192, 8192): ("28", {"TW_BN": 128, "TW_PARTS": 2, "TW_STAGES": 5, "TW_ONCE": 1}),  # 41.0, 128 x 64: 41.3
    (64, 28672, 8192): ("28", {"TW_BN": 128, "TW_PARTS": 1, "TW_SHARERS": 2, "TW_ONCE": 0}),  # 121.0, two parts: 126.5
    (64, 14336, 4096): ("28", {"TW_BN": 128, "TW_PARTS": 2, "TW_ONCE": 1, "TW_STAGES": 8}),  # 37.4, 112: 40.2
    (64, 4096, 4096): ("28", {"TW_BN": 64, "TW_PARTS": 2, "TW_ONCE": 1, "TW_STAGES": 12}),  # 14.5, ONCE=0: 16.0
    (4096, 4096, 4096): ("36", {"TW_BN": 256, "TW_GROUP": 8}),  # 172.2, in bands of 16: 172.2, 24: 174.5
    (4096, 4096, 14336): ("36", {"TW_BN": 256, "TW_GROUP": 8}),  # as 24 588, in bands of 16: 593
    (4096, 14336, 4096): ("36", {"TW_BN": 256}),  # 598 to 606, 25: 617, 37: 628
    (4097, 4104, 4104): ("37", {"TW_BN": 176, "TW_SHARE_A": 1, "TW_STAGES": 4}),  # 198.9, 33: 209.9, three stages: 216
    (3072, 3072, 3072): ("37", {"TW_BN": 192, "TW_STAGES": 4}),  # 76.7, 36: 78.8, three stages: 80.7
    (2048, 27648, 5120): ("37", {"TW_BN": 256, "TW_SHARE_A": 1}),  # 733.6, 36: 739.3
    (8192, 8192, 8192): ("36", {"TW_BN": 256}),  # 1422, 37: 1484
    (8191, 8200, 8184): ("36", {"TW_BN": 256}),  # 1508, of 224: 1505, 37: 1648
}


@pytest.mark.parametrize("shape", TRIALS, ids=lambda shape: "x".join(map(str, shape)))
def test_what_was_the_fastest_in_a_trial_is_taken(shape: tuple[int, int, int]) -> None:
    rung, told = TRIALS[shape]
    name, defines = chosen(shape)
    assert (name, {key: defines[key] for key in told}) == (rung, told)


def test_rows_that_a_ring_takes_are_not_read_without_one_where_there_are_many() -> None:
    assert [chosen((256, n, 256))[0] for n in (255, 256)] == ["34", "28"]
    assert chosen((2000, 999, 1001))[0] == "32"


def test_what_is_more_than_l2_holds_goes_from_it_first() -> None:
    for name, rows, kept in (("28", 64, 2048), ("30", 8, 4096)):
        for columns in (kept, 14336):
            sizes = {"M": rows, "N": columns, "K": 4096, "ld_a": 4096, "ld_b": columns}
            assert FAMILY.rung(name).at(sizes, "bfloat16").defines["TW_ONCE"] == (columns > kept)


def test_results_leave_in_pieces_where_a_cluster_has_two_blocks() -> None:
    """A block alone took 5.82 us so at 512 x 1024 x 1024, and 4.11 otherwise."""
    sizes = ((512, 512, 512, 1), (256, 256, 512, 0), (64, 14336, 4096, 1))
    rung = FAMILY.rung("28")
    for m, n, k, in_pieces in sizes:
        made = rung.at({"M": m, "N": n, "K": k, "ld_a": k, "ld_b": n}, "bfloat16")
        assert made.defines["TW_PIECES"] == in_pieces
    odd = {"M": 512, "N": 508, "K": 512, "ld_a": 512, "ld_b": 512}  # rows of c begin between multiples of 16 bytes
    assert rung.at(odd, "bfloat16").defines["TW_PIECES"] == 0
