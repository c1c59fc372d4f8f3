"""What every strategy shares: from a modelled gain to a recommendation, or to a reason against it."""

from __future__ import annotations

from typing import Literal

from tilewright.analyze.facts import Facts
from tilewright.analyze.record import Evidence, SetAside, Strategy

Judged = Strategy | SetAside | None

# A gain below this is within what a measurement can tell.
WORTH = 1.03

# SPEC of the profiling method: the order of remedies, none skipped.
REMEDIES = (
    "coalesce", "tile", "widen", "thread_tile", "bank_conflicts", "pipeline", "tensor_cores", "warp_specialise", "tma",
)  # fmt: skip

TITLES = {
    "coalesce": "Let neighbouring lanes touch neighbouring addresses",
    "tile": "Tile through shared memory",
    "widen": "Load 16 bytes at a time",
    "thread_tile": "Compute a larger patch per thread",
    "bank_conflicts": "Pad or swizzle the shared arrays",
    "pipeline": "Pipeline the K-loop",
    "loads_in_flight": "Have more loads in flight per thread",
    "cap_registers": "Cap the registers, for one more block per SM",
    "shrink_shared": "Shrink the shared memory of a block",
    "tensor_cores": "Multiply on the tensor cores",
    "warp_specialise": "Give the copies to warps of their own",
    "tma": "Copy by tensor map (TMA)",
    "more_blocks": "Make more blocks",
    "balance_waves": "Even out the last wave",
    "fuse": "Fuse it with a neighbour",
    "spills": "Remove the spills",
    "special_functions": "Relieve the special-function pipe",
}


def recommend(
    facts: Facts,
    key: str,
    speedup: float,
    evidence: tuple[Evidence, ...],
    *,
    how: str,
    effort: Literal["small", "large"],
    low: float | None = None,
    high: float | None = None,
) -> Strategy | SetAside:
    """A strategy, or set aside where the gain would not show.

    Args:
        low, high: of the range; by default the model's spread round the gain.
    """
    if speedup < WORTH:
        return SetAside(key, f"the model expects {speedup:.2f}x of it: nothing that would show", evidence)
    return Strategy(
        key=key,
        title=TITLES[key],
        speedup=round(speedup, 3),
        low=round(speedup / facts.spread if low is None else low, 3),
        high=round(speedup * facts.spread if high is None else high, 3),
        effort=effort,
        evidence=evidence,
        how=how,
        remedy=REMEDIES.index(key) + 1 if key in REMEDIES else 0,
    )
