"""Padding and swizzles: what is proposed is free of conflicts, is the smallest, and "none" means none."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tilewright.errors import TilewrightError
from tilewright.layout import solve as solve_room
from tilewright.layout.banks import passes, requests_of
from tilewright.layout.layout import Swizzle
from tilewright.layout.notation import parse_layout, parse_plain
from tilewright.layout.patterns import Pattern, Tile, pattern
from tilewright.layout.reports import banks_by_pattern
from tilewright.layout.solve import Arrangement, prove, solve


def solved(rows: int, cols: int, size: int, *names: str):
    tile = Tile(rows, cols, size)
    return solve(tile, [pattern(name, tile) for name in names])


@pytest.mark.parametrize(
    ("tile", "names", "swizzle", "padding_bytes", "best"),
    [
        ((64, 64, 2), ("rows16", "ldmatrix"), "Sw<3,3,3> o 0 o (64,64):(64,1)", 1024, "swizzle"),
        ((64, 32, 2), ("rows16", "ldmatrix"), "Sw<2,3,3> o 0 o (64,32):(32,1)", None, "swizzle"),
        ((64, 32, 2), ("ldmatrix",), "Sw<2,3,3> o 0 o (64,32):(32,1)", 1024, "swizzle"),
        ((64, 16, 2), ("rows16", "ldmatrix.x4.trans"), "Sw<1,3,3> o 0 o (64,16):(16,1)", None, "swizzle"),
        ((32, 32, 4), ("rows4", "cols4"), "Sw<5,0,5> o 0 o (32,32):(32,1)", 128, "swizzle"),
        ((32, 24, 4), ("rows4", "cols4"), "Sw<3,0,5> o 0 o (32,24):(24,1)", None, "swizzle"),
        ((32, 32, 4), ("rows16", "cols4"), None, None, None),
        ((48, 40, 2), ("rows16", "ldmatrix"), None, None, "plain"),  # rows of 80 bytes have no conflict to begin with
    ],
)
def test_known_tiles(tile, names, swizzle, padding_bytes, best) -> None:
    found = solved(*tile, *names)
    if swizzle is not None:
        assert found.swizzle is not None
        assert (found.swizzle.conflict_free, found.swizzle.layout) == (True, swizzle)
    elif best != "plain":
        assert found.swizzle is None or not found.swizzle.conflict_free
    if padding_bytes is not None:
        assert found.padding is not None
        assert (found.padding.conflict_free, found.padding.arrangement.cost_bytes) == (True, padding_bytes)
    elif best != "plain":
        assert found.padding is not None
        assert not found.padding.conflict_free
    assert (found.best.arrangement.kind if found.best else None) == best


def free(tile: Tile, patterns: list[Pattern], place) -> bool:
    """All requests, each phase in one pass, counted here and not by the solver."""
    for access in patterns:
        together = min(32, 128 // access.width_bytes)
        for request in access.requests:
            at = [None if p is None else place(*p) for p in request]
            if any(a is not None and a % access.width_bytes for a in at):
                return False
            for i in range(0, 32, together):
                words = {(a + b) // 4 for a in at[i : i + together] if a is not None for b in range(access.width_bytes)}
                if len({word % 32 for word in words}) < len(words):
                    return False
    return True


def random_tile(seed: int) -> tuple[Tile, list[Pattern]]:
    rng = random.Random(seed)
    size = rng.choice((1, 2, 4))
    tile = Tile(rng.choice((8, 16, 32)), rng.choice((8, 16, 24, 32, 64)), size)
    names = ("rows16", "rows8", "rows4", "cols16", "cols8", "cols4", f"cols{size}", "ldmatrix", "rows2", "rows1")
    found: list[Pattern] = []
    while not found:
        for name in rng.sample(names, rng.randint(1, 3)):
            try:
                found.append(pattern(name, tile))
            except TilewrightError:
                continue
    return tile, found


@pytest.mark.parametrize("seed", range(25))
def test_smallest_and_none_means_none(seed: int) -> None:
    """Against all paddings of whole elements, and all swizzles of an address, useful or not."""
    tile, patterns = random_tile(seed)
    found = solve(tile, patterns)

    def padded(more: int) -> bool:
        return free(tile, patterns, lambda row, byte: row * (tile.row_bytes + more) + byte)

    if found.plain.conflict_free:
        assert padded(0)
        return
    assert not padded(0)
    smallest = next((more for more in range(1, 2 * 128) if more % tile.element_bytes == 0 and padded(more)), None)
    if found.padding is not None and found.padding.conflict_free:
        assert found.padding.arrangement.pitch_bytes == tile.row_bytes + smallest
    else:
        assert smallest is None
    has_swizzle = found.swizzle is not None and found.swizzle.conflict_free
    if has_swizzle:
        arrangement = found.swizzle.arrangement
        assert free(tile, patterns, arrangement.address)
        last = max(arrangement.address(r, b) for r in range(tile.rows) for b in range(tile.row_bytes))
        assert last < arrangement.extent_bytes
    elif seed % 3 == 0:  # the search over everything takes its time
        for bits, base, shift in product(range(1, 7), range(9), range(-9, 10)):
            if abs(shift) >= bits:
                swizzle = Swizzle(bits, base, shift)
                assert not free(tile, patterns, lambda row, byte, s=swizzle: s(row * tile.row_bytes + byte))


def test_a_padding_that_a_block_has_no_bytes_for_is_not_proposed() -> None:
    fits = [each.extent_bytes for each in solve_room._paddings(Tile(440, 256, 2), 16)]
    assert fits == [440 * 528]  # with 32 bytes more a row it would be beyond 232,448
    assert list(solve_room._paddings(Tile(448, 256, 2), 16)) == []
    tile = Tile(448, 256, 2)
    column = Pattern("column", 16, (tuple((row, 0) for row in range(32)),))
    full = solve(tile, [column])
    assert (full.padding, full.paddings_tried) == (None, 0)
    assert full.best is full.swizzle is not None


def test_a_proof_fails_where_it_must() -> None:
    tile = Tile(32, 32, 4)
    reads = [pattern("rows16", tile), pattern("cols4", tile)]
    conflicts = prove(tile, Arrangement("padding", 144, None, 32 * 144, 512), reads)
    assert (conflicts.aligned, conflicts.distinct, conflicts.conflict_free) == (True, True, False)
    assert [count.worst for count in conflicts.counted] == [1, 4]
    misaligned = prove(tile, Arrangement("padding", 132, None, 32 * 132, 128), reads)
    assert (misaligned.aligned, misaligned.conflict_free) == (False, False)
    overlapping = prove(tile, Arrangement("padding", 4, None, 256, 0), [pattern("rows4", tile)])
    assert (overlapping.distinct, overlapping.conflict_free) == (False, False)


@pytest.mark.parametrize("shift", [2, 4])
def test_a_swizzle_that_is_off_by_one_has_conflicts(shift: int) -> None:
    tile = Tile(64, 64, 2)
    wrong = Arrangement("swizzle", 128, Swizzle(2, 4, shift), tile.bytes, 0)
    assert not prove(tile, wrong, [pattern("ldmatrix", tile)]).conflict_free


def test_patterns_visit_every_byte_of_the_tile() -> None:
    tile = Tile(32, 32, 2)
    names = ("rows16", "rows2", "cols16", "cols2", "ldmatrix", "mma.m16n8k16.f16.a", "mma.m16n8k16.f16.b.t")
    for name in names:
        access = pattern(name, tile)
        seen = {
            (p[0], p[1] + b) for r in access.requests for p in r if p is not None for b in range(access.width_bytes)
        }
        assert seen == set(product(range(32), range(64))), name


def test_the_fragment_of_a_row_major_b_is_read_across() -> None:
    request = pattern("mma.m16n8k16.f16.b.t", Tile(16, 8, 2)).requests[0]
    assert request[:5] == ((0, 0), (2, 0), (4, 0), (6, 0), (0, 2))  # lane 4g + t: row 2t, column g


@pytest.mark.parametrize(
    ("name", "tile", "code"),
    [
        ("rows12", Tile(8, 8, 2), "layout/unknown_pattern"),
        ("rows", Tile(8, 8, 2), "layout/unknown_pattern"),
        ("rows16", Tile(8, 9, 2), "layout/pattern_does_not_fit"),
        ("ldmatrix", Tile(12, 8, 2), "layout/pattern_does_not_fit"),
        ("ldmatrix.x3", Tile(8, 8, 2), "layout/unknown_pattern"),
        ("mma.m16n8k16.f16.a", Tile(16, 16, 4), "layout/pattern_does_not_fit"),
        ("mma.m16n8k16.f16.z", Tile(16, 16, 2), "layout/unknown_pattern"),
    ],
)
def test_patterns_that_do_not_fit(name: str, tile: Tile, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        pattern(name, tile)
    assert caught.value.code == code


def test_without_a_pattern_there_is_nothing_to_solve() -> None:
    with pytest.raises(TilewrightError, match="at least one"):
        solve(Tile(8, 8, 2), [])


@pytest.mark.parametrize(
    ("threads", "width", "code"),
    [
        ("(32,4):(4,1)", 16, "layout/not_contiguous"),  # values down the columns of a row-major tile
        ("(32,4):(1,32)", 32, "layout/width"),
        ("(32,3):(1,32)", 8, "layout/width"),
        ("32:1", 4, "layout/width"),
        ("(32,64):(1,32)", 4, "layout/outside"),
    ],
)
def test_accesses_that_are_none(threads: str, width: int, code: str) -> None:
    shared, taken = parse_layout("(32,32):(32,1)"), parse_plain(threads)
    with pytest.raises(TilewrightError) as caught:
        requests_of(shared, taken, 4, width)
    assert caught.value.code == code


def test_a_pitch_that_breaks_vectors_is_refused() -> None:
    with pytest.raises(TilewrightError) as caught:
        requests_of(parse_layout("(32,32):(33,1)"), parse_plain("(32,4):(1,32)"), 4, 16)
    assert caught.value.code == "layout/misaligned"


def test_lanes_that_want_the_same_word_share_it() -> None:
    assert passes([0] * 32, 4, is_load=True).total == 1
    assert passes([lane // 2 * 4 for lane in range(32)], 4, is_load=True).total == 1
    assert passes([lane * 128 for lane in range(32)], 4, is_load=True).phases == (32,)
    assert passes([lane * 32 for lane in range(32)], 16, is_load=True).phases == (2, 2, 2, 2)
    assert passes([None] * 32, 4, is_load=True).phases == ()
    with pytest.raises(TilewrightError):
        passes([2] * 32, 4, is_load=True)
    with pytest.raises(TilewrightError):
        passes([0] * 33, 4, is_load=True)
    with pytest.raises(TilewrightError):
        passes([0], 3, is_load=True)


def test_a_padded_layout_by_pattern() -> None:
    tile = Tile(64, 64, 2)
    found = banks_by_pattern(parse_layout("(64,64):(72,1)"), pattern("ldmatrix", tile), 2)
    assert (found.passes, found.ideal, found.conflict_free) == (64, 64, True)
    plain = banks_by_pattern(parse_layout("(64,64):(64,1)"), pattern("ldmatrix", tile), 2)
    assert (plain.passes, plain.worst_phase, plain.worst.phases) == (512, 8, (8,))


@pytest.mark.parametrize(
    ("rows", "cols", "element_bytes", "names"),
    [
        (64, 32, 2, ("rows16", "ldmatrix", "cols2")),
        (32, 64, 1, ("rows8", "cols1", "mma.m16n8k32.s8.a")),
        (24, 12, 4, ("rows4", "cols16")),
        (16, 8, 8, ("cols8", "rows16")),
    ],
)
def test_what_is_counted_at_once_is_what_is_counted_one_by_one(
    rows: int, cols: int, element_bytes: int, names: tuple[str, ...]
) -> None:
    tile = Tile(rows, cols, element_bytes)
    patterns = [pattern(name, tile) for name in names]
    widest = max(p.width_bytes for p in patterns)
    candidates = [Arrangement("plain", tile.row_bytes, None, tile.bytes, 0)]
    candidates += [*solve_room._paddings(tile, widest), *solve_room._swizzles(tile, widest)]
    for candidate in candidates:
        proof = prove(tile, candidate, patterns)
        at_once = [solve_room._all_passes(candidate, *solve_room._all_lanes(p)) for p in patterns]
        assert at_once == [count.passes for count in proof.counted]
    least = solve_room._least_bad(tile, candidates, patterns)
    assert least is not None
    assert least.passes == min(prove(tile, c, patterns).passes for c in candidates)


@pytest.mark.parametrize(
    ("width", "is_load", "pad", "counted"),
    [
        (8, True, 0, (32, 16)),  # both half-warps at once, but their rows meet in the banks
        (8, True, 64, (16, 16)),
        (8, False, 0, (32, 32)),
        (8, False, 64, (32, 32)),
        (16, True, 0, (32, 32)),
        (16, False, 0, (64, 64)),
    ],
)
def test_a_read_in_pairs_merges_and_a_write_does_not(
    width: int, is_load: bool, pad: int, counted: tuple[int, int]
) -> None:
    """Pairs of lanes want one vector, half-warps one row each; 16 requests, counted both ways."""
    tile = Tile(32, 64, 4)
    requests = tuple(tuple((row + lane // 16, lane // 2 % 8 * width) for lane in range(32)) for row in range(0, 32, 2))
    arrangement = Arrangement("padding", tile.row_bytes + pad, None, 0, 0)
    access = Pattern("pairs", width, requests, is_load)
    (found,) = prove(tile, arrangement, [access]).counted
    assert (found.passes, found.phases) == counted
    assert solve_room._all_passes(arrangement, *solve_room._all_lanes(access)) == found.passes


def test_only_ordinary_reads_are_loads() -> None:
    tile = Tile(32, 32, 2)
    for name in ("rows16", "cols8", "mma.m16n8k16.f16.a"):
        assert pattern(name, tile).is_load
        assert not pattern(name, tile, is_write=True).is_load
    for name in ("ldmatrix", "stmatrix"):
        assert not pattern(name, tile).is_load
