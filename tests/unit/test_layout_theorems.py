"""The theorems of the algebra, on layouts that hypothesis chooses; a broken rule beside each must break its theorem."""

from __future__ import annotations

from itertools import pairwise
from itertools import product as every

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layout_agreement import extended, is_complement, is_composed
from layout_mutants import MUTANTS
from layout_oracle import Random

from tilewright.errors import TilewrightError
from tilewright.layout import algebra, tiling
from tilewright.layout.layout import ComposedLayout, Layout, Swizzle, bundle, compact
from tilewright.layout.notation import parse_plain
from tilewright.layout.recast import downcast, recast, upcast
from tilewright.layout.tiled import tiled_copy
from tilewright.layout.tuples import IntTuple, column_major, coordinate_of, flatten, index_of, product

FEW = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.sampled_from([1, 2, 2, 3, 4, 4, 5, 6, 8])
SHAPES: st.SearchStrategy[IntTuple] = st.recursive(
    SIZES, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=4
).filter(lambda shape: product(shape) <= 512)


def like(shape: IntTuple, leaves: list[int]) -> IntTuple:
    numbers = iter(leaves)

    def walk(part: IntTuple) -> IntTuple:
        return tuple(walk(p) for p in part) if isinstance(part, tuple) else next(numbers)

    return walk(shape)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any strides, or compact ones in any order."""
    shape = draw(SHAPES)
    sizes = flatten(shape)
    if draw(st.booleans()):
        steps = draw(st.lists(st.integers(0, 24), min_size=len(sizes), max_size=len(sizes)))
    else:
        steps, reached = [0] * len(sizes), 1
        for i in draw(st.permutations(range(len(sizes)))):
            reached *= draw(st.sampled_from([1, 1, 2, 3]))
            steps[i] = reached
            reached *= sizes[i]
    return Layout(shape, like(shape, steps))


SWIZZLES = st.builds(
    lambda bits, base, more, left: Swizzle(bits, base, (bits + more) * (-1 if left else 1)),
    st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.booleans(),
)  # fmt: skip


def done(operation, *arguments):
    """The result; a case that is refused is not looked at."""
    try:
        return operation(*arguments)
    except TilewrightError:
        assume(False)


@FEW
@given(layouts())
def test_indices_and_coordinates_are_the_same_domain(layout: Layout) -> None:
    shape, stride = layout.shape, layout.stride
    offsets = layout.offsets()
    for index in range(layout.size):
        coordinate = coordinate_of(index, shape)
        assert index_of(coordinate, shape, column_major(shape)) == index
        assert index_of(coordinate, shape, stride) == layout(index) == offsets[index]
    assert layout.cosize == max(offsets) + 1


@FEW
@given(layouts())
def test_coalesce_keeps_the_function_and_leaves_nothing_to_merge(layout: Layout) -> None:
    found = algebra.coalesce(layout)
    assert found.offsets() == layout.offsets()
    pairs = algebra.flat(found)
    assert all(size > 1 for size, _ in pairs) or pairs == ((1, 0),)
    assert all(a_size * a_step != b_step for (a_size, a_step), (_, b_step) in pairwise(pairs))
    assert algebra.coalesce(found) == found


@FEW
@given(layouts())
def test_filter_keeps_the_set_of_offsets(layout: Layout) -> None:
    assert set(algebra.filter_zeros(layout).offsets()) == set(layout.offsets())


@FEW
@given(layouts(), layouts())
def test_composition_is_the_function_of_the_function(a: Layout, b: Layout) -> None:
    found = done(algebra.compose, a, b)
    assert [found(i) for i in range(b.size)] == [extended(a, b(i)) for i in range(b.size)]
    assert is_composed(a, b, found)


@FEW
@given(st.integers(0, 10**9))
def test_composition_is_associative(seed: int) -> None:
    random = Random(seed)
    a = random.layout()
    b = random.inside(a.size)
    c = random.inside(b.size)
    assume(b.cosize <= a.size)
    assume(c.cosize <= b.size)
    left = done(lambda: algebra.compose(algebra.compose(a, b), c))
    right = done(lambda: algebra.compose(a, algebra.compose(b, c)))
    assert left.offsets() == right.offsets()


@FEW
@given(layouts(), st.integers(1, 300))
def test_complement_and_layout_reach_all_once(layout: Layout, cosize: int) -> None:
    assert is_complement(layout, cosize, done(algebra.complement, layout, cosize))


@FEW
@given(layouts())
def test_right_inverse(layout: Layout) -> None:
    found = algebra.right_inverse(layout)
    assert [layout(found(i)) for i in range(found.size)] == list(range(found.size))
    if sorted(layout.offsets()) == list(range(layout.size)):
        assert found.size == layout.size  # compact: all of it


@FEW
@given(layouts())
def test_left_inverse(layout: Layout) -> None:
    found = done(algebra.left_inverse, layout)
    assert [found(layout(i)) for i in range(layout.size)] == list(range(layout.size))


@FEW
@given(layouts(), layouts())
def test_a_divide_has_the_tile_first_and_everything_in_all(a: Layout, b: Layout) -> None:
    found = done(tiling.logical_divide, a, b)
    assert is_composed(a, b, found[0])
    if found.size == a.size:  # the tile divides: the same offsets, in another order
        assert sorted(found.offsets()) == sorted(extended(a, i) for i in range(a.size))
    assert found == tiling.divide(a, b, "zipped")


@FEW
@given(layouts(), layouts())
def test_a_product_repeats_the_layout_where_nothing_is_yet(a: Layout, b: Layout) -> None:
    found = done(tiling.logical_product, a, b)
    assert found[0] == a
    assert found[1].size == b.size
    own, copies = set(a.offsets()), set(found[1].offsets())
    assert len({x + y for x in own for y in copies}) == len(own) * len(copies)  # no two copies overlap


@FEW
@given(st.sampled_from(["(2,3)", "(4,2):(2,1)", "(2,2):(1,2)"]), st.integers(1, 4), st.integers(1, 4))
def test_blocked_and_raked_products_place_blocks(text: str, rows: int, cols: int) -> None:
    """Place (i, j): blocked, copy (i // height, j // width) and place (i % height, j % width) in it; raked: reverse."""
    block, copies = parse_plain(text), compact((rows, cols))
    height, width = (product(part) for part in block.shape)  # type: ignore[union-attr]
    blocked, raked = (tiling.product(block, copies, form) for form in ("blocked", "raked"))
    for i in range(height * rows):
        for j in range(width * cols):
            own = block((i % height, j % width)) + block.size * copies((i // height, j // width))
            assert blocked((i, j)) == own
            own = block((i // rows, j // cols)) + block.size * copies((i % rows, j % cols))
            assert raked((i, j)) == own


@FEW
@given(st.permutations([0, 1]), st.permutations([0, 1]), *[st.integers(1, 5)] * 4)
def test_a_tiled_copy_rakes_values_inside_threads(
    t_order: list[int], v_order: list[int], t_rows: int, t_cols: int, v_rows: int, v_cols: int
) -> None:
    """Thread at (i, j) and value (k, m) hold row k + v_rows · i and column m + v_cols · j, whatever their numbers."""
    threads, values = ordered((t_rows, t_cols), t_order), ordered((v_rows, v_cols), v_order)
    found = tiled_copy(threads, values)
    assert (found.rows, found.cols) == (t_rows * v_rows, t_cols * v_cols)
    for i, j, k, m in iterate((t_rows, t_cols, v_rows, v_cols)):
        place = k + v_rows * i + found.rows * (m + v_cols * j)
        assert found.layout((threads((i, j)), values((k, m)))) == place


def ordered(shape: tuple[int, int], order: list[int]) -> Layout:
    return Layout(shape, (1, shape[0]) if order == [0, 1] else (shape[1], 1))


def iterate(sizes: tuple[int, ...]):
    return every(*map(range, sizes))


@FEW
@given(SWIZZLES)
def test_a_swizzle_is_its_own_inverse_and_a_bijection(swizzle: Swizzle) -> None:
    period = swizzle.period
    found = [swizzle(i) for i in range(2 * period)]
    assert sorted(found) == list(range(2 * period))
    assert [swizzle(i) for i in found] == list(range(2 * period))
    assert all(
        found[i] // (1 << swizzle.base) << swizzle.base == found[i] - i % (1 << swizzle.base) for i in range(period)
    )


@FEW
@given(SWIZZLES, st.integers(0, 9), layouts(), layouts())
def test_a_composed_layout_is_layout_offset_swizzle(swizzle: Swizzle, offset: int, a: Layout, b: Layout) -> None:
    whole = ComposedLayout(swizzle, offset, a)
    assert whole.offsets() == [whole(i) for i in range(a.size)] == [swizzle(offset + a(i)) for i in range(a.size)]
    found = done(algebra.composition, whole, b)
    assert found.offsets() == [swizzle(offset + extended(a, value)) for value in b.offsets()]


@FEW
@given(layouts(), st.sampled_from([1, 2, 3, 4, 8]))
def test_recast_keeps_the_bytes(layout: Layout, count: int) -> None:
    narrow = done(downcast, layout, count)
    pieces = sorted(value * count + i for value in layout.offsets() for i in range(count))
    assert sorted(narrow.offsets()) == pieces
    assert upcast(narrow, count).offsets() == layout.offsets()


@FEW
@given(layouts(), st.sampled_from(["2:1", "3:1", "(2,2):(1,2)", "(2,4):(4,1)"]), st.booleans())
def test_upcast_gathers_whole_elements(layout: Layout, run: str, first: bool) -> None:
    """A layout of wide elements, each written out as a run of narrow ones, however nested."""
    narrow = parse_plain(run)
    scaled = Layout(layout.shape, like(layout.shape, [step * narrow.size for _, step in algebra.flat(layout)]))
    whole = bundle(narrow, scaled) if first else bundle(scaled, narrow)
    wide = upcast(whole, narrow.size)
    assert wide.offsets() == layout.offsets()
    with pytest.raises(TilewrightError):
        upcast(whole, 7 * narrow.size)


@FEW
@given(SWIZZLES, layouts(), st.sampled_from([2, 4, 8]))
def test_recast_of_a_swizzle_moves_whole_elements(swizzle: Swizzle, layout: Layout, count: int) -> None:
    whole = ComposedLayout(swizzle, 0, layout)
    narrow = done(recast, whole, 8 * count, 8)
    pieces = sorted(value * count + i for value in whole.offsets() for i in range(count))
    assert sorted(narrow.offsets()) == pieces


BROKEN_SWIZZLES = {
    "bits overlap": lambda o: o ^ ((o & 0b110) >> 1),
    "one bit short": lambda o: Swizzle(2, 1, 3)(o) & ~1,
    "adds instead of XOR": lambda o: o + ((o & 0b11000) >> 3),
}


@pytest.mark.parametrize("broken", list(BROKEN_SWIZZLES))
def test_a_broken_swizzle_is_no_involution(broken: str) -> None:
    function = BROKEN_SWIZZLES[broken]
    assert any(function(function(i)) != i for i in range(64))


def test_a_swizzle_whose_bits_overlap_is_refused() -> None:
    with pytest.raises(TilewrightError):
        Swizzle(2, 0, 1)


THEOREMS = {
    "composes_without_carries": lambda f, a, b: is_composed(a, b, f(a, b)),
    "composes_by_rounding": lambda f, a, b: is_composed(a, b, f(a, b)),
    "complements_unsorted": lambda f, a, b: is_complement(a, 24, f(a, 24)),
    "complements_uneven": lambda f, a, b: is_complement(a, 24, f(a, 24)),
    "inverts_to_positions": lambda f, a, b: _inverts(a, f(a)),
    "merges_equal_strides": lambda f, a, b: f(a).offsets() == a.offsets(),
}


def _inverts(layout: Layout, found: Layout) -> bool:
    return [layout(found(i)) for i in range(found.size)] == list(range(found.size))


@pytest.mark.parametrize("mutant", list(THEOREMS))
def test_a_theorem_finds_the_fault_of_a_broken_rule(mutant: str) -> None:
    broken = MUTANTS[mutant][1]

    def fails(seed: int) -> bool:
        random = Random(seed)
        try:
            return not THEOREMS[mutant](broken, random.layout(), random.inside(64))
        except TilewrightError:
            return False

    assert any(map(fails, range(3000)))
