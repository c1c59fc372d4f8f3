"""What the samples of one set of sizes say: who was right, who was faster. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.ladder.report import Kind, Outcome, PeerPoint, TimedContender
from tilewright.measure.measure import Clock, Plan, sample
from tilewright.measure.ratios import SAME_BAND, Ratio, speedup, spread
from tilewright.verification.tolerance import Arithmetic, Tolerance

PEER_KINDS: frozenset[Kind] = frozenset({"eager", "compile", "autotune", "triton"})
OURS: Kind = "rung"
PART = 1 << 25  # elements that are compared at a time


@dataclass(frozen=True)
class Contender:
    """One that takes part.

    Attributes:
        name: unique among them. call: puts one call on the stream; returns its outputs, where those are new arrays.
        outputs: what ``call`` returned → the outputs in order; None where there is nothing to check (the copy).
        prepare: before the call whose results are checked, so that results of another one cannot stand in for them.
        arithmetic: for the tolerance; None for that of the inputs' types.
        is_tuned: its first call times kernels on the card, to pick among them.
        why: it cannot take part; it is recorded with that.
    """

    name: str
    kind: Kind
    call: Callable[[], Any] = field(repr=False)
    outputs: Callable[[Any], Sequence[Any]] | None = field(default=None, repr=False)
    prepare: Callable[[], None] = field(default=lambda: None, repr=False)
    is_captured: bool = True
    arithmetic: Arithmetic | None = None
    is_tuned: bool = False
    why: str = ""


def mismatch(
    name: str, got: Any, need: Any, tolerance: Tolerance, widened: Callable[[Any], Any] = lambda part: part
) -> str:
    """What is wrong with an output; "" for nothing.

    Args:
        got, need: of NumPy or of PyTorch, of one shape, ``need`` in float64.
        widened: makes float64 of a part of ``got``: of all of it at once, there may be no room for.
    """
    if tuple(got.shape) != tuple(need.shape):
        return f"{name} has the shape {tuple(got.shape)} instead of {tuple(need.shape)}"
    flat, expected = got.reshape(-1), need.reshape(-1)
    total, count, first = int(expected.shape[0]), 0, ""
    for begin in range(0, total, PART):
        found, right = widened(flat[begin : begin + PART]), expected[begin : begin + PART]
        # Nothing but itself is near an infinity, though any distance is within its share of one.
        near = (abs(found - right) <= tolerance.absolute + tolerance.relative * abs(right)) & (abs(right) < math.inf)
        wrong = ~(near | (found == right) | ((found != found) & (right != right)))
        here = int(wrong.sum())
        if here and not count:
            at = int((wrong * 1).argmax())
            first = f"{float(found[at]):.6g} instead of {float(right[at]):.6g}"
        count += here
    return f"{count:,} of {total:,} elements of {name} are wrong: {first}" if count else ""


def contest(
    point: PeerPoint,
    contenders: Sequence[Contender],
    check: Callable[[Contender], str],
    clock_for: Callable[[Mapping[str, Contender]], Clock],
    plan: Plan,
) -> PeerPoint:
    """Check each contender, time those that are right, interleaved, and say who won.

    Args:
        check: what is wrong with a contender's results; "" for nothing. It may raise whatever the contender does.
        clock_for: times them by name. It may drop one, by leaving it in ``failed``: name → why.
    """
    told: dict[str, TimedContender] = {}
    ready: dict[str, Contender] = {}
    for one in contenders:
        draft = TimedContender(one.name, one.kind, is_captured=one.is_captured)
        try:
            why = "" if one.why else check(one)
        except Exception as error:  # whatever a foreign kernel, or its compiler, raises is why it does not take part
            told[one.name] = replace(draft, message=sentence(error))
            continue
        if one.why:
            told[one.name] = replace(draft, message=one.why)
        elif why:
            told[one.name] = replace(draft, verdict="failed", message=why)
        else:
            told[one.name], ready[one.name] = draft, one
    if any(one.kind == OURS for one in ready.values()):
        clock = clock_for(ready)
        failed: Mapping[str, str] = getattr(clock, "failed", {})
        names = [name for name in ready if name not in failed]
        for name, why in failed.items():
            told[name] = replace(told[name], message=why)
        captured: Mapping[str, bool] = getattr(clock, "is_captured", {})
        samples = sample(clock, names, plan) if names else {}
        for name, times in samples.items():
            timed = replace(told[name], is_captured=captured.get(name, told[name].is_captured))
            told[name] = _timed(timed, times, point)
    else:
        samples = {}
    return judged(replace(point, contenders=tuple(told[one.name] for one in contenders)), samples)


def sentence(error: Exception) -> str:
    """What was raised, in a line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _timed(contender: TimedContender, times: Sequence[float], point: PeerPoint) -> TimedContender:
    figures = spread(times)
    return replace(
        contender,
        verdict="passed",
        median_us=figures.median_us,
        min_us=figures.min_us,
        iqr_us=figures.iqr_us,
        samples=figures.samples,
        gbps=point.total_bytes / figures.median_us / 1e3,
        gflops=point.flops / figures.median_us / 1e3 if point.flops else None,
    )


def judged(point: PeerPoint, samples: Mapping[str, Sequence[float]]) -> PeerPoint:
    """Who won. A peer that is faster by the median is a loss, whatever the interval says."""
    ours = next((c for c in point.contenders if c.kind == OURS), None)
    peers = [c for c in point.contenders if c.kind in PEER_KINDS and c.median_us is not None]
    if ours is None or ours.median_us is None:
        why = ours.message if ours is not None else "no rung takes these sizes"
        return replace(point, message=why)
    copies = [c for c in point.contenders if c.kind == "copy" and c.median_us is not None]
    if copies:
        copy = min(copies, key=lambda c: c.median_us or 0.0)
        point = replace(point, copy_share=speedup(samples[copy.name], samples[ours.name]).value)
    if not peers:
        return replace(point, message="no peer could be timed")
    best = min(peers, key=lambda c: c.median_us or 0.0)
    ratio = speedup(samples[best.name], samples[ours.name])
    return replace(
        point,
        outcome=outcome_of(ratio),
        best_peer=best.name,
        ratio=ratio.value,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
    )


def outcome_of(ratio: Ratio) -> Outcome:
    """Of best peer's time over ours."""
    if ratio.value < 1 - SAME_BAND:
        return "lost"
    return "won" if ratio.value > 1 + SAME_BAND and ratio.low > 1 else "level"
