"""What a rung should take: the least times of the card's parts, and the longest of these."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.ladder.counted import Counted
from tilewright.ladder.family import load_family
from tilewright.ladder.predicting import CardRates, precision_of, predict, rates_of, scaled

RATES = CardRates(4e12, 2.0, 8e12, 1e12, 2.5e11, {"fp32": 6e13, "tf32": 4.8e14})


def test_predictions_name_what_bounds() -> None:
    copy_like, product = load_family("softmax"), load_family("sgemm")
    large = predict(copy_like, copy_like.sizes["default"], "float32", RATES)
    assert large.bound == "dram"
    assert large.us == pytest.approx(2 * 65536 * 4096 * 4 / 4e12 * 1e6 + 2)
    small = predict(copy_like, copy_like.sizes["tiny_31"], "float32", RATES, is_cold=False)
    assert (small.bound, small.us) == ("launch", pytest.approx(2.0, abs=0.01))
    mm = predict(product, product.sizes["default"], "float32", RATES)
    assert (mm.bound, mm.us) == ("fp32", pytest.approx(2 * 4096**3 / 6e13 * 1e6 + 2))
    fast = predict(product, product.sizes["default"], "float32", RATES, precision="tf32")
    assert fast.us < mm.us / 5
    warm = predict(copy_like, copy_like.sizes["large_1k"], "float32", RATES, is_cold=False)
    assert warm.bound == "l2"


def test_products_are_told_by_the_peak_of_what_they_are_made_in() -> None:
    halves, bytes_, singles = load_family("hgemm"), load_family("igemm"), load_family("sgemm")
    assert [precision_of(halves, dtype) for dtype in halves.dtypes] == ["fp16", "bf16"]
    assert precision_of(bytes_, "int8") == "int8"
    assert precision_of(singles, "float32") == "fp32"
    assert precision_of(singles, "float32", "tf32") == "tf32"
    rates = rates_of("NVIDIA H200", 4.28e12, 1.0)
    sizes = halves.sizes["default"]
    told = predict(halves, sizes, "bfloat16", rates, precision=precision_of(halves, "bfloat16"))
    assert (told.bound, told.us) == ("bf16", pytest.approx(2 * 8192**3 / 9.895e14 * 1e6 + 1))


def test_counters_of_a_rung_bound_it_too() -> None:
    family = load_family("sgemm")
    sizes, work = family.sizes["default"], 2.0 * 128 * 256 * 48
    naive = Counted(work, 32768, {"launches": 1, "instructions": 1e7, "global_sectors": 250000.0})
    tiled = Counted(work, 32768, {"instructions": 1.9e6, "global_sectors": 6400.0, "shared_wavefronts": 135168.0})
    slow = predict(family, sizes, "float32", RATES, runs=(naive,))
    assert slow.bound == "l2"
    assert slow.us == pytest.approx(250000 * 32 * 2 * 4096**3 / work / 8e12 * 1e6 + 2)
    assert predict(family, sizes, "float32", RATES, runs=(tiled,)).bound == "shared"
    assert predict(family, sizes, "float32", RATES, runs=(replace(tiled, counters={}),)).bound == "fp32"
    unknown = predict(family, sizes, "float32", CardRates(4e12, 2.0), runs=(naive,))
    assert unknown.bound == "dram"  # a card without a table: what was measured is all there is
    twice = replace(naive, counters={**naive.counters, "launches": 2})
    assert predict(family, sizes, "float32", RATES, runs=(twice,)).us == pytest.approx(slow.us + 2)


def test_what_a_thread_costs_is_told_from_what_its_work_costs() -> None:
    def count(work: float, threads: float) -> tuple[float, float, float]:
        return work, threads, 3 * work + 50 * threads

    two = [count(4096, 512), count(1030, 512)]
    assert scaled(two, 1e6, 1000) == pytest.approx(3e6 + 50e3)
    assert scaled(two[:1], 1e6, 1000) == pytest.approx(1e6 * (3 + 50 / 8))  # one run cannot tell
    same = [count(4096, 512), count(2048, 256)]  # nor two with as many threads for their work
    assert scaled(same, 1e6, 1000) == pytest.approx(1e6 * (3 + 50 / 8))
    less = [(4096.0, 512.0, 100.0), (1030.0, 512.0, 900.0)]  # nothing has a share below zero
    assert scaled(less, 8192, 1000) == pytest.approx(200)
    assert scaled([], 1.0, 1.0) == 0


def test_rates_of_a_card_with_a_table() -> None:
    rates = rates_of("NVIDIA H200", 4.28e12, 1.7)
    assert rates.dram_bytes == 4.28e12
    assert rates.l2_bytes == pytest.approx(32 * 132 * 1.98e9)
    assert rates_of("a card", 1e12, 1.0) == CardRates(1e12, 1.0)
