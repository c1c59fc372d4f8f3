"""Generic addresses: each access goes to the space that its window names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.emulator.machine.addresses import LOCAL_ID, LOCAL_WINDOW, OFFSET_BITS, SHARED_ID, SHARED_WINDOW
from tilewright.emulator.machine.chunk import Active, Array
from tilewright.emulator.machine.global_memory import GlobalMemory
from tilewright.emulator.machine.local_memory import LocalMemory
from tilewright.emulator.machine.shared_memory import SharedMemory

Part = tuple[Any, Active, Any, Array | None]


class GenericMemory:
    def __init__(self, globe: GlobalMemory, shared: SharedMemory, local: LocalMemory) -> None:
        self.globe = globe
        self.shared = shared
        self.local = local

    def parts(self, active: Active, address: Any) -> Iterator[Part]:
        """(memory, threads, addresses in its space, mask or None for all) for each space that is addressed."""
        numbers = address >> OFFSET_BITS
        spaces = np.where(numbers == SHARED_ID, 1, np.where(numbers == LOCAL_ID, 2, 0))
        first = int(spaces.flat[0]) if getattr(spaces, "ndim", 0) else int(spaces)
        if not getattr(spaces, "ndim", 0) or (spaces == first).all():
            yield (*self._space(first, address, active), None)
            return
        for space in np.unique(spaces):
            mask = spaces == space
            memory, part, inside = self._space(int(space), address[mask], active.subset(mask))
            yield memory, part, inside, mask

    def _space(self, space: int, address: Any, active: Active) -> tuple[Any, Active, Any]:
        if space == 1:
            return self.shared, active, address - SHARED_WINDOW
        if space == 2:
            return self.local, active, address - LOCAL_WINDOW
        return self.globe, active, address

    def load(self, active: Active, address: Any, size: int, dtype: str, site: int) -> Any:
        out: Array | None = None
        for memory, part, inside, mask in self.parts(active, address):
            values = memory.load(part, inside, size, dtype, site)
            if mask is None:
                return values
            out = np.zeros(active.count, dtype) if out is None else out
            out[mask] = values
        return out

    def store(self, active: Active, address: Any, size: int, value: Any, dtype: str, site: int) -> None:
        for memory, part, inside, mask in self.parts(active, address):
            memory.store(part, inside, size, value if mask is None else active.spread(value)[mask], dtype, site)

    def load_vector(self, active: Active, address: Any, count: int, dtype: str, site: int) -> tuple[Any, ...]:
        out: tuple[Array, ...] | None = None
        for memory, part, inside, mask in self.parts(active, address):
            values = memory.load_vector(part, inside, count, dtype, site)
            if mask is None:
                return values  # type: ignore[no-any-return]
            out = tuple(np.zeros(active.count, dtype) for _ in range(count)) if out is None else out
            for whole, piece in zip(out, values, strict=True):
                whole[mask] = piece
        return out or ()

    def store_vector(self, active: Active, address: Any, values: tuple[Any, ...], dtype: str, site: int) -> None:
        for memory, part, inside, mask in self.parts(active, address):
            cut = values if mask is None else tuple(active.spread(v)[mask] for v in values)
            memory.store_vector(part, inside, cut, dtype, site)

    def strong_load(self, active: Active, address: Any, count: int, dtype: str, site: int) -> tuple[Any, ...]:
        """Volatile, relaxed: threads may talk through it. C++ atomics have generic addresses."""
        out = tuple(np.zeros(active.count, dtype) for _ in range(count))
        for memory, part, inside, mask in self.parts(active, address):
            load = memory.strong_load if memory is self.shared else memory.load_vector
            for whole, piece in zip(out, load(part, inside, count, dtype, site), strict=True):
                whole[slice(None) if mask is None else mask] = piece
        return out

    def strong_store(self, active: Active, address: Any, values: tuple[Any, ...], dtype: str, site: int) -> None:
        for memory, part, inside, mask in self.parts(active, address):
            cut = values if mask is None else tuple(active.spread(v)[mask] for v in values)
            store = memory.strong_store if memory is self.shared else memory.store_vector
            store(part, inside, cut, dtype, site)

    def load_rows(self, active: Active, address: Array, size: int, site: int) -> Array:
        out = np.zeros((len(address), size), np.uint8)
        for memory, part, inside, mask in self.parts(active, address):
            out[slice(None) if mask is None else mask] = memory.load_rows(part, inside, size, site)
        return out

    def store_rows(self, active: Active, address: Array, rows: Array, site: int) -> None:
        for memory, part, inside, mask in self.parts(active, address):
            memory.store_rows(part, inside, rows if mask is None else rows[mask], site)
