"""Seconds of timing for each of many sets of sizes, so that all of them are done in time: rather fewer rounds than
sets that are left out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LEAST_S = 0.002  # with which a set still gets its least number of rounds
_SEEN = 8


class Pace:
    """Spreads what is left until ``until`` over the sets that are left.

    Args:
        seconds: of timing for a set, at the most. until: of ``clock``; infinity for no end. count: of sets.
    """

    def __init__(self, seconds: float, until: float, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._until, self._left, self._clock = seconds, until, count, clock
        self._beside: deque[float] = deque(maxlen=_SEEN)  # what sets took besides their timing
        self._begin, self._given = clock(), seconds

    @property
    def is_over(self) -> bool:
        return self._clock() > self._until

    def begin(self) -> float:
        """Seconds of timing for the next set."""
        self._begin = self._clock()
        beside = sum(self._beside) / len(self._beside) if self._beside else 0.0
        share = (self._until - self._begin) / max(self._left, 1) - beside
        self._given = max(LEAST_S, min(self._seconds, share))
        return self._given

    def end(self) -> None:
        """The set is done."""
        self._left -= 1
        self._beside.append(max(0.0, self._clock() - self._begin - self._given))
