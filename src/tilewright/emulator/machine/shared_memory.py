"""Shared memory of a chunk: one byte array, ``smem_bytes`` per slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.layout import SharedLayout
from tilewright.emulator.machine.addresses import RANK_BITS, RANK_MASK, SHIFT
from tilewright.emulator.machine.chunk import Active, Array, Chunk

if TYPE_CHECKING:
    from tilewright.emulator.machine.departures import Departures
    from tilewright.emulator.machine.watch import Watch

POISON = 0xFF  # NaN in every float format; integers rely on the shadow


class SharedMemory:
    """Attributes:

    data: uint8[slots * smem_bytes]; poisoned at the start.
    departures: told of what threads do to the memory of other blocks; None where nobody asks.
    """

    def __init__(self, chunk: Chunk, layout: SharedLayout, watch: Watch) -> None:
        self.chunk = chunk
        self.layout = layout
        self.smem_bytes = chunk.geometry.smem_bytes
        self.data = np.full(chunk.slots * self.smem_bytes, POISON, np.uint8)
        self.watch = watch
        self.shadow = watch.shadow
        self._views: dict[str, Array] = {}
        self.has_clusters = chunk.geometry.cluster_size > 1
        self.departures: Departures | None = None

    def view(self, dtype: str) -> Array:
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.data.view(dtype)
        return found

    def linear(self, active: Active, address: Any, size: int, site: int, what: str, signals: bool = False) -> Array:
        """Bytes from the chunk's start, int64 per thread. Out of bounds: reported, moved to the spare bytes.

        ``signals``: an access that an mbarrier there counts.
        """
        base = active.shared_base
        if self.has_clusters:
            address, base = self._cluster(active, address, site, signals)
        if getattr(address, "ndim", 0):
            low, high = int(address.min()), int(address.max())
            bits = int(np.bitwise_or.reduce(address))
        else:
            low = high = bits = int(address)
        if not self.layout.has_room(low, high + size):
            address = self._inside(active, address, size, site, what)
        if bits & (size - 1):
            self._misaligned(active, address, size, site, what)
        return base + address  # type: ignore[no-any-return]

    def _cluster(self, active: Active, address: Any, site: int, signals: bool) -> tuple[Any, Array]:
        rank = address >> RANK_BITS
        if not np.any(rank):
            return address, active.shared_base
        size = self.chunk.geometry.cluster_size
        slot = active.slots // size * size + rank - 1
        slot = np.where(rank == 0, active.slots, slot)
        inside = address & RANK_MASK
        far = slot != active.slots
        if self.watch.presence is not None and far.any():
            offsets = active.spread(inside)
            self.watch.presence.check(self.watch, active, far, int(offsets[np.argmax(far)]), site)
            if self.departures is not None and not signals:
                self.departures.used(active, slot, offsets, site)
        return inside, slot * self.smem_bytes

    def _inside(self, active: Active, address: Any, size: int, site: int, what: str) -> Any:
        spread = active.spread(address)
        bad = self.layout.is_outside(spread, size)
        if not bad.any():
            return address
        at = int(np.flatnonzero(bad)[0])
        symbol = self.layout.nearest(int(spread[at]))
        self.watch.out_of_bounds(active, bad, spread - symbol.offset, size, site, what, symbol.name, symbol.size_bytes)
        return np.where(bad, self.layout.spare, spread)

    def _misaligned(self, active: Active, address: Any, size: int, site: int, what: str) -> None:
        spread = active.spread(address)
        at = int(np.flatnonzero(spread & (size - 1))[0])
        symbol = self.layout.nearest(int(spread[at]))
        thread = int(active.chunk.tid[active.threads[at]])
        place = f"{symbol.name}+{int(spread[at]) - symbol.offset}"
        raise Fault("misaligned", f"thread {thread} {what}s {size} bytes at {place}, not a multiple of {size}", site)

    # -- accesses ----------------------------------------------------------------------------------------

    def load(self, active: Active, address: Any, size: int, dtype: str, site: int) -> Array:
        linear = self.linear(active, address, size, site, "read")
        self.watch.shared_access(active, linear, size, site, "read")
        return self.view(dtype)[linear >> SHIFT[size]]  # type: ignore[no-any-return]

    def store(self, active: Active, address: Any, size: int, value: Any, dtype: str, site: int) -> None:
        linear = self.linear(active, address, size, site, "write")
        where, memory = linear >> SHIFT[size], self.view(dtype)

        def unchanged() -> Array:
            new = np.broadcast_to(np.asarray(value).astype(dtype), where.shape)
            return memory[where].view(f"u{size}") == np.ascontiguousarray(new).view(f"u{size}")  # type: ignore[no-any-return]

        self.watch.shared_access(active, linear, size, site, "write", unchanged)
        memory[where] = value

    def load_vector(self, active: Active, address: Any, count: int, dtype: str, site: int) -> tuple[Array, ...]:
        size = np.dtype(dtype).itemsize * count
        linear = self.linear(active, address, size, site, "read")
        self.watch.shared_access(active, linear, size, site, "read")
        rows = self.view(f"V{size}")[linear >> SHIFT[size]].view(dtype).reshape(-1, count)
        return tuple(np.ascontiguousarray(rows[:, i]) for i in range(count))

    def store_vector(self, active: Active, address: Any, values: tuple[Any, ...], dtype: str, site: int) -> None:
        size = np.dtype(dtype).itemsize * len(values)
        linear = self.linear(active, address, size, site, "write")
        rows = np.stack([active.spread(v) for v in values], axis=1).astype(dtype, copy=False)
        self.watch.shared_access(active, linear, size, site, "write", lambda: self._are(linear, rows.view(np.uint8)))
        self.view(f"V{size}")[linear >> SHIFT[size]] = rows.view(f"V{size}").reshape(-1)

    def strong_load(self, active: Active, address: Any, count: int, dtype: str, site: int) -> tuple[Array, ...]:
        """``ld.volatile``, ``ld.relaxed``: threads may talk through it."""
        size = np.dtype(dtype).itemsize * count
        linear = self.linear(active, address, size, site, "read")
        self.watch.strong_access(active, linear, size, site, "read")
        rows = self.view(f"V{size}")[linear >> SHIFT[size]].view(dtype).reshape(-1, count)
        return tuple(np.ascontiguousarray(rows[:, i]) for i in range(count))

    def strong_store(self, active: Active, address: Any, values: tuple[Any, ...], dtype: str, site: int) -> None:
        size = np.dtype(dtype).itemsize * len(values)
        linear = self.linear(active, address, size, site, "write")
        self.watch.strong_access(active, linear, size, site, "write")
        rows = np.stack([active.spread(v) for v in values], axis=1).astype(dtype, copy=False)
        self.view(f"V{size}")[linear >> SHIFT[size]] = rows.view(f"V{size}").reshape(-1)

    def load_rows(self, active: Active, address: Array, size: int, site: int) -> Array:
        """uint8[threads, size] of aligned pieces."""
        linear = self.linear(active, address, size, site, "read")
        self.watch.shared_access(active, linear, size, site, "read")
        return self.read_rows(linear, size)

    def store_rows(self, active: Active, address: Array, rows: Array, site: int) -> None:
        size = rows.shape[1]
        linear = self.linear(active, address, size, site, "write")
        self.watch.shared_access(active, linear, size, site, "write", lambda: self._are(linear, rows))
        self.write_rows(linear, rows)

    def _are(self, linear: Array, rows: Array) -> Array:
        """Which places hold these bytes (uint8[threads, size])."""
        return (self.read_rows(linear, rows.shape[1]) == rows).all(axis=1)  # type: ignore[no-any-return]

    def read_rows(self, linear: Array, size: int) -> Array:
        """uint8[…, size] at linear bytes that are known to be right; no check."""
        return self.view(f"V{size}")[linear >> SHIFT[size]].view(np.uint8).reshape(*linear.shape, size)  # type: ignore[no-any-return]

    def write_rows(self, linear: Array, rows: Array) -> None:
        size = rows.shape[-1]
        self.view(f"V{size}")[linear >> SHIFT[size]] = np.ascontiguousarray(rows).view(f"V{size}").reshape(linear.shape)

    def poison(self, linear: Array, size: int) -> None:
        self.view(f"V{size}")[linear >> SHIFT[size]] = np.full(size, POISON, np.uint8).view(f"V{size}")[0]
