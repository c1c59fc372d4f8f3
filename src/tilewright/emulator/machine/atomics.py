"""Atomic reads-modify-writes on any space that is addressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import SHIFT
from tilewright.emulator.machine.chunk import Active, Array
from tilewright.emulator.machine.generic_memory import GenericMemory
from tilewright.emulator.machine.global_memory import GlobalMemory
from tilewright.emulator.machine.shared_memory import SharedMemory

Combine = Callable[[Any, Any], Any]


def _wrap_increment(old: Any, limit: Any) -> Any:
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _wrap_decrement(old: Any, limit: Any) -> Any:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


COMBINE: dict[str, Combine] = {
    "add": lambda old, new: old + new,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "inc": _wrap_increment,
    "dec": _wrap_decrement,
}


class Atomics:
    """``random`` permutes threads that collide, to expose results that depend on their order; None: ascending.

    Attributes:
        version: grows with every change to memory.
    """

    def __init__(self, generic: GenericMemory, random: np.random.Generator | None) -> None:
        self.generic = generic
        self.random = random
        self.version = 0

    def update(
        self,
        active: Active,
        space: str,
        operation: str,
        address: Any,
        value: Any,
        dtype: str,
        site: int,
        compare: Any = None,
        combine: Combine | None = None,
    ) -> Array:
        """Old values, one per thread. ``combine``: what is not NumPy's own arithmetic (bf16, packed halves)."""
        address = active.spread(address)
        values = active.spread(value)
        expected = None if compare is None else active.spread(compare)
        out = np.zeros(active.count, dtype)
        for cells, position, mask in self._cells(active, space, address, dtype, site):
            here = slice(None) if mask is None else mask
            old = self._serial(
                cells,
                position,
                operation,
                values[here],
                None if expected is None else expected[here],
                combine or COMBINE.get(operation),
            )
            out[here] = old
        return out

    def _cells(
        self, active: Active, space: str, address: Array, dtype: str, site: int
    ) -> Iterator[tuple[Array, Array, Array | None]]:
        """(memory as elements of the type, each thread's element, which threads or None for all)."""
        size = np.dtype(dtype).itemsize
        for memory, part, inside, mask in self._spaces(active, space, address):
            if isinstance(memory, SharedMemory):
                linear = memory.linear(part, inside, size, site, "write")
                if memory.watch.tally is not None:
                    memory.watch.tally.shared(part, linear, size, site, "write")
                if memory.shadow is not None:
                    memory.shadow.atomic(part.threads, linear, size, site)
                memory.watch.overhear(part)
                yield memory.view(dtype), linear >> SHIFT[size], mask
            elif isinstance(memory, GlobalMemory):
                for buffer, offset, chosen in memory.targets(part, inside, size, site):
                    which = chosen if mask is None else np.flatnonzero(mask)[chosen]
                    yield buffer.view(dtype), offset[chosen] >> SHIFT[size], which
            else:
                raise Fault("not_modelled", "an atomic on local memory", site)

    def _spaces(self, active: Active, space: str, address: Array) -> Iterable[Any]:
        if space == "shared":
            return [(self.generic.shared, active, address, None)]
        if space == "global":
            return [(self.generic.globe, active, address, None)]
        return self.generic.parts(active, address)

    def _serial(
        self, cells: Array, position: Array, operation: str, values: Array, expected: Array | None, combine: Any
    ) -> Array:
        """Round by round: in each, every cell serves one thread."""
        old = np.zeros(len(position), cells.dtype)
        count = len(position)
        arrival = np.arange(count) if self.random is None else self.random.permutation(count)
        by_cell = arrival[np.argsort(position[arrival], kind="stable")]
        cell = position[by_cell]
        first = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]]) if count else np.zeros(0, int)
        rank = np.arange(count) - np.repeat(first, np.diff(np.r_[first, count]))
        order = by_cell[np.argsort(rank, kind="stable")]
        stops = np.cumsum(np.bincount(rank)) if count else np.zeros(0, int)
        start = 0
        for stop in stops:
            now = order[start:stop]
            start = stop
            before = cells[position[now]]
            old[now] = before
            if expected is not None:
                after = np.where(before == expected[now], values[now], before)
            else:
                after = combine(before, values[now])
            cells[position[now]] = after
            self.version += bool((cells[position[now]] != before).any())
        return old
