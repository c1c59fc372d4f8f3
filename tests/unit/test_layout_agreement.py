"""Our algebra against the published implementation on random layouts: the same layout, or a theorem says who is right.

`TILEWRIGHT_LAYOUTS` sets how many layouts; `benchmarks/layout_agreement.py` records a run of 10,000.
"""

from __future__ import annotations

import os
from itertools import product

import pytest
from layout_agreement import OPERATIONS, Verdict, compare, run_all
from layout_mutants import MUTANTS
from layout_oracle import Random, published

from tilewright.layout.layout import ComposedLayout, Swizzle
from tilewright.layout.notation import parse_plain

COUNT = int(os.environ.get("TILEWRIGHT_LAYOUTS", "2000"))


@pytest.fixture(scope="module")
def tally():
    return run_all(COUNT, seed=1)


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_agreement(tally, operation):
    counts = tally[operation]
    assert counts.wrong == []
    assert counts.same + counts.differences.total() == counts.layouts == COUNT
    assert counts.same >= 0.5 * COUNT  # an operation that is refused nearly always would not be tested


def test_what_the_published_implementation_gets_wrong(tally):
    """Known, and decided by the theorems (docs/layout.md); elsewhere it has no wrong answer."""
    wrong = {name for name, counts in tally.items() if counts.differences[Verdict.THEIRS_WRONG]}
    assert {"composition", "complement", "left_inverse", "logical_product"} <= wrong
    assert not wrong & {"coalesce", "coalesce_by_mode", "filter", "right_inverse"}


@pytest.mark.parametrize("mutant", list(MUTANTS))
def test_broken_mutants_are_caught(mutant):
    operation, broken = MUTANTS[mutant]
    assert any(compare(operation, seed, broken).wrong for seed in range(1000))


def test_a_product_by_a_plain_number_divides_in_the_published_implementation():
    """The documentation of the algebra has it repeat, as a product by the layout of that number does."""
    theirs = published()
    four, two = theirs.Layout(4, 1), theirs.Layout(2, 1)
    assert str(theirs.logical_product(four, 2)) == str(theirs.logical_divide(four, 2)) == "(2, 2):(1, 2)"
    assert str(theirs.logical_product(four, two)) == "(4, 2):(1, 4)"


def test_swizzles_and_composed_layouts():
    theirs, random = published(), Random(3)
    for bits, base, shift in product(range(5), range(4), (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)):
        if abs(shift) < bits:
            continue
        mine, other = Swizzle(bits, base, shift), theirs.Swizzle(bits, base, shift)
        assert [mine(i) for i in range(1024)] == [other(i) for i in range(1024)]
        layout, offset = random.layout(3), random.random.randrange(8)
        composed = theirs.ComposedLayout(other, offset, theirs.Layout(layout.shape, layout.stride))
        assert ComposedLayout(mine, offset, layout).offsets() == [composed(i) for i in range(layout.size)]


def test_faults_of_the_published_implementation_that_the_document_names():
    theirs = published()

    def layout(text: str):
        mine = parse_plain(text)
        return theirs.Layout(mine.shape, mine.stride)

    tile = layout("(4,2):(1,8)")
    assert str(theirs.composition(tile, layout("6:1"))) == "4:1"
    wrong = theirs.composition(tile, layout("(2,2):(2,2)"))
    assert wrong(1, 1) == 4 != tile(4)
    assert str(theirs.complement(layout("(5,2):(1,8)"), 96)) == "6:16"
    assert theirs.size(theirs.complement(layout("(2,2):(1,1)"), 8)) == 0
    assert str(theirs.left_inverse(layout("(5,3):(0,3)"))) == "1:0"
    with pytest.raises(RecursionError):
        theirs.Swizzle(0, 0, 0)(3)
    with pytest.raises(AssertionError):
        theirs.composition(layout("(8,4):(1,16)"), layout("2:3"))
