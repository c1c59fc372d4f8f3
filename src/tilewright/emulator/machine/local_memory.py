"""Local memory: bytes of every thread's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import SHIFT
from tilewright.emulator.machine.chunk import Active, Array, Chunk

# What local memory holds that nobody wrote, in a first run and in a repeat: a NaN in every float format, and something
# else, so that results that follow from it differ. It is not reported: copies of structs move their padding.
LOCAL_POISONS = (0xFF, 0xA5)


class LocalMemory:
    def __init__(self, chunk: Chunk, local_bytes: int, poison: int = LOCAL_POISONS[0]) -> None:
        self.local_bytes = local_bytes
        self.data = np.full(chunk.threads * local_bytes, poison, np.uint8)

    def _linear(self, active: Active, address: Any, size: int, site: int, what: str) -> Array:
        address = active.spread(address).astype(np.int64)
        outside = (address < 0) | (address + size > self.local_bytes)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            thread = int(active.chunk.tid[active.threads[at]])
            message = f"thread {thread} {what}s {size} bytes at {int(address[at])} of {self.local_bytes} local bytes"
            raise Fault(f"out_of_bounds_{what}", message, site)
        if (address & (size - 1)).any():
            raise Fault("misaligned", f"a local {what} of {size} bytes at an address that is not a multiple", site)
        return active.threads * self.local_bytes + address  # type: ignore[no-any-return]

    def load(self, active: Active, address: Any, size: int, dtype: str, site: int) -> Array:
        linear = self._linear(active, address, size, site, "read")
        return self.data.view(dtype)[linear >> SHIFT[size]]  # type: ignore[no-any-return]

    def store(self, active: Active, address: Any, size: int, value: Any, dtype: str, site: int) -> None:
        self.data.view(dtype)[self._linear(active, address, size, site, "write") >> SHIFT[size]] = value

    def load_vector(self, active: Active, address: Any, count: int, dtype: str, site: int) -> tuple[Array, ...]:
        size = np.dtype(dtype).itemsize * count
        linear = self._linear(active, address, size, site, "read")
        rows = self.data.view(f"V{size}")[linear >> SHIFT[size]].view(dtype).reshape(-1, count)
        return tuple(np.ascontiguousarray(rows[:, i]) for i in range(count))

    def store_vector(self, active: Active, address: Any, values: tuple[Any, ...], dtype: str, site: int) -> None:
        size = np.dtype(dtype).itemsize * len(values)
        linear = self._linear(active, address, size, site, "write")
        rows = np.stack([active.spread(v) for v in values], axis=1).astype(dtype, copy=False)
        self.data.view(f"V{size}")[linear >> SHIFT[size]] = rows.view(f"V{size}").reshape(-1)
