"""Each item of the checklist can hold, fail and be unknown."""

from __future__ import annotations

from dataclasses import replace

import receipt_samples as samples

from tilewright.receipt.checklist import ITEMS, build_checklist, judged_variant
from tilewright.receipt.evidence import Hazard
from tilewright.receipt.record import Receipt, Variant


def _holds(receipt: Receipt) -> dict[str, bool | None]:
    return {item.item: item.holds for item in build_checklist(receipt)}


def _change(receipt: Receipt, **changes: object) -> Receipt:
    """The receipt with its chosen variant changed."""

    def one(variant: Variant) -> Variant:
        return replace(variant, **changes) if variant.label == "cp_async2" else variant  # type: ignore[arg-type]

    return replace(receipt, variants=tuple(one(variant) for variant in receipt.variants))


def test_every_item_holds_on_a_gpu_machine() -> None:
    assert _holds(samples.with_gpu()) == dict.fromkeys(ITEMS, True)


def test_nothing_that_did_not_run_is_claimed() -> None:
    holds = _holds(samples.laptop())
    known = {item for item, value in holds.items() if value is not None}
    assert known == {"smem under the cliff", "overlap in SASS", "no spills"}


def test_no_variant_leaves_every_item_open() -> None:
    assert _holds(samples.refused()) == dict.fromkeys(ITEMS)


def test_each_item_fails_for_its_own_reason() -> None:
    good = samples.with_gpu()
    chosen = next(v for v in good.variants if v.label == "cp_async2")
    cases = {
        "no spills": {"resources": replace(chosen.resources, spill_bytes=16)},
        "overlap in SASS": {"proof": replace(chosen.proof, verdict="no_overlap", tiles_in_flight=0)},
        "faster than the baseline": {"measure": replace(chosen.measure, verdict="slower", speedup=0.9)},
    }
    for item, change in cases.items():
        failing = {name for name, holds in _holds(_change(good, **change)).items() if holds is False}
        assert failing == {item}


def test_the_cliff_is_judged_at_the_chosen_stages() -> None:
    good = samples.with_gpu()
    rows = tuple(replace(row, crosses_cliff=row.stages == 2) for row in good.budget)
    assert _holds(replace(good, budget=rows))["smem under the cliff"] is False
    assert _holds(replace(good, budget=good.budget[:1]))["smem under the cliff"] is None


def test_a_hazard_or_wrong_bits_deny_the_structure() -> None:
    good = samples.with_gpu()
    chosen = next(v for v in good.variants if v.label == "cp_async2")
    race = replace(chosen.verify, hazards=(Hazard("write_after_read", 99, "a stage is overwritten"),))
    wrong = replace(chosen.verify, verdict="failed", bit_identical=False)
    for verify in (race, wrong):
        holds = _holds(_change(good, verify=verify))
        assert [holds[item] for item in ITEMS[1:4]] == [False, False, False]


def test_results_need_the_small_and_the_target_size() -> None:
    good = samples.with_gpu()
    chosen = next(v for v in good.variants if v.label == "cp_async2")
    only_small = replace(chosen.verify, sizes=("small",))
    assert _holds(_change(good, verify=only_small))["results match at small and target size"] is None


def test_one_buffer_does_not_alternate() -> None:
    good = samples.with_gpu()
    single = replace(good.variants[0], name="ldg_single", stages=1)
    holds = _holds(replace(good, variants=(single,), choice=None))
    assert holds["buffers alternate"] is None
    assert holds["prologue fills stage 0"] is True


def test_without_a_choice_the_best_prediction_is_judged() -> None:
    variant = judged_variant(samples.laptop())
    assert variant is not None
    assert variant.label == "cp_async2"


def test_without_a_choice_the_first_of_the_ranking_is_judged() -> None:
    receipt = replace(samples.with_gpu(), choice=None)
    assert receipt.decision is not None
    made = ("accepted", "built")
    first = next(v.label for v in receipt.variants if v.status in made and v.label != "cp_async2")
    ranked = replace(receipt, decision=replace(receipt.decision, ranking=("baseline", first, "cp_async2")))
    variant = judged_variant(ranked)
    assert variant is not None
    assert variant.label == first
    assert ranked.decision is not None
    # What was not ranked comes behind what was, by its prediction.
    assert sorted(("ldg9", "cp_async2", first), key=ranked.decision.rank) == [first, "cp_async2", "ldg9"]


def test_an_ambiguous_time_is_not_known() -> None:
    good = samples.with_gpu()
    chosen = next(v for v in good.variants if v.label == "cp_async2")
    unsure = replace(chosen.measure, verdict="ambiguous", speedup=1.01)
    assert _holds(_change(good, measure=unsure))["faster than the baseline"] is None


def test_a_gpu_run_claims_no_absence_of_races() -> None:
    reasons = {item.item: item.reason for item in build_checklist(samples.with_gpu())}
    assert reasons["buffers alternate"] == "cp_async2: no wrong element (gpu; races were not looked for)"
    good = samples.with_gpu()
    chosen = next(v for v in good.variants if v.label == "cp_async2")
    emulated = _change(good, verify=replace(chosen.verify, executor="emulator", races_at=("small",)))
    assert "no race (emulator)" in {item.item: item.reason for item in build_checklist(emulated)}["buffers alternate"]
