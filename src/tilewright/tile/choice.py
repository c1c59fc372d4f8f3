"""The choice among candidates, and why: against each rival the terms in which it loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.tile.candidate import OCCUPANCY_ENOUGH, OCCUPANCY_LOW, OCCUPANCY_START, Candidate

RIVALS = 4
# A term that differs by less than this share of the chosen time is not what a rival loses by.
TELLING = 0.03
TERM_NAMES = {
    "tensor": "matrix instructions",
    "shared": "shared-memory traffic",
    "issue": "instruction issue",
    "l2": "bytes from L2",
    "waits": "waits that too few stages or warps leave open",
    "ends": "prologues and epilogues",
    "dram": "DRAM traffic",
    "reduce": "the second pass of split-K",
    "launch": "the launch",
    "math": "arithmetic",
    "exp": "exponentials",
    "flight": "too few bytes in flight",
}


@dataclass(frozen=True)
class LostTerm:
    """A term in which a rival is worse, in microseconds more than the chosen."""

    term: str
    more_us: float


@dataclass(frozen=True)
class Rival:
    """A candidate that was not chosen. ``slower`` is its predicted time over the chosen's."""

    label: str
    slower: float
    loses: tuple[LostTerm, ...]
    reason: str


@dataclass(frozen=True)
class Choice:
    """The chosen candidate, what speaks for it, and its rivals."""

    candidate: Candidate
    reasons: tuple[str, ...]
    rivals: tuple[Rival, ...]


def choose(candidates: Sequence[Candidate]) -> Choice:
    """The first of candidates that stand fastest first, against rivals of other block shapes."""
    chosen = candidates[0]
    return Choice(chosen, _reasons(chosen), tuple(_rival(chosen, other) for other in _rivals(candidates)))


def heads(candidates: Sequence[Candidate], count: int) -> tuple[Candidate, ...]:
    """The fastest of each block shape: what is worth a row of a table. Candidates stand fastest first."""
    first: dict[tuple[int, ...], Candidate] = {}
    for candidate in candidates:
        first.setdefault(_shape(candidate), candidate)
    return tuple(first.values())[:count]


def _rivals(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The next best, one for each block shape: forty variants of the chosen shape would teach nothing."""
    seen = {_shape(ranked[0])}
    rivals = list(ranked[1:2])
    seen.update(_shape(c) for c in rivals)
    for other in ranked[2:]:
        if len(rivals) == RIVALS:
            break
        if _shape(other) not in seen:
            seen.add(_shape(other))
            rivals.append(other)
    return rivals


def _shape(candidate: Candidate) -> tuple[int, ...]:
    return tuple(v for name, v in candidate.parameters.items() if name in ("bm", "bn", "split_k", "warps", "rows"))


def _rival(chosen: Candidate, other: Candidate) -> Rival:
    more = {name: us - chosen.terms_us.get(name, 0.0) for name, us in other.terms_us.items()}
    telling = {name: us for name, us in more.items() if us > TELLING * chosen.time_us}
    # What both hide behind a larger term decides nothing.
    loses = tuple(
        LostTerm(name, us)
        for name, us in sorted(telling.items(), key=lambda item: -item[1])
        if other.terms_us[name] >= 0.5 * other.terms_us[other.bound_by] or name in ("ends", "reduce", "dram", "flight")
    )
    slower = other.time_us / chosen.time_us
    return Rival(other.label, slower, loses, _why(chosen, other, slower, loses))


def _why(chosen: Candidate, other: Candidate, slower: float, loses: Sequence[LostTerm]) -> str:
    parts = [f"{TERM_NAMES.get(lost.term, lost.term)} (+{lost.more_us:.2g} us)" for lost in loses[:3]]
    text = f"{slower - 1:.1%} slower"
    if parts:
        text += ": " + ", ".join(parts)
    elif slower < 1 + TELLING:
        text += ": as good, by this model"
    else:
        text += ": a little more in every term"
    if other.tail < chosen.tail and other.waves > 1:
        text += f"; its last wave fills {other.tail:.0%} of the card, the chosen one's {chosen.tail:.0%}"
    return text + "."


def _reasons(chosen: Candidate) -> tuple[str, ...]:
    bound = TERM_NAMES.get(chosen.bound_by, chosen.bound_by)
    share = chosen.terms_us[chosen.bound_by] / chosen.time_us
    reasons = [f"Limited by {bound}: {chosen.terms_us[chosen.bound_by]:.3g} us of {chosen.time_us:.3g} ({share:.0%})."]
    last = "" if chosen.waves < 1 else f", the last one {chosen.tail:.0%} full"
    many = "1 block" if chosen.blocks == 1 else f"{chosen.blocks} blocks"
    reasons.append(
        f"{many}, {chosen.blocks_per_sm} per SM at once (limited by {chosen.limiter}): {chosen.waves:.2f} waves{last}."
    )
    reasons.append(f"Occupancy {chosen.occupancy:.0%}: {occupancy_rule(chosen.occupancy, 'bm' in chosen.parameters)}")
    return tuple(reasons)


def occupancy_rule(share: float, matrix: bool) -> str:
    """What the occupancy of a kernel means."""
    if share > OCCUPANCY_ENOUGH:
        return "more than 75 % is rarely worth more."
    if share >= OCCUPANCY_START:
        return "50 % is where to start."
    if matrix:
        return "low, and accepted: a matrix kernel hides latency by independent sums and the ring's stages."
    return "below the 50 % where to start." if share >= OCCUPANCY_LOW else "below 25 %: too few warps to hide latency."
