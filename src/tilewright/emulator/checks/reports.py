"""What a check found: one ``Finding`` per kind and pair of instructions, with the first occurrence in detail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

# Stable names. Reports take any text as a kind, so that a room that adds one needs no change here; only its wording.
Kind = Literal[
    "out_of_bounds_read",
    "out_of_bounds_write",
    "misaligned",
    "uninitialised_read",
    "read_in_flight",
    "write_in_flight",
    "race_read_after_write",
    "race_write_after_read",
    "race_write_after_write",
    "copy_never_waited",
    "missing_proxy_fence",
    "async_read_in_flight",
    "overlapping_blocks",
    "race_between_blocks",
    "deadlock",
    "barrier_divergence",
    "mbarrier_misuse",
    "input_modified",
    "warp_mask",
    "inactive_lane_read",
    "cluster_barrier_misuse",
    "remote_too_early",
    "remote_too_late",
]


@dataclass(frozen=True, slots=True)
class Detail:
    """One occurrence.

    Attributes:
        symbol: the variable or buffer; empty where no memory is concerned.
        offset: of the first byte in it. size_bytes: 0 where no memory is concerned.
        block: number of the thread block, as the caller numbers them.
        thread, other_thread: linear thread index in the block; -1 where unknown or the asynchronous proxy.
        note: what only the reporter knows ("arrival count 0"), one clause.
    """

    symbol: str
    offset: int
    size_bytes: int
    block: int
    thread: int
    other_thread: int = -1
    note: str = ""

    @property
    def is_across_warps(self) -> bool:
        """Two threads of different warps: what orders these orders the lanes of one warp, too."""
        return self.other_thread >= 0 and self.thread >> 5 != self.other_thread >> 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Everything of one kind between one pair of instructions.

    Attributes:
        site: the instruction that the check stopped at; other_site: the earlier one, or -1.
        count: accesses by threads that were affected. detail: the first of them.
    """

    kind: str
    site: int
    other_site: int
    count: int
    detail: Detail


class Reporter:
    """Collects findings, one per (kind, site, other site), in the order in which they were first seen."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, int], int] = {}
        self._weights: dict[tuple[str, int, int], int] = {}
        self._details: dict[tuple[str, int, int], Detail] = {}

    def report(
        self,
        kind: str,
        site: int,
        other_site: int = -1,
        detail: Callable[[], Detail] | None = None,
        count: int = 1,
        weight: int = 0,
    ) -> None:
        """Count an occurrence. ``detail`` is called the first time, and when it outweighs the one that is kept."""
        key = (kind, site, other_site)
        kept = self._weights.get(key)
        if kept is None or weight > kept:
            self._weights[key] = weight
            self._details[key] = detail() if detail is not None else Detail("", 0, 0, 0, -1)
        self._counts[key] = self._counts.get(key, 0) + count

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(Finding(*key, count, self._details[key]) for key, count in self._counts.items())

    def __bool__(self) -> bool:
        return bool(self._counts)
