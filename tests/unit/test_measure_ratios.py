"""The statistics of timings, and that swapped or unpaired ones would show."""

from __future__ import annotations

import math
import random
from math import comb
from statistics import median

import pytest

from tilewright.measure.ratios import (
    SAME_BAND,
    Ratio,
    compare,
    median_ranks,
    noise_band,
    quantile,
    speedup,
    spread,
)


def test_spread() -> None:
    figures = spread([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (figures.median_us, figures.min_us, figures.iqr_us, figures.samples) == (3.0, 1.0, 2.0, 5)
    assert spread([7.0]).iqr_us == 0.0
    assert quantile([0.0, 10.0], 0.25) == 2.5


def test_speedup_is_baseline_over_variant() -> None:
    ratio = speedup([10.0] * 12, [5.0] * 12)
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    swapped = speedup([5.0] * 12, [10.0] * 12)
    assert swapped.value == 0.5
    assert (compare(ratio), compare(swapped)) == ("faster", "slower")


def test_pairs_cancel_a_clock_that_drifts() -> None:
    """Both get slower by half during the run; the ratio within each round does not move."""
    drift = [1 + 0.5 * step / 99 for step in range(100)]
    ratio = speedup([10 * d for d in drift], [9.5 * d for d in drift])
    assert ratio.value == pytest.approx(10 / 9.5)
    assert ratio.half_width < 1e-9
    shuffled = [9.5 * d for d in drift]
    random.Random(1).shuffle(shuffled)
    assert speedup([10 * d for d in drift], shuffled).half_width > 0.02
    with pytest.raises(ValueError, match="paired"):
        speedup([1.0, 2.0], [1.0])


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 20, 51, 100, 333, 999])
def test_ranks_cover_the_median_with_95_percent(count: int) -> None:
    low, high = median_ranks(count)
    assert low + high == count - 1

    def coverage(rank: int) -> float:
        return sum(comb(count, k) for k in range(rank + 1, count - rank)) / 2**count

    if count >= 6:
        assert coverage(low) >= 0.95
        assert coverage(low + 1) < 0.95  # the narrowest such interval
    else:
        assert low == 0


def test_ranks_meet_where_the_approximation_takes_over() -> None:
    assert median_ranks(1000)[0] in (467, 468)
    assert median_ranks(1001)[0] == pytest.approx(median_ranks(999)[0], abs=2)


def test_the_interval_holds_the_truth() -> None:
    """In 400 simulated runs of a 3 % gain under skewed noise, the interval misses it in about one of twenty."""
    generator = random.Random(3)
    missed = 0
    for _ in range(400):
        base = [103 * math.exp(0.02 * generator.expovariate(1.0)) for _ in range(31)]
        variant = [100 * math.exp(0.02 * generator.expovariate(1.0)) for _ in range(31)]
        ratio = speedup(base, variant)
        missed += not ratio.low <= 1.03 <= ratio.high
    assert 4 <= missed <= 36


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Ratio(1.5, 1.4, 1.6), "faster"),
        (Ratio(1.02, 1.001, 1.03), "faster"),
        (Ratio(0.7, 0.6, 0.8), "slower"),
        (Ratio(0.98, 0.97, 0.999), "slower"),
        (Ratio(1.0, 0.995, 1.005), "same"),
        (Ratio(1.005, 1.002, 1.008), "same"),
        (Ratio(1.008, 1.001, 1.02), "ambiguous"),
        (Ratio(1.1, 0.9, 1.3), "ambiguous"),
        (Ratio(0.95, 0.9, 1.0), "ambiguous"),
        (Ratio(1.0, 0.9, 1.005), "ambiguous"),
    ],
)
def test_verdicts(ratio: Ratio, verdict: str) -> None:
    assert compare(ratio) == verdict


def test_a_noisy_control_widens_the_band() -> None:
    assert noise_band(Ratio(1.0, 0.999, 1.002)) == SAME_BAND
    band = noise_band(Ratio(1.0, 0.96, 1.03))
    assert band == pytest.approx(0.04)
    assert compare(Ratio(1.02, 1.015, 1.025), band) == "same"
    assert compare(Ratio(1.02, 1.015, 1.025)) == "faster"


def test_median_of_ratios_is_not_the_ratio_of_minima() -> None:
    base, variant = [10.0, 10.0, 4.0], [10.0, 10.0, 10.0]
    assert speedup(base, variant).value == 1.0 == median([1.0, 1.0, 0.4])
    assert min(base) / min(variant) == 0.4
