"""Small random edits of the examples: whatever they compute now, nothing else is offered."""

from __future__ import annotations

import pytest
from cases import MUTANT_SEEDS, judged
from mutations import SIZES, mutant


@pytest.mark.parametrize("seed", MUTANT_SEEDS)
def test_nothing_wrong_is_offered(seed: int) -> None:
    result = judged(seed, "mutant")
    assert not result.wrong, result
    assert not result.failed, result
    assert not result.offered or result.baseline == "passed", result


def test_some_are_offered() -> None:
    """An edit that leaves a right kernel behind, such as a dropped __restrict__, keeps none from being rewritten."""
    assert sum(bool(judged(s, "mutant").offered) for s in MUTANT_SEEDS) >= len(MUTANT_SEEDS) // 4


def test_every_edit_is_one() -> None:
    for seed in range(80):
        made = mutant(seed)
        assert made.example in SIZES
        assert made.what
        assert "[reference]" not in made.sidecar
        assert made.sidecar != made.fresh
