"""What `plan.decide` expects of the variants of a K-loop, taken apart so that no gain is promised twice."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analyze.facts import Facts
from tilewright.arch.card import card_of
from tilewright.plan.decide import Decision, Prediction, decide

# Names of the plan's variants that are no pipelining.
_MOVES = ("widen", "cap_registers", "retile")
ONE = Prediction(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class TiledGains:
    """Predicted factors over the kernel as it is.

    Attributes:
        decision: the plan's own, with its reasons.
        best: the pipelined variant that it ranks first: ``cp_async2``; "" where there is none.
        pipeline: of that variant, wider loads included. alone: the same without what wider loads bring by themselves.
        widen: wider loads alone; None where they are not possible. is_built: judged from builds.
        compared: the pipelined variants that ``best`` comes first of.
    """

    decision: Decision
    best: str
    pipeline: Prediction
    alone: Prediction
    widen: Prediction | None
    is_built: bool = False
    compared: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where the factors come from."""
        return "plan, from compiled builds" if self.is_built else "plan, before anything is built"


def tiled_gains(facts: Facts) -> TiledGains | None:
    """None where no K-loop was understood."""
    if facts.tiled is None or facts.budget is None:
        return None
    card = card_of(facts.device, "of the report") if facts.device is not None else None
    known = facts.decision or decide(facts.tiled, facts.budget, facts.arch, card)
    rings = {k: p for k, p in known.predicted.items() if not k.startswith(_MOVES)}
    is_built = bool(known.ranking)
    if is_built:  # what was only expected before does not count beside it
        built = {label.split("/")[0] for label in known.ranking}
        rings = {k: p for k, p in rings.items() if k in built}
        best = known.best or ""
    else:
        best = max(rings, key=lambda k: (round(rings[k].speedup, 2), k == known.best)) if rings else ""
    widen = known.predicted.get("widen")
    total = rings[best] if best else ONE
    by_width = widen.speedup if widen is not None and "single" not in best else 1.0
    alone = Prediction(total.speedup / by_width, total.low / by_width, total.high / by_width)
    return TiledGains(known, best, total, alone, widen, is_built, tuple(sorted(rings)))
