"""Whether pipelining should pay, which variant, and why: the two ratios, the warps, the cliff and the prediction.

Two ratios are printed and never mixed up: ``flop_per_byte`` comes from the tile, ``ops_per_load`` from the SASS. The
published thresholds (below 5, 5 to 20, above 20) were measured on ``ops_per_load``, and in the same data the active
warps per SM decide as much; so the verdict is judged on these two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.arch.card import Card, assumed_card
from tilewright.plan.budget import Budget
from tilewright.plan.compiled import BASELINE as AS_IT_IS
from tilewright.plan.compiled import Built, Model, load_model, ranked, speedups
from tilewright.plan.facts import PlanFacts, for_card
from tilewright.plan.predict import (
    ASYNC_WAITED,
    BASELINE,
    CAPPED,
    RETILED,
    VARIANTS,
    WIDENED,
    TileCost,
    estimated_inputs,
    halved,
    predicted_speedup,
    tile_cost,
)

Verdict = Literal["pipeline", "try_both", "do_not_pipeline"]

PIPELINED = ("ldg", "cp_async", "bulk", "tma")

FEW_OPS_PER_LOAD = 5.0
MANY_OPS_PER_LOAD = 20.0
ENOUGH_WARPS = 8
TOO_FEW_WARPS = 4
MIN_TILES = 2
TILES_FOR_A_GAIN = 4
# The range of a prediction whose inputs are all known, and what each assumed input adds to it.
BASE_UNCERTAINTY = 0.12
UNCERTAINTY_PER_ESTIMATE = 0.06
# Where ops_per_load is not known, the model decides: a gain below the first is none, above the second is clear.
NO_GAIN = 1.02
CLEAR_GAIN = 1.10


@dataclass(frozen=True)
class Prediction:
    """A predicted speedup over the baseline and its range, as factors."""

    speedup: float
    low: float
    high: float


@dataclass(frozen=True)
class GainSplit:
    """What the predicted gain of the best cp.async variant is made of: factors, whose product is its speedup.

    Both before anything is compiled: of the compiled variants' predictions it is no longer the product.
    """

    width: float
    async_copy: float
    overlap: float


@dataclass(frozen=True)
class Decision:
    """The decision; all variants that can be built are built, whatever it says.

    Attributes:
        flop_per_byte: from the tile, or None when a tile size is not known.
        ops_per_load: from the SASS, or None.
        warps_per_sm: active, of the baseline.
        predicted: by variant key: ``ldg``, ``ldg_single``, ``cp_async2``, ``cp_async3``, ``cp_async4``; those that the
            architecture and the copies allow. Beside them what is no pipelining: ``widen``, ``cap_registers``,
            ``retile`` alone and in rings (``retile2``, …); the last two once they are compiled.
        best: the key of a pipelined variant with the highest predicted speedup; of equals the one with fewer stages.
            Once compiled, the first of them in the ranking.
        ranking: labels of what was compiled, ``baseline`` among them, the best first; empty before compiling.
        card: what it was decided for.
        gain: the predicted split, or None where no cp.async variant is possible.
        reasons: sentences, the most important first.
    """

    verdict: Verdict
    flop_per_byte: float | None
    ops_per_load: float | None
    warps_per_sm: int
    predicted: Mapping[str, Prediction]
    best: str | None = None
    gain: GainSplit | None = None
    reasons: tuple[str, ...] = field(default=())
    ranking: tuple[str, ...] = ()
    card: Card | None = None


def decide_built(
    facts: PlanFacts,
    plan: Budget,
    arch: Arch,
    builds: Mapping[str, Built],
    model: Model | None = None,
    card: Card | None = None,
) -> Decision:
    """The decision once everything is compiled: the K-loops as they are take the place of what was expected of them.

    Args:
        facts, plan, arch: as for `decide`.
        builds: by label, the baseline among them, and ``ldg/early`` where a variant was built in two orders.
        model: the shipped one by default.
        card: as for `decide`.
    """
    card = card or assumed_card(arch.name)
    own_loop = builds.get(AS_IT_IS)
    if own_loop is not None and not facts.precision:
        facts = replace(facts, precision=next((s.precision for s in own_loop.schedule.trip if s.precision), ""))
    before = decide(facts, plan, arch, card)
    model = model or load_model()
    found = speedups(builds, arch, model, card)
    if not found:
        return before
    order = ranked(found, arch, model)
    own: dict[str, Prediction] = {}
    for label in order:  # of two orders of one variant the better one
        if label != AS_IT_IS:
            spread = model.spread(label, arch)
            made = Prediction(found[label], found[label] * exp(spread.low), found[label] * exp(spread.high))
            own.setdefault(label.split("/")[0], made)
    best = next((name for label in order if (name := label.split("/")[0]).startswith(PIPELINED)), None)
    verdict, why = _verdict_of_builds(facts, before, own[best] if best else None)
    return replace(
        before,
        verdict=verdict,
        predicted={**before.predicted, **own},
        best=best,
        ranking=order,
        reasons=(
            why,
            *_after_the_cliff("try_both", plan)[1],
            *_facts_remarks(facts, arch),
            *_built_remarks(order, own, arch, model),
            card.told,
        ),
    )


def decide(facts: PlanFacts, plan: Budget, arch: Arch, card: Card | None = None) -> Decision:
    """Rank the variants and say whether pipelining should pay.

    Args:
        facts: the kernel.
        plan: the budget of the same kernel on the same architecture.
        arch: the architecture.
        card: of that architecture; by default the assumed one. The facts' own SMs come first.
    """
    card = card or assumed_card(arch.name)
    facts = for_card(facts, arch, card)
    warps = plan.rows[0].warps_per_sm
    baseline = tile_cost(facts, plan, arch, BASELINE)
    predicted = _predictions(facts, plan, arch, baseline) if baseline is not None else {}
    # max() keeps the first of equals, and stages rise: fewer stages for the same gain.
    best = max(predicted, key=lambda key: round(predicted[key].speedup, 2)) if predicted else None
    verdict, why = _verdict(facts, warps, predicted[best] if best else None)
    verdict, cliff_reasons = _after_the_cliff(verdict, plan)
    moves = _moves(facts, plan, arch, baseline) if baseline is not None else {}
    return Decision(
        verdict=verdict,
        flop_per_byte=facts.flop_per_byte,
        ops_per_load=facts.ops_per_load,
        warps_per_sm=warps,
        predicted={**predicted, **moves},
        best=best,
        gain=_gain_split(facts, plan, arch, baseline, predicted) if baseline is not None else None,
        reasons=(
            why,
            *cliff_reasons,
            *_facts_remarks(facts, arch),
            *_model_remarks(facts, arch, predicted, best, baseline),
            *_moves_remarks(moves, predicted[best] if best else None),
            card.told,
        ),
        card=card,
    )


def _verdict_of_builds(facts: PlanFacts, before: Decision, best: Prediction | None) -> tuple[Verdict, str]:
    """By the prediction; where the published thresholds say otherwise, that is told."""
    if best is None or (facts.num_tiles is not None and facts.num_tiles < MIN_TILES):
        return before.verdict, before.reasons[0]
    verdict: Verdict = "try_both"
    if best.speedup < NO_GAIN:
        verdict = "do_not_pipeline"
    elif best.speedup >= CLEAR_GAIN and best.low > 1.0:
        verdict = "pipeline"
    if facts.ops_per_load is None:
        told = f"{best.speedup:.2f}x ({best.low:.2f} to {best.high:.2f})"
        why = f"ops_per_load is not known; of the compiled variants that pipeline, {told} is predicted at best."
        return _promised(facts, verdict, why)
    alone, why = _by_thresholds(facts.ops_per_load, before.warps_per_sm)
    said = "The published thresholds alone say otherwise: " if verdict != alone else ""
    return _promised(facts, verdict, f"{said}{why}")


def _promised(facts: PlanFacts, verdict: Verdict, why: str) -> tuple[Verdict, str]:
    """The verdict, unless there are too few tiles to promise a gain."""
    if verdict == "pipeline" and facts.num_tiles is not None and facts.num_tiles < TILES_FOR_A_GAIN:
        few = f" But num_tiles is {facts.num_tiles}: prologue and epilogue do not amortise, so no gain is promised."
        return "try_both", why + few
    return verdict, why


def _built_remarks(order: tuple[str, ...], own: Mapping[str, Prediction], arch: Arch, model: Model) -> list[str]:
    first = order[0]
    if first == AS_IT_IS:
        found = ["No variant is predicted to be worth its risk: the baseline stays first."]
    else:
        told = own[first.split("/")[0]]
        found = [f"Ranked first is {first}, {told.speedup:.2f}x ({told.low:.2f} to {told.high:.2f})."]
    cards = ", ".join(model.cards)
    stands = f"Predicted from the compiled K-loops, by a model calibrated on {model.cases} cases on one card: {cards}."
    if arch.name != model.reference:
        stands += f" On {arch.name} its rates are scaled by the tables, and the ranges are wider."
    return [*found, stands]


def _predictions(facts: PlanFacts, plan: Budget, arch: Arch, baseline: TileCost) -> dict[str, Prediction]:
    uncertainty = 1 + BASE_UNCERTAINTY + UNCERTAINTY_PER_ESTIMATE * len(estimated_inputs(facts))
    promised = facts.num_tiles is None or facts.num_tiles >= TILES_FOR_A_GAIN
    found: dict[str, Prediction] = {}
    for schedule in VARIANTS:
        cost = tile_cost(facts, plan, arch, schedule)
        if cost is None:
            continue
        speedup = predicted_speedup(facts, baseline, cost)
        low = speedup / uncertainty
        found[schedule.key] = Prediction(speedup, low if promised else min(low, 1.0), speedup * uncertainty)
    return found


def _moves(facts: PlanFacts, plan: Budget, arch: Arch, baseline: TileCost) -> dict[str, Prediction]:
    """What pays without pipelining: wider loads alone, one more block per SM, half a tile."""
    uncertainty = 1 + BASE_UNCERTAINTY + UNCERTAINTY_PER_ESTIMATE * len(estimated_inputs(facts))
    small, small_plan = halved(facts, plan)
    found: dict[str, Prediction] = {}
    for schedule in (WIDENED, CAPPED, *RETILED):
        is_half = schedule in RETILED
        if schedule == WIDENED and all(copy.widened_bytes is None for copy in facts.copies):
            continue
        if schedule != WIDENED and schedule.key not in facts.variant_registers:
            continue
        if is_half and facts.retiled != "BK":
            continue  # half of BM changes the number of blocks, which the cost of a tile says nothing about
        cost = tile_cost(small if is_half else facts, small_plan if is_half else plan, arch, schedule)
        if cost is not None:
            speedup = predicted_speedup(facts, baseline, cost, 2 if is_half else 1)
            found[schedule.key] = Prediction(speedup, speedup / uncertainty, speedup * uncertainty)
    return found


def _moves_remarks(moves: Mapping[str, Prediction], best: Prediction | None) -> list[str]:
    """Where a move is predicted to do as much as pipelining, it is the smaller change."""
    key = max(moves, key=lambda name: moves[name].speedup, default=None)
    if key is None or moves[key].speedup < CLEAR_GAIN or (best is not None and moves[key].speedup < best.speedup):
        return []
    return [f"{key} is predicted at {moves[key].speedup:.2f}x, no less than pipelining whole tiles."]


def _gain_split(
    facts: PlanFacts, plan: Budget, arch: Arch, baseline: TileCost, predicted: Mapping[str, Prediction]
) -> GainSplit | None:
    widened = tile_cost(facts, plan, arch, WIDENED)
    waited = tile_cost(facts, plan, arch, ASYNC_WAITED)
    rings = [prediction.speedup for key, prediction in predicted.items() if key.startswith("cp_async")]
    if widened is None or waited is None or not rings:
        return None
    by_width = baseline.cycles / widened.cycles
    by_async = widened.cycles / waited.cycles
    return GainSplit(by_width, by_async, max(rings) / by_width / by_async)


def _verdict(facts: PlanFacts, warps: int, best: Prediction | None) -> tuple[Verdict, str]:
    if facts.num_tiles is not None and facts.num_tiles < MIN_TILES:
        return (
            "do_not_pipeline",
            f"num_tiles is {facts.num_tiles} at the default sizes: no next tile to fetch.",
        )
    if best is None:
        return "do_not_pipeline", "No variant fits on an SM."
    if facts.ops_per_load is None:
        verdict, why = _by_prediction(best)
    else:
        verdict, why = _by_thresholds(facts.ops_per_load, warps)
    return _promised(facts, verdict, why)


def _by_thresholds(ops_per_load: float, warps: int) -> tuple[Verdict, str]:
    head = f"ops_per_load is {ops_per_load:.1f} (math instructions per global load, SASS), {warps} warps per SM: "
    if ops_per_load < FEW_OPS_PER_LOAD:
        if warps <= TOO_FEW_WARPS:
            return "try_both", head + "few operations hide each load, but with 4 warps or fewer pipelining has lost."
        if warps < ENOUGH_WARPS:
            return "try_both", head + "few operations hide each load; below 8 warps build both and time them."
        return "pipeline", head + "below 5 with 8 warps or more, asynchronous copies have won (+15 to 35 %)."
    if ops_per_load <= MANY_OPS_PER_LOAD:
        if warps <= TOO_FEW_WARPS:
            return "do_not_pipeline", head + "from 5 to 20 with 4 warps or fewer, pipelining has lost."
        return "try_both", head + "from 5 to 20 the gain was 5 to 15 %: build both and time them."
    if warps >= ENOUGH_WARPS:
        return "do_not_pipeline", head + "above 20 with 8 warps or more, warps hide the latency (0 to 5 %, or a loss)."
    return "try_both", head + "above 20, but too few warps to hide the latency: build both and time them."


def _by_prediction(best: Prediction) -> tuple[Verdict, str]:
    head = f"ops_per_load is not known; the model predicts {best.speedup:.2f}x at best: "
    if best.speedup >= CLEAR_GAIN:
        return "pipeline", head + "a clear gain."
    if best.speedup < NO_GAIN:
        return "do_not_pipeline", head + "none worth the registers and shared memory."
    return "try_both", head + "build both and time them."


def _after_the_cliff(verdict: Verdict, plan: Budget) -> tuple[Verdict, list[str]]:
    doubled = plan.row(2)
    if doubled is None:
        return verdict, []
    if not doubled.crosses_cliff:
        few = "Two stages leave fewer than 2 blocks per SM to hide each other's waits."
        return verdict, [] if plan.doubling_keeps_two else [few]
    single = plan.rows[0]
    reason = (
        f"Two stages cross the cliff: {single.blocks_per_sm} blocks per SM become {doubled.blocks_per_sm} "
        f"({single.warps_per_sm} warps become {doubled.warps_per_sm})."
    )
    if verdict == "pipeline" and doubled.warps_per_sm < ENOUGH_WARPS:
        return "try_both", [f"{reason} That is below 8 warps: a gain is no longer expected, only possible."]
    return verdict, [reason]


def _facts_remarks(facts: PlanFacts, arch: Arch) -> list[str]:
    found: list[str] = []
    if facts.flop_per_byte is not None:
        found.append(
            f"flop_per_byte is {facts.flop_per_byte:.1f}, from the tile alone; the thresholds are not about it."
        )
    narrow = [copy for copy in facts.copies if copy.load_bytes < 4]
    if narrow:
        width = "-byte, ".join(str(size) for size in sorted({copy.load_bytes for copy in narrow}))
        widened = all(copy.widened_bytes is not None for copy in narrow)
        found.append(f"{width}-byte loads: " + ("widen them first." if widened else "they could not be widened."))
    if not arch.has_cp_async:
        found.append(f"{arch.name} has no cp.async.")
    elif any(copy.async_bytes is None for copy in facts.copies):
        found.append("cp.async cannot carry every copy: it moves 4, 8 or 16 aligned bytes and converts nothing.")
    return found


def _model_remarks(
    facts: PlanFacts,
    arch: Arch,
    predicted: Mapping[str, Prediction],
    best: str | None,
    baseline: TileCost | None,
) -> list[str]:
    found: list[str] = []
    if baseline is not None and best is not None:
        pipes = {"instruction issue": baseline.issue, "shared memory": baseline.shared, "math": baseline.math}
        pipes |= {"L2": baseline.memory, "waiting for loads": baseline.alone / max(baseline.blocks_per_sm, 1)}
        found.append(f"In the model the baseline is bound by {max(pipes, key=lambda name: pipes[name])}.")
        found.append(f"The best prediction is {best}, {predicted[best].speedup:.2f}x, before anything is compiled.")
    assumed = estimated_inputs(facts)
    if assumed:
        found.append(f"Assumed, which widens the range: {', '.join(assumed)}.")
    if best is not None and arch.estimates:
        found.append(f"Estimated in the table of {arch.name}: {', '.join(arch.estimates)}.")
    return found
