"""Of several rungs whose costs are times the fastest is taken; a cost of another kind chooses within a rung only."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ladder.choosing import fastest, time_of
from tilewright.ladder.family import Rung, load_family

FAMILY = load_family("hgemm")
SIZES = {"M": 64, "N": 64, "K": 64, "ld_a": 64, "ld_b": 64}


def rung(name: str, **lines: str) -> Rung:
    choices = ({"TILE": 1}, {"TILE": 2})
    return replace(FAMILY.rungs[0], name=name, choices=choices if lines else (), cost=lines)


def test_a_time_is_that_of_the_best_choice_and_only_what_is_named_us_is_one() -> None:
    assert time_of(rung("a", tiles="M // TILE", us="tiles + 1"), SIZES, "float16") == 33
    assert time_of(rung("a", us="M", tiles="M // TILE"), SIZES, "float16") is None
    assert time_of(rung("a"), SIZES, "float16") is None


def test_the_fastest_is_taken_and_the_first_of_equals() -> None:
    slow, fast, same = rung("slow", us="9 * TILE"), rung("fast", us="4"), rung("same", us="4")
    untimed, other = rung("untimed"), rung("other", tiles="TILE")
    assert fastest([slow, fast, same, untimed], SIZES, "float16") is fast
    assert fastest([same, slow, fast], SIZES, "float16") is same
    assert fastest([untimed, fast], SIZES, "float16") is untimed
    assert fastest([other, fast], SIZES, "float16") is other
