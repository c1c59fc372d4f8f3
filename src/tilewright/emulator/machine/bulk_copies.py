"""Bulk copies into shared memory: ``cp.async.bulk`` and TMA loads, which signal an mbarrier with their bytes.

Their target is poisoned and in flight until somebody waits for the mbarrier in vain. Then the bytes land.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import RANK_BITS, RANK_MASK
from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.global_memory import GlobalMemory
from tilewright.emulator.machine.mbarriers import Mbarriers
from tilewright.emulator.machine.shared_memory import SharedMemory
from tilewright.emulator.machine.tensor_maps import TensorMaps
from tilewright.emulator.tensor import boxes, bulk, reductions

UNIT = bulk.UNIT_BYTES


@dataclass
class _Load:
    """Copies of one instruction to mbarriers at one offset.

    Attributes:
        threads: who began them, int64[n]. slots: where they land and signal, int64[n].
        linear: of the target's 16-byte chunks, int64[n, chunks]; size_bytes: of each copy.
        rows: uint8[n, size_bytes], or None where the source is shared memory: it is read when the copy lands.
        source: linear chunks of that source; token: of its reads.
        reduces: (operation, element) of a reduction.
    """

    threads: Array
    slots: Array
    offset: int
    linear: Array
    size_bytes: int
    site: int
    rows: Array | None
    source: Array | None = None
    token: int | None = None
    reduces: tuple[str, str] | None = None

    def cut(self, mask: Array) -> _Load:
        rows = None if self.rows is None else self.rows[mask]
        source = None if self.source is None else self.source[mask]
        return _Load(
            self.threads[mask],
            self.slots[mask],
            self.offset,
            self.linear[mask],
            self.size_bytes,
            self.site,
            rows,
            source,
            self.token,
            self.reduces,
        )


class Tokens:
    """Numbers of reads that last: of bulk copies, and of wgmma."""

    def __init__(self) -> None:
        self.last = 0

    def new(self) -> int:
        self.last += 1
        return self.last


def repeated(active: Active, times: int) -> Active:
    """Each thread once for each chunk of its copy."""
    return Active(active.chunk, np.repeat(active.threads, times))


def chunks_of(address: Array, size_bytes: int) -> Array:
    """int64[n, chunks]: where the 16-byte chunks of copies lie."""
    return address.astype(np.int64)[:, None] + np.arange(0, size_bytes, UNIT)


def check_alignment(target: Any, source: Any, size_bytes: Any, site: int) -> None:
    faults = bulk.copy_faults(target, source, size_bytes)
    if faults.any.any():
        raise Fault("misaligned", faults.describe(int(np.argmax(faults.any))), site)


class BulkCopies:
    def __init__(
        self,
        chunk: Chunk,
        shared: SharedMemory,
        globe: GlobalMemory,
        maps: TensorMaps,
        mbarriers: Mbarriers,
        tokens: Tokens,
        lands: str,
    ) -> None:
        self.chunk = chunk
        self.shared = shared
        self.globe = globe
        self.maps = maps
        self.mbarriers = mbarriers
        self.tokens = tokens
        self.lands = lands
        self.queue: list[_Load] = []

    # -- instructions ------------------------------------------------------------------------------------

    def load(self, active: Active, target: Any, source: Any, size: Any, barrier: Any, blocks: Any, site: int) -> None:
        """``cp.async.bulk`` from global memory. ``blocks``: the mask of a multicast, or None."""
        target, source, size, barrier = (active.spread(x) for x in (target, source, size, barrier))
        check_alignment(target, source, size, site)
        for value in np.unique(size):
            which = np.flatnonzero(size == value)
            part = Active(self.chunk, active.threads[which])
            pieces = chunks_of(source[which], int(value))
            rows = self.globe.load_rows(repeated(part, pieces.shape[1]), pieces.reshape(-1), UNIT, site)
            places = chunks_of(target[which], int(value))
            masks = None if blocks is None else active.spread(blocks)[which]
            self._send(part, places, rows.reshape(len(which), -1), barrier[which], masks, site)

    def tensor_load(
        self,
        active: Active,
        target: Any,
        tensor_map: Any,
        corner: tuple[Any, ...],
        barrier: Any,
        blocks: Any,
        site: int,
    ) -> None:
        """``cp.async.bulk.tensor`` to shared memory, in mode tile. ``corner``: coordinates, innermost first."""
        target, barrier = active.spread(target).astype(np.int64), active.spread(barrier)
        corners = np.stack([active.spread(x).astype(np.int64) for x in corner], axis=1)
        if boxes.misaligned(target).any():
            address = int(target[np.argmax(boxes.misaligned(target))]) & RANK_MASK
            need = f"a tensor copy needs a shared address aligned to {boxes.SHARED_ALIGNMENT_BYTES} bytes"
            raise Fault("misaligned", f"{need}, this one is {address:#x}", site)
        for mapped in self.maps.find(active, tensor_map, len(corner), site):
            which = mapped.which
            rows = self.maps.load(mapped, corners[which], site)
            places = boxes.shared_addresses(mapped.tensor, target[which])
            masks = None if blocks is None else active.spread(blocks)[which]
            self._send(mapped.active, places, rows, barrier[which], masks, site)

    def copy_shared(
        self,
        active: Active,
        target: Any,
        source: Any,
        size: Any,
        barrier: Any,
        reduces: tuple[str, str] | None,
        site: int,
    ) -> None:
        """From this block's shared memory to another block's of the cluster."""
        target, source, size, barrier = (active.spread(x) for x in (target, source, size, barrier))
        check_alignment(target, source, size, site)
        if reduces is not None:
            reductions.check(*reduces, reductions.BULK_SHARED)
        for value in np.unique(size):
            which = np.flatnonzero(size == value)
            part = Active(self.chunk, active.threads[which])
            count = int(value) // UNIT
            wide, places = repeated(part, count), chunks_of(source[which], int(value))
            linear = self.shared.linear(wide, places.reshape(-1), UNIT, site, "read")
            token = self.tokens.new()
            if self.shared.shadow is not None:
                self.shared.shadow.async_read(wide.threads, linear, UNIT, site, token)
            source_chunks = linear.reshape(len(which), count)
            targets = chunks_of(target[which], int(value))
            self._begin(part, targets, None, barrier[which], site, source_chunks, token, reduces)

    # -- on their way ------------------------------------------------------------------------------------

    def _send(self, active: Active, places: Array, rows: Array, barrier: Array, masks: Array | None, site: int) -> None:
        """To the block that the address names, or to those of a multicast."""
        if masks is None:
            self._begin(active, places, rows, barrier, site)
            return
        for mask in np.unique(masks):
            which = np.flatnonzero(masks == mask)
            found = bulk.multicast(int(mask) & 0xFFFF, self.chunk.geometry.cluster_size)
            if found.strays:
                raise Fault("bad_multicast", f"the cluster has no block {found.strays[0]}", site)
            part = Active(self.chunk, active.threads[which])
            for rank in found.ranks:
                there = 0 if not self.shared.has_clusters else (rank + 1) << RANK_BITS
                at, signal = (places[which] & RANK_MASK) | there, (barrier[which].astype(np.int64) & RANK_MASK) | there
                self._begin(part, at, rows[which], signal, site)

    def _begin(
        self,
        active: Active,
        places: Array,
        rows: Array | None,
        barrier: Array,
        site: int,
        source: Array | None = None,
        token: int | None = None,
        reduces: tuple[str, str] | None = None,
    ) -> None:
        count = places.shape[1]
        if not count:
            return
        wide = repeated(active, count)
        linear = self.shared.linear(wide, places.reshape(-1), UNIT, site, "write", signals=True)
        linear = np.broadcast_to(linear, (wide.count,))
        if self.shared.shadow is not None:
            self.shared.shadow.issue(wide.threads, linear, UNIT, site)
        if self.lands == "eager" and rows is not None:
            self.shared.write_rows(linear, rows.reshape(-1, UNIT))
        elif reduces is None:
            self.shared.poison(linear, UNIT)
        whole = linear.reshape(active.count, count)
        for offset, slots, which in self.mbarriers.require(active, barrier, site):
            all_slots = slots
            if which is not None:  # these slots are those of some of the threads only
                all_slots = np.zeros(active.count, np.int64)
                all_slots[which] = slots
            one = _Load(active.threads, all_slots, offset, whole, count * UNIT, site, rows, source, token, reduces)
            self.queue.append(one if which is None else one.cut(which))

    def land_wanted(self) -> bool:
        """Land what somebody waits for; whether there was anything."""
        has_landed = False
        kept: list[_Load] = []
        for load in self.queue:
            wanted = self.mbarriers.places[load.offset].wanted[load.slots]
            if not wanted.any():
                kept.append(load)
                continue
            has_landed = True
            if not wanted.all():
                kept.append(load.cut(~wanted))
                load = load.cut(wanted)
            self._land(load)
        self.queue = kept
        return has_landed

    def _land(self, load: _Load) -> None:
        linear = load.linear.reshape(-1)
        shadow, clock = self.shared.shadow, self.mbarriers.places[load.offset].clock
        self.shared.write_rows(linear, self._bytes(load))
        if shadow is not None:
            if clock is not None:
                slots = np.repeat(load.slots, load.linear.shape[1])
                shadow.land_async(slots, linear, UNIT, load.site, clock)
            if load.token is not None:
                shadow.retire([load.token], load.threads)
        self.mbarriers.landed(load.threads, load.offset, load.slots, load.size_bytes, load.site)

    def _bytes(self, load: _Load) -> Array:
        """uint8[chunks of all copies, 16]."""
        if load.source is None:
            assert load.rows is not None
            return load.rows.reshape(-1, UNIT)
        new = self.shared.read_rows(load.source.reshape(-1), UNIT)
        if load.reduces is None:
            return new
        return reductions.combine(self.shared.read_rows(load.linear.reshape(-1), UNIT), new, *load.reduces)
