"""The smallest padding, and the simplest swizzle, with which a tile's accesses meet no bank conflict; with the proof.

The proof is by looking at all of it: every request of every pattern at every place of the tile, phase by phase. What
the search covers is all there is of its kind: a pitch counts modulo the 128 bytes of all banks, and of a swizzle only
those bits matter that it moves from the row into the number of the bank, in blocks that keep each vector whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError
from tilewright.layout.banks import lanes_together, passes, shared_memory
from tilewright.layout.layout import ComposedLayout, Layout, Swizzle
from tilewright.layout.patterns import Pattern, Request, Tile

Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrangement:
    """Where a tile's bytes lie: ``swizzle(row · pitch_bytes + byte)``.

    Attributes:
        kind: plain, padding or swizzle.
        swizzle: on bytes from the start of the tile; None of the other two.
        extent_bytes: from the tile's start to the end of its last row, or what a swizzle makes of it.
        cost_bytes: ``extent_bytes`` over the tile's own bytes.
    """

    kind: str
    pitch_bytes: int
    swizzle: Swizzle | None
    extent_bytes: int
    cost_bytes: int

    def address(self, row: int, byte: int) -> int:
        at = row * self.pitch_bytes + byte
        return at if self.swizzle is None else self.swizzle(at)


@dataclass(frozen=True)
class Counted:
    """What one pattern takes in an arrangement, over the whole tile.

    Attributes:
        requests, phases: that were looked at.
        passes: of all of them; as many as phases where there is no conflict.
        worst: most passes of a phase.
    """

    pattern: str
    width_bytes: int
    requests: int
    phases: int
    passes: int
    worst: int


@dataclass(frozen=True)
class Proof:
    """An arrangement with what every pattern takes in it.

    Attributes:
        aligned: every access starts at a multiple of its width.
        distinct: no two bytes of the tile share an address.
        layout: in elements, in CuTe's notation; "" where the pitch is no whole number of elements.
    """

    arrangement: Arrangement
    counted: tuple[Counted, ...]
    aligned: bool
    distinct: bool
    layout: str

    @property
    def conflict_free(self) -> bool:
        return self.aligned and self.distinct and all(count.passes == count.phases for count in self.counted)

    @property
    def passes(self) -> int:
        return sum(count.passes for count in self.counted)


@dataclass(frozen=True)
class Solution:
    """Attributes:

    plain: the tile as it is.
    padding, swizzle: of each kind the cheapest without conflicts; where none is, the one with the fewest passes
        (``conflict_free`` says which). None where the tile needs neither, or leaves no room for one.
    paddings_tried, swizzles_tried: how many there are of each kind.
    """

    tile: Tile
    plain: Proof
    padding: Proof | None
    swizzle: Proof | None
    paddings_tried: int
    swizzles_tried: int

    @property
    def best(self) -> Proof | None:
        """The one without conflicts that takes the fewest bytes; None where nothing is free of conflicts."""
        free = [
            proof for proof in (self.plain, self.swizzle, self.padding) if proof is not None and proof.conflict_free
        ]
        return min(free, key=lambda proof: proof.arrangement.cost_bytes, default=None)


def solve(tile: Tile, patterns: Sequence[Pattern]) -> Solution:
    """Search paddings from small to large and swizzles from simple to complicated.

    Args:
        patterns: how the tile is written and read; all must be free of conflicts together.

    Raises:
        TilewrightError: ``layout/no_pattern``.
    """
    if not patterns:
        raise TilewrightError("layout/no_pattern", "Name at least one --write or --read pattern.")
    plain = prove(tile, Arrangement("plain", tile.row_bytes, None, tile.bytes, 0), patterns)
    if plain.conflict_free:
        return Solution(tile, plain, None, None, 0, 0)
    widest = max(pattern.width_bytes for pattern in patterns)
    paddings, swizzles = list(_paddings(tile, widest)), list(_swizzles(tile, widest))
    found = [_first_free(tile, kind, patterns) or _least_bad(tile, kind, patterns) for kind in (paddings, swizzles)]
    return Solution(tile, plain, found[0], found[1], len(paddings), len(swizzles))


def prove(tile: Tile, arrangement: Arrangement, patterns: Sequence[Pattern]) -> Proof:
    """Count every request of every pattern in an arrangement."""
    counted, aligned = [], True
    for pattern in patterns:
        phases = total = worst = 0
        for request in pattern.requests:
            addresses = _addresses(arrangement, request)
            if any(at is not None and at % pattern.width_bytes for at in addresses):
                aligned = False  # the hardware would not do it at all
                continue
            found = passes(addresses, pattern.width_bytes, is_load=pattern.is_load)
            phases, total = phases + found.ideal, total + found.total
            worst = max(worst, *found.phases)
        counted.append(Counted(pattern.name, pattern.width_bytes, len(pattern.requests), phases, total, worst))
    return Proof(arrangement, tuple(counted), aligned, _is_distinct(tile, arrangement), _written(tile, arrangement))


def _first_free(tile: Tile, candidates: Sequence[Arrangement], patterns: Sequence[Pattern]) -> Proof | None:
    for candidate in candidates:
        if all(_is_free(candidate, pattern) for pattern in patterns):
            proof = prove(tile, candidate, patterns)
            if proof.conflict_free:
                return proof
    return None


def _is_free(arrangement: Arrangement, pattern: Pattern) -> bool:
    """Stops at the first request that conflicts."""
    for request in pattern.requests:
        addresses = _addresses(arrangement, request)
        if any(at is not None and at % pattern.width_bytes for at in addresses):
            return False
        if not passes(addresses, pattern.width_bytes, is_load=pattern.is_load).conflict_free:
            return False
    return True


def _addresses(arrangement: Arrangement, request: Request) -> list[int | None]:
    return [None if place is None else arrangement.address(*place) for place in request]


def _least_bad(tile: Tile, candidates: Sequence[Arrangement], patterns: Sequence[Pattern]) -> Proof | None:
    """Counted all at once; of the first with the fewest passes, the proof."""
    each = [_all_lanes(pattern) for pattern in patterns]
    found = sorted(candidates, key=lambda candidate: sum(_all_passes(candidate, *lanes) for lanes in each))
    proofs = (prove(tile, candidate, patterns) for candidate in found)
    return next((proof for proof in proofs if proof.aligned and proof.distinct), None)


def _all_lanes(pattern: Pattern) -> tuple[Numbers, Numbers, Numbers, int]:
    """Of all lanes of all requests: phase (numbered throughout), row, byte; and the width of an access."""
    # Lanes that want one place have one address in every arrangement.
    together = [lanes_together(request, pattern.width_bytes, pattern.is_load) for request in pattern.requests]
    lanes = [
        (number * int(shared_memory()["warp_lanes"]) + lane // together[number], *place)
        for number, request in enumerate(pattern.requests)
        for lane, place in enumerate(request)
        if place is not None
    ]
    phase, row, byte = np.array(lanes, dtype=np.int64).T
    return phase, row, byte, pattern.width_bytes


def _all_passes(arrangement: Arrangement, phase: Numbers, row: Numbers, byte: Numbers, width_bytes: int) -> int:
    """As `passes`, for every request of a pattern together."""
    data = shared_memory()
    banks, word_bytes = int(data["banks"]), int(data["bank_bytes"])
    at = row * arrangement.pitch_bytes + byte
    if (swizzle := arrangement.swizzle) is not None:  # its shift is up: bits of the row move into the bank
        at = at ^ ((at & (((1 << swizzle.bits) - 1) << (swizzle.base + swizzle.shift))) >> swizzle.shift)
    words = (at // word_bytes)[:, None] + np.arange(max(1, width_bytes // word_bytes))
    most = int(words.max()) // banks * banks + banks
    wanted = np.unique(phase[:, None] * most + words)
    places, counts = np.unique(wanted // most * banks + wanted % banks, return_counts=True)
    busiest = np.zeros(int(phase.max()) + 1, dtype=np.int64)
    np.maximum.at(busiest, places // banks, counts)
    return int(busiest.sum())


def _paddings(tile: Tile, widest: int) -> Iterator[Arrangement]:
    """Every pitch that keeps vectors aligned, up to where the banks repeat, as far as a block has the bytes."""
    data = shared_memory()
    for more in range(1, int(data["banks"]) * int(data["bank_bytes"])):
        pitch = tile.row_bytes + more
        fits = pitch * tile.rows <= data["largest_bytes"]
        if fits and pitch % widest == 0 and pitch % tile.element_bytes == 0:
            cost = more * tile.rows
            yield Arrangement("padding", pitch, None, pitch * tile.rows, cost)


def _swizzles(tile: Tile, widest: int) -> Iterator[Arrangement]:
    """Swizzle<B, M, S> on bytes: cheapest first, then by B, S and M."""
    data = shared_memory()
    bank_bits = (int(data["banks"]) * int(data["bank_bytes"])).bit_length() - 1
    lowest = max(widest, tile.element_bytes, int(data["bank_bytes"])).bit_length() - 1
    address_bits = (tile.bytes - 1).bit_length()
    found = []
    for base in range(lowest, bank_bits):
        for bits in range(1, bank_bits - base + 1):
            for shift in range(bits, address_bits - base):
                swizzle = Swizzle(bits, base, shift)
                extent = _extent(tile, swizzle)
                found.append(Arrangement("swizzle", tile.row_bytes, swizzle, extent, extent - tile.bytes))

    def simplest(a: Arrangement) -> tuple[int, ...]:
        assert a.swizzle is not None
        return a.cost_bytes, a.swizzle.bits, a.swizzle.shift, a.swizzle.base

    yield from sorted(found, key=simplest)


def _extent(tile: Tile, swizzle: Swizzle) -> int:
    block = 1 << swizzle.base
    return max(swizzle(at) + min(block, tile.bytes - at) for at in range(0, tile.bytes, block))


def _is_distinct(tile: Tile, arrangement: Arrangement) -> bool:
    step = tile.element_bytes
    places = {arrangement.address(row, byte) for row in range(tile.rows) for byte in range(0, tile.row_bytes, step)}
    return len(places) == tile.rows * tile.cols


def _written(tile: Tile, arrangement: Arrangement) -> str:
    size = tile.element_bytes
    if arrangement.pitch_bytes % size:
        return ""
    layout = Layout((tile.rows, tile.cols), (arrangement.pitch_bytes // size, 1))
    if arrangement.swizzle is None:
        return str(layout)
    if size & (size - 1):
        return ""
    less = size.bit_length() - 1
    swizzle = arrangement.swizzle
    return str(ComposedLayout(Swizzle(swizzle.bits, swizzle.base - less, swizzle.shift), 0, layout))
