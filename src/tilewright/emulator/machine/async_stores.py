"""st.async: stores of registers into the shared memory of a block of the cluster, which signal an mbarrier there.

Like the target of a bulk copy, theirs is poisoned and in flight until somebody waits for the mbarrier in vain. They
belong to the generic proxy: PTX ISA, "Async proxy", names the bulk copies only, so a bulk copy or wgmma that reads what
they wrote needs a proxy fence.

Nothing orders asynchronous stores among one another. They therefore land as unkindly as they may: the newest first, and
those to the first waiting block of a cluster long before those to the others, which it may then run ahead of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import OFFSET_BITS, RANK_BITS, SHARED_ID
from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.mbarriers import Mbarriers
from tilewright.emulator.machine.shared_memory import SharedMemory


@dataclass(frozen=True)
class _Store:
    """Stores of one instruction to mbarriers at one offset.

    Attributes:
        threads: who began them, int64[n]. slots: where they land and signal, int64[n].
        linear: of the target, int64[n]. rows: uint8[n, bytes].
    """

    threads: Array
    slots: Array
    offset: int
    linear: Array
    rows: Array
    site: int

    def cut(self, mask: Array) -> _Store:
        return _Store(self.threads[mask], self.slots[mask], self.offset, self.linear[mask], self.rows[mask], self.site)


class AsyncStores:
    """Attributes:

    lands: ``deferred`` (poisoned until the wait), or ``eager`` (at once, as hardware may).
    """

    def __init__(self, chunk: Chunk, shared: SharedMemory, mbarriers: Mbarriers, lands: str) -> None:
        self.chunk = chunk
        self.shared = shared
        self.mbarriers = mbarriers
        self.lands = lands
        self.cluster_size = chunk.geometry.cluster_size
        self.queue: list[_Store] = []

    def shared_address(self, active: Active, address: Any, site: int) -> Array:
        """A generic address as one of shared memory. Raises Fault where it lies elsewhere."""
        spread = active.spread(address).astype(np.int64)
        if (spread >> OFFSET_BITS != SHARED_ID).any():
            raise Fault("bad_copy", "st.async needs addresses in the shared memory of the cluster", site)
        return spread & 0xFFFFFFFF

    def store(self, active: Active, target: Any, values: tuple[Any, ...], dtype: str, barrier: Any, site: int) -> None:
        """One store per thread, of all ``values``, aligned to their bytes. ``barrier``: in the block of ``target``.

        Raises Fault for misaligned addresses (``misaligned``), and for addresses in blocks that the cluster does not
        have (``bad_rank``) or in two blocks (``bad_copy``).
        """
        size = np.dtype(dtype).itemsize * len(values)
        target, barrier = active.spread(target), active.spread(barrier)
        self._check_blocks(active, target, barrier, site)
        linear = np.broadcast_to(self.shared.linear(active, target, size, site, "write", signals=True), (active.count,))
        columns = np.stack([active.spread(v) for v in values], axis=1).astype(dtype, copy=False)
        rows = np.ascontiguousarray(columns).view(np.uint8).reshape(-1, size)
        watch = self.shared.watch
        if watch.tally is not None:
            watch.tally.shared(active, linear, size, site, "write")
        if watch.shadow is not None:
            watch.shadow.issue(active.threads, linear, size, site, finds_flights=True)
        if self.lands == "eager":
            self.shared.write_rows(linear, rows)
        else:
            self.shared.poison(linear, size)
        for offset, slots, which in self.mbarriers.require(active, barrier, site):
            part = slice(None) if which is None else which
            self.queue.append(_Store(active.threads[part], slots, offset, linear[part], rows[part], site))

    def _check_blocks(self, active: Active, target: Array, barrier: Array, site: int) -> None:
        if not self.shared.has_clusters:
            return
        own = active.slots % self.cluster_size
        there, signalled = (np.where(a >> RANK_BITS == 0, own, (a >> RANK_BITS) - 1) for a in (target, barrier))
        for ranks in (there, signalled):
            strange = (ranks < 0) | (ranks >= self.cluster_size)
            if strange.any():
                have = int(ranks[np.argmax(strange)])
                raise Fault("bad_rank", f"block {have} of a cluster of {self.cluster_size}", site)
        apart = there != signalled
        if apart.any():
            at = int(np.argmax(apart))
            told = f"st.async into block {there[at]} of the cluster signals an mbarrier of block {signalled[at]}"
            raise Fault("bad_copy", f"{told}: it must be one of the block that it writes to", site)

    # -- on their way ------------------------------------------------------------------------------------

    def land_wanted(self) -> bool:
        """Land what the first waiting block of each cluster waits for; whether there was anything."""
        waiting = [store.slots[self._wanted(store)] for store in self.queue]
        slots = np.concatenate(waiting) if waiting else np.zeros(0, np.int64)
        if not len(slots):
            return False
        first = np.full(-(-self.chunk.slots // self.cluster_size), self.chunk.slots)
        np.minimum.at(first, slots // self.cluster_size, slots)
        kept: list[_Store] = []
        for store in reversed(self.queue):
            # A phase that is complete wants no more: what comes later belongs to the next.
            lands = self._wanted(store) & (store.slots == first[store.slots // self.cluster_size])
            if not lands.all():
                kept.append(store.cut(~lands))
            if lands.any():
                self._land(store.cut(lands))
        self.queue = kept[::-1]
        return True

    def _wanted(self, store: _Store) -> Array:
        return self.mbarriers.places[store.offset].wanted[store.slots]

    def _land(self, store: _Store) -> None:
        shadow, clock = self.shared.shadow, self.mbarriers.places[store.offset].clock
        size = store.rows.shape[1]
        self.shared.write_rows(store.linear, store.rows)
        if shadow is not None and clock is not None:
            near = self.chunk.slot_of[store.threads] == store.slots
            if near.any():
                mine = store.cut(near)
                shadow.land_async(mine.slots, mine.linear, size, mine.site, clock, bulk=False)
            if not near.all():
                mine = store.cut(~near)
                shadow.land_from_afar(mine.threads, mine.slots, mine.linear, size, mine.site, clock, self.cluster_size)
        self.mbarriers.landed(store.threads, store.offset, store.slots, size, store.site)
