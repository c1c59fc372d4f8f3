"""Of several rungs whose costs are times the fastest is taken; a cost of another kind chooses within a rung only."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ladder.choosing import fastest, may_be_meant, time_of, why_not
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


def test_a_rung_that_was_made_has_been_told_its_time() -> None:
    """And it is the same rung, whatever it was told: costs are evaluated once."""
    file = load_family("sgemm").rung("16_split_k")
    sizes = {"M": 768, "N": 768, "K": 768, "ld_a": 768, "ld_b": 768}
    made = file.at(sizes, "float32")
    assert made.told == time_of(file, sizes, "float32") == time_of(made, sizes, "float32")
    assert made == replace(made, told=None)
    assert time_of(replace(made, told=1.5), sizes, "float32") == 1.5


def test_what_is_not_meant_is_not_made_and_what_has_no_value_is_asked_again() -> None:
    def runs(arch: str) -> bool:
        return True

    one = replace(rung("a", us="M // TILE"), best_when="M // N > 1")
    for sizes, may in ((SIZES, False), ({**SIZES, "N": 8}, True), ({**SIZES, "N": 0}, True)):
        assert may_be_meant(one, sizes, "float16") == may
    assert why_not(one.at(SIZES, "float16"), SIZES, "float16", runs)
    assert not may_be_meant(replace(one, best_when=""), SIZES, "int8")
    nothing = {**SIZES, "N": 0}
    assert "cannot be had" in why_not(
        replace(one, sized={"X": "M // N"}).at(nothing, "float16"), nothing, "float16", runs
    )
