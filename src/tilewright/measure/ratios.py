"""What interleaved timings say: spreads, speedups with their intervals, verdicts. Pure functions of samples.

Figures count only as ratios inside one run: in each round every contender runs once, one after the other, and what is
compared is the ratio within the round, so that a clock that drifts with heat cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Literal

CompareVerdict = Literal["faster", "same", "slower", "ambiguous"]

CONFIDENCE = 0.95
# Ratios within 1 % of 1 are the same: twice what two runs of one kernel differ by on a card whose clock moves.
SAME_BAND = 0.01


@dataclass(frozen=True)
class Spread:
    """One contender's samples.

    Attributes:
        median_us, min_us: microseconds.
        iqr_us: third quartile minus the first.
        samples: how many.
    """

    median_us: float
    min_us: float
    iqr_us: float
    samples: int


@dataclass(frozen=True)
class Ratio:
    """A speedup: the median of ``baseline / variant`` over the rounds, above 1 where the variant is faster.

    Attributes:
        value: the median.
        low, high: its confidence interval (95 %, by order statistics; no distribution is assumed).
    """

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval, as a share of the value."""
        return (self.high - self.low) / 2 / self.value


def spread(samples_us: Sequence[float]) -> Spread:
    """Median, least and interquartile range."""
    ordered = sorted(samples_us)
    return Spread(
        median_us=median(ordered),
        min_us=ordered[0],
        iqr_us=quantile(ordered, 0.75) - quantile(ordered, 0.25),
        samples=len(ordered),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the closest ranks of sorted samples."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def speedup(baseline_us: Sequence[float], variant_us: Sequence[float]) -> Ratio:
    """The speedup of a variant from samples of the same rounds, in the same order."""
    if len(baseline_us) != len(variant_us):
        raise ValueError("samples of other rounds cannot be paired")
    ratios = sorted(base / variant for base, variant in zip(baseline_us, variant_us, strict=True))
    below, above = median_ranks(len(ratios))
    return Ratio(median(ratios), ratios[below], ratios[above])


def median_ranks(count: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Indices, from 0, of the two sorted samples between which the median lies with this confidence.

    The number of samples below the median follows B(n, 1/2), whatever their distribution. With fewer than six samples
    no pair reaches 95 %: the extremes are given.
    """
    tail = (1 - confidence) / 2
    if count >= 1000:  # 2**-n underflows; the normal approximation is exact to about a rank there
        rank = math.floor(count / 2 - NormalDist().inv_cdf(1 - tail) * math.sqrt(count) / 2 - 1)
        return rank, count - 1 - rank
    rank, below, term = 0, 0.0, 0.5**count
    for successes in range(count // 2):
        below += term
        if below > tail:
            break
        rank = successes
        term *= (count - successes) / (successes + 1)
    return rank, count - 1 - rank


def compare(ratio: Ratio, band: float = SAME_BAND) -> CompareVerdict:
    """The four-way verdict.

    * **same**: the whole interval lies within ``1 ± band``.
    * **faster** (**slower**): the whole interval lies above (below) 1, and the median leaves the band.
    * **ambiguous**: anything else. More samples, or a quieter machine, would be needed.
    """
    if 1 - band <= ratio.low and ratio.high <= 1 + band:
        return "same"
    if ratio.low > 1 and ratio.value > 1 + band:
        return "faster"
    if ratio.high < 1 and ratio.value < 1 - band:
        return "slower"
    return "ambiguous"


def noise_band(control: Ratio, least: float = SAME_BAND) -> float:
    """The band of sameness, from the baseline timed against itself in the same rounds: how far that strays from 1."""
    return max(least, abs(control.low - 1), abs(control.high - 1))
