"""What the plan predicts of the variants that copy rows and boxes."""

from __future__ import annotations

from dataclasses import replace

from plan_samples import SM_90, igemm, igemm_budget

from tilewright.arch.arch import load_arch
from tilewright.plan.decide import decide
from tilewright.plan.facts import PlanFacts
from tilewright.plan.predict import BASELINE, VARIANTS, predicted_speedup, tile_cost

BY_KEY = {s.key: s for s in VARIANTS}
BULK = {"bulk2", "bulk3", "bulk4"}
TMA = {"tma2", "tma3", "tma4"}


def with_rows(boxed: bool) -> PlanFacts:
    """The igemm whose tiles are 64 rows of A and 32 rows of B."""
    facts = igemm()
    a, b = facts.copies
    return replace(facts, copies=(replace(a, rows=64, boxed=boxed), replace(b, rows=32, boxed=boxed)))


def test_what_the_copies_allow_is_predicted() -> None:
    plan = igemm_budget()
    assert decide(igemm(), plan, SM_90).predicted.keys().isdisjoint(BULK | TMA)
    assert decide(with_rows(False), plan, SM_90).predicted.keys() & (BULK | TMA) == BULK
    assert decide(with_rows(True), plan, SM_90).predicted.keys() >= BULK | TMA


def test_no_bulk_copies_before_sm_90() -> None:
    arch = load_arch("sm_86")
    assert decide(with_rows(True), igemm_budget(arch), arch).predicted.keys().isdisjoint(BULK | TMA)


def test_one_box_costs_less_than_its_rows() -> None:
    facts, plan = with_rows(True), igemm_budget()
    base, rows, box = (tile_cost(facts, plan, SM_90, s) for s in (BASELINE, BY_KEY["bulk2"], BY_KEY["tma2"]))
    assert base is not None
    assert rows is not None
    assert box is not None
    assert box.issue < rows.issue < base.issue
    assert predicted_speedup(facts, base, box) >= predicted_speedup(facts, base, rows) > 1.3
