"""How many passes shared memory needs for a warp's request: 32 banks of 4 bytes, each gives one word per pass.

Lanes that want the same word share it. Requests of 8 bytes a lane go by half-warps, of 16 bytes by quarter-warps, one
phase after another (CUDA C++ Programming Guide, "Shared Memory"). Of such *loads*, two phases become one where every
lane n has the address of lane n ^ 1. NVIDIA says so for compute capability 7.x, and an H200 does it; its stores and
matrix loads do not (``data/shared_memory.toml``, ``sharing``, has both sources). The emulator's counters count the same
way; tests hold them against each other, and the rule against the H200's clock.
"""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.layout.layout import AnyLayout


@dataclass(frozen=True)
class Passes:
    """Of one request.

    Attributes:
        phases: passes of each phase that has a lane, in order.
        ideal: how many there would be without conflicts: one for each phase.
        busiest_bank: of the first phase with the most passes.
    """

    phases: tuple[int, ...]
    busiest_bank: int

    @property
    def total(self) -> int:
        return sum(self.phases)

    @property
    def ideal(self) -> int:
        return len(self.phases)

    @property
    def conflict_free(self) -> bool:
        return self.total == self.ideal


@cache
def shared_memory() -> Mapping[str, Any]:
    """``data/shared_memory.toml``."""
    text = files("tilewright.layout").joinpath("data/shared_memory.toml").read_text(encoding="utf-8")
    parsed: Mapping[str, Any] = tomllib.loads(text)
    return parsed


def lanes_per_phase(width_bytes: int) -> int:
    """Lanes that are served together: as many as fill all banks once."""
    data = shared_memory()
    return min(int(data["warp_lanes"]), int(data["banks"]) * int(data["bank_bytes"]) // width_bytes)


def lanes_together(request: Sequence[Hashable | None], width_bytes: int, is_load: bool) -> int:
    """Lanes of one phase of this request: `lanes_per_phase`, or twice as many where a load's lanes share in pairs.

    Args:
        request: of each lane its address, or anything that is equal where addresses are; None: it takes no part. A
            lane that takes part without its partner shares with nobody.
        is_load: an ordinary load; not a store, not ldmatrix.
    """
    together, rule = lanes_per_phase(width_bytes), shared_memory()["sharing"]
    if not is_load or width_bytes not in rule["widths_bytes"]:
        return together
    lanes = [*request, *(None,) * (int(shared_memory()["warp_lanes"]) - len(request))]
    in_pairs = all(lanes[lane ^ int(rule["partner"])] == wanted for lane, wanted in enumerate(lanes))
    return 2 * together if in_pairs else together


def passes(addresses: Sequence[int | None], width_bytes: int, *, is_load: bool) -> Passes:
    """Passes of one request of a warp.

    Args:
        addresses: of each lane, bytes in shared memory; None for a lane that takes no part. At most 32.
        width_bytes: 1, 2, 4, 8 or 16; the addresses are multiples of it.
        is_load: an ordinary load; False for stores, and for the rows of ldmatrix.

    Raises:
        TilewrightError: ``layout/width``, ``layout/misaligned``, ``layout/lanes``.
    """
    data = shared_memory()
    if width_bytes not in data["widths_bytes"]:
        raise TilewrightError("layout/width", f"A lane accesses 1, 2, 4, 8 or 16 bytes, not {width_bytes}.")
    if len(addresses) > data["warp_lanes"]:
        raise TilewrightError(
            "layout/lanes", f"A warp has {data['warp_lanes']} lanes; have {len(addresses)} addresses."
        )
    banks, word_bytes = int(data["banks"]), int(data["bank_bytes"])
    together = lanes_together(addresses, width_bytes, is_load)
    counts, busiest, most = [], 0, 0
    for start in range(0, len(addresses), together):
        words: set[int] = set()
        for lane, address in enumerate(addresses[start : start + together], start):
            if address is None:
                continue
            if address < 0 or address % width_bytes:
                raise TilewrightError(
                    "layout/misaligned",
                    f"Lane {lane} accesses {width_bytes} bytes at {address}, which must be aligned.",
                )
            words.update(range(address // word_bytes, (address + width_bytes - 1) // word_bytes + 1))
        if not words:
            continue
        per_bank = [0] * banks
        for word in words:
            per_bank[word % banks] += 1
        counts.append(max(per_bank))
        if counts[-1] > most:
            most, busiest = counts[-1], per_bank.index(counts[-1])
    return Passes(tuple(counts), busiest)


def requests_of(shared: AnyLayout, thread_values: AnyLayout, element_bytes: int, width_bytes: int) -> list[list[int]]:
    """The byte addresses of each request: for each warp and each vector of values, one address per lane.

    Args:
        shared: place of a tile (index or coordinate) to element in shared memory; a swizzle may lie on top.
        thread_values: (thread, value) to place of the tile, counted as ``shared`` counts.
        width_bytes: of each access; its elements must be consecutive values at consecutive addresses.

    Returns:
        warp after warp, vector after vector.

    Raises:
        TilewrightError: ``layout/not_contiguous``, ``layout/misaligned``: the values are no such vectors.
            ``layout/outside``: a place that the shared layout does not have. ``layout/width``.
    """
    if width_bytes % element_bytes or thread_values.rank != 2:
        raise TilewrightError(
            "layout/width",
            f"Need (thread, value) and an access of whole elements; have rank {thread_values.rank} and {width_bytes} "
            f"bytes of elements of {element_bytes}.",
        )
    threads, values = thread_values[0].size, thread_values[1].size
    together = width_bytes // element_bytes
    if values % together:
        raise TilewrightError(
            "layout/width",
            f"{values} values of {element_bytes} bytes are no whole number of {width_bytes}-byte accesses.",
        )
    largest = shared_memory()["largest_bytes"]
    if max(shared.size, thread_values.size) * element_bytes > largest:
        raise TilewrightError(
            "layout/outside", f"{shared} or {thread_values} is larger than shared memory, which has {largest} bytes."
        )
    places, elements = thread_values.offsets(), shared.offsets()
    if max(places) >= len(elements):
        raise TilewrightError(
            "layout/outside", f"The threads reach place {max(places)}; {shared} has places 0 to {len(elements) - 1}."
        )
    lanes = int(shared_memory()["warp_lanes"])
    found = []
    for warp in range(0, threads, lanes):
        for first in range(0, values, together):
            request = []
            for thread in range(warp, min(warp + lanes, threads)):
                at = [elements[places[thread + threads * value]] for value in range(first, first + together)]
                request.append(_vector(at, thread, element_bytes, width_bytes))
            found.append(request)
    return found


def _vector(elements: list[int], thread: int, element_bytes: int, width_bytes: int) -> int:
    start = elements[0] * element_bytes
    if elements != list(range(elements[0], elements[0] + len(elements))):
        raise TilewrightError(
            "layout/not_contiguous",
            f"Thread {thread} would access elements {elements} as one vector of {width_bytes} bytes; they must follow "
            "one another.",
            {"thread": thread},
            "Take a narrower --width, or a layout whose values run along the rows.",
        )
    if start % width_bytes:
        raise TilewrightError(
            "layout/misaligned",
            f"Thread {thread} would access {width_bytes} bytes at byte {start}, which is no multiple.",
            {"thread": thread},
            "Pad the rows to a multiple of the width, or take a narrower one.",
        )
    return start
