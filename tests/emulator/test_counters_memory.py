"""Sectors, bank conflicts and merged accesses: known patterns, and counting by hand over random ones."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.emulator.counters.banks import bank_conflicts
from tilewright.emulator.counters.merge import Step, merge
from tilewright.emulator.counters.sectors import sectors
from tilewright.emulator.counters.warps import by_warp

LANES = np.arange(32, dtype=np.int64)
ALL = np.ones((1, 32), bool)


def one(function, addresses, size, active=ALL) -> tuple[int, ...]:
    return tuple(int(count[0]) for count in function(np.asarray(addresses, np.int64)[None], active, size))


@pytest.mark.parametrize(
    ("addresses", "size", "expected"),
    [
        (LANES * 4, 4, (1, 4, 4)),
        (LANES * 16, 16, (1, 16, 16)),
        (LANES, 1, (1, 1, 1)),
        (LANES * 4 + 16, 4, (1, 5, 4)),  # starts inside a sector
        (LANES * 128, 4, (1, 32, 4)),  # a column
        (LANES * 8, 4, (1, 8, 4)),  # every other word
        (LANES * 0 + 64, 4, (1, 1, 1)),  # one word for all
        (LANES[::-1] * 4, 4, (1, 4, 4)),
        (LANES * 32, 32, (1, 32, 32)),
    ],
)
def test_sectors_of_known_patterns(addresses, size, expected) -> None:
    assert one(sectors, addresses, size) == expected


@pytest.mark.parametrize(
    ("offsets", "size", "expected"),
    [
        (LANES * 4, 4, (1, 1)),
        (LANES * 0, 4, (1, 1)),  # broadcast
        (LANES // 2 * 4, 4, (1, 1)),  # pairs share words
        (LANES, 1, (1, 1)),
        (LANES * 8, 4, (2, 1)),
        (LANES * 128, 4, (32, 1)),
        (LANES * 132, 4, (1, 1)),  # padded by one word
        (LANES * 8, 8, (2, 2)),
        (LANES * 16, 16, (4, 4)),
        (LANES * 32, 16, (8, 4)),  # every other quad of banks
        (LANES * 128, 16, (32, 4)),
        (LANES * 144, 16, (4, 4)),  # rows padded by 16 bytes
    ],
)
def test_bank_conflicts_of_known_patterns(offsets, size, expected) -> None:
    assert one(bank_conflicts, offsets, size) == expected


def test_inactive_lanes_count_nothing() -> None:
    active = np.zeros((3, 32), bool)
    active[1, 4:12] = True
    active[2, 31] = True
    addresses = np.tile(LANES * 128, (3, 1))
    assert [c.tolist() for c in sectors(addresses, active, 4)] == [[0, 1, 1], [0, 8, 1], [0, 1, 1]]
    assert [c.tolist() for c in bank_conflicts(addresses, active, 4)] == [[0, 8, 1], [0, 1, 1]]
    assert [c.tolist() for c in bank_conflicts(addresses, active, 16)] == [[0, 8, 1], [0, 2, 1]]


def slow_wavefronts(offsets: np.ndarray, active: np.ndarray, size: int) -> int:
    phase = 32 // max(1, size // 4)
    total = 0
    for begin in range(0, 32, phase):
        words = {int(o + b) // 4 for o, a in zip(offsets, active, strict=True) if a for b in range(0, size, 1)}
        lanes = [(o, a) for o, a in list(zip(offsets, active, strict=True))[begin : begin + phase] if a]
        words = {int(o + b) // 4 for o, _ in lanes for b in range(size)}
        banks = [word % 32 for word in words]
        total += max((banks.count(bank) for bank in banks), default=0)
    return total


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_against_counting_by_hand(size: int) -> None:
    rng = np.random.default_rng(size)
    addresses = rng.integers(0, 256, (60, 32)) * size
    active = rng.random((60, 32)) < rng.random((60, 1))
    requests, touched, ideal = sectors(addresses, active, size)
    wavefronts, best = bank_conflicts(addresses, active, size)
    for w in range(60):
        lanes = addresses[w][active[w]]
        assert requests[w] == (len(lanes) > 0)
        assert touched[w] == len({int(a) // 32 for a in lanes})
        assert ideal[w] == -(-len(set(lanes.tolist())) * size // 32)
        assert wavefronts[w] == slow_wavefronts(addresses[w], active[w], size)
        assert best[w] <= wavefronts[w]


def test_rows_of_warps() -> None:
    threads = np.array([0, 1, 33, 63, 128])
    addresses, active = by_warp(threads, threads * 4)
    assert addresses.shape == (3, 32)
    assert active.sum(axis=1).tolist() == [2, 2, 1]
    assert addresses[active].tolist() == (threads * 4).tolist()
    whole = np.arange(64)
    addresses, active = by_warp(whole, whole * 4)
    assert active.all()
    assert addresses[1].tolist() == (whole[32:] * 4).tolist()
    ragged = np.concatenate([np.arange(16), np.arange(32, 48)])  # 32 threads, but of two warps
    assert by_warp(ragged, ragged)[1].sum(axis=1).tolist() == [16, 16]


def load(offset: int, size: int = 4, base: str = "%r1", **more) -> Step:
    return Step("load", "shared", base, offset, size, **{"base_alignment": 16, **more})


def store(offset: int, size: int = 4, base: str = "%r1", **more) -> Step:
    return Step("store", "shared", base, offset, size, **{"base_alignment": 16, **more})


FENCE = Step("fence")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ([load(o) for o in (0, 4, 8, 12)], ((0, 1, 2, 3),)),
        ([load(o) for o in (12, 4, 0, 8)], ((2, 1, 3, 0),)),
        ([load(o, 1) for o in range(16)], (tuple(range(16)),)),
        ([load(o) for o in range(0, 64, 4)], tuple(tuple(range(i, i + 4)) for i in range(0, 16, 4))),
        ([load(o, 16) for o in (0, 16)], ((0,), (1,))),  # vectors already
        ([load(o) for o in (4, 8)], ((0,), (1,))),  # not aligned to 8
        ([load(o) for o in (4, 8, 12)], ((0,), (1, 2))),
        ([load(o) for o in (0, 8)], ((0,), (1,))),  # a gap
        ([load(o, base_alignment=4) for o in (0, 4, 8, 12)], ((0,), (1,), (2,), (3,))),
        ([load(o, base_alignment=8) for o in (0, 4, 8, 12)], ((0, 1), (2, 3))),
        ([load(0), load(4, base="%r2")], ((0,), (1,))),
        ([load(0), load(4, 2)], ((0,), (1,))),
        ([load(0), FENCE, load(4)], ((0,), (2,))),
        ([load(0), store(64), load(4)], ((0,), (1,), (2,))),
        ([load(0), Step("store", "global", "%rd1", 0, 4), load(4)], ((0, 2), (1,))),
        ([load(0), Step("store", "generic", "%rd1", 0, 4), load(4)], ((0,), (1,), (2,))),
        ([load(0), load(0, base="%r2"), load(4)], ((0, 2), (1,))),  # loads pass one another
        ([load(0), Step("other", defines=("%r1",)), load(4)], ((0,), (2,))),
        ([load(0, defines=("%r1",)), load(4)], ((0,), (1,))),
        ([load(0, guard="!%p1"), Step("other", defines=("%p1",)), load(4, guard="!%p1")], ((0,), (2,))),
        ([load(0, guard="%p1"), load(4, guard="%p1"), load(8)], ((0, 1), (2,))),
        ([load(0), load(0), load(4)], ((0, 2), (1,))),  # the same bytes twice
        ([store(o) for o in (0, 4, 8, 12)], ((0, 1, 2, 3),)),
        ([store(0), load(64), store(4)], ((0,), (1,), (2,))),
        ([store(0), store(64, base="%r2"), store(4)], ((0,), (1,), (2,))),
        ([], ()),
    ],
)
def test_merging(block, expected) -> None:
    assert merge(block) == expected
