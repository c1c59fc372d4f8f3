"""Bulk copies out of shared memory: ``cp.async.bulk`` and TMA stores, and reductions, in groups of the thread.

They read their source as late as they may, when their group is waited for, and write it then: what a kernel puts into
the source too early is what arrives, and what somebody reads too early is old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.bulk_copies import UNIT, Tokens, check_alignment, chunks_of, repeated
from tilewright.emulator.machine.chunk import Active, Array, Chunk
from tilewright.emulator.machine.global_memory import GlobalMemory
from tilewright.emulator.machine.shared_memory import SharedMemory
from tilewright.emulator.machine.tensor_maps import Mapped, TensorMaps
from tilewright.emulator.tensor import boxes, reductions

# (threads, which copies of the instruction, their bytes) → written
Writer = Callable[[Active, Array, Array], None]


@dataclass
class _Store:
    """Copies of one instruction.

    Attributes:
        threads: int64[n]; group: of the thread, int64[n]. which: int64[n], numbers within the instruction.
        linear: of the source's chunks, int64[n, chunks].
        rows: what was read, uint8[n, bytes]; None before.
    """

    threads: Array
    group: Array
    which: Array
    linear: Array
    site: int
    token: int
    write: Writer
    rows: Array | None = None

    def cut(self, mask: Array) -> _Store:
        rows = None if self.rows is None else self.rows[mask]
        return _Store(
            self.threads[mask],
            self.group[mask],
            self.which[mask],
            self.linear[mask],
            self.site,
            self.token,
            self.write,
            rows,
        )


class BulkStores:
    def __init__(
        self, chunk: Chunk, shared: SharedMemory, globe: GlobalMemory, maps: TensorMaps, tokens: Tokens
    ) -> None:
        self.chunk = chunk
        self.shared = shared
        self.globe = globe
        self.maps = maps
        self.tokens = tokens
        self.queue: list[_Store] = []
        self._committed = np.zeros(chunk.threads, np.int64)  # groups of each thread

    # -- instructions ------------------------------------------------------------------------------------

    def store(
        self, active: Active, target: Any, source: Any, size: Any, reduces: tuple[str, str] | None, site: int
    ) -> None:
        """``cp.async.bulk`` to global memory; ``reduces``: (operation, element) of ``cp.reduce.async.bulk``."""
        target, source, size = (active.spread(x) for x in (target, source, size))
        check_alignment(target, source, size, site)
        if reduces is not None:
            reductions.check(*reduces, reductions.BULK_GLOBAL)
        for value in np.unique(size):
            which = np.flatnonzero(size == value)
            part = Active(self.chunk, active.threads[which])
            pieces = chunks_of(target[which], int(value))

            def write(threads: Active, chosen: Array, rows: Array, pieces: Array = pieces) -> None:
                wide = repeated(threads, pieces.shape[1])
                self._write(wide, pieces[chosen].reshape(-1), rows.reshape(-1, UNIT), reduces, site)

            self._begin(part, chunks_of(source[which], int(value)), write, site)

    def tensor_store(
        self, active: Active, tensor_map: Any, corner: tuple[Any, ...], source: Any, operation: str, site: int
    ) -> None:
        """``cp.async.bulk.tensor`` to global memory, in mode tile; ``operation``: of a reduction, or ""."""
        source = active.spread(source).astype(np.int64)
        corners = np.stack([active.spread(x).astype(np.int64) for x in corner], axis=1)
        if boxes.misaligned(source).any():
            need = f"a tensor copy needs a shared address aligned to {boxes.SHARED_ALIGNMENT_BYTES} bytes"
            raise Fault("misaligned", f"{need}, this one is {int(source[0]):#x}", site)
        for mapped in self.maps.find(active, tensor_map, len(corner), site):
            mine = corners[mapped.which]

            def write(threads: Active, chosen: Array, rows: Array, mapped: Mapped = mapped, mine: Array = mine) -> None:
                part = Mapped(mapped.tensor, mapped.buffer, threads, chosen)
                self.maps.store(part, mine[chosen], rows, operation, site)

            self._begin(mapped.active, boxes.shared_addresses(mapped.tensor, source[mapped.which]), write, site)

    def commit(self, active: Active) -> None:
        self._committed[active.threads] += 1

    def wait(self, active: Active, newest: int, reads_only: bool) -> None:
        """At most ``newest`` groups of these threads go on; of the others the source is read, or all is done."""
        if not self.queue:
            return
        here = np.zeros(self.chunk.threads, bool)
        here[active.threads] = True
        kept: list[_Store] = []
        for store in self.queue:
            done = here[store.threads] & (store.group < self._committed[store.threads] - newest)
            if not done.any():
                kept.append(store)
                continue
            if not done.all():
                kept.append(store.cut(~done))
                store = store.cut(done)
            self._read(store)
            if reads_only:
                kept.append(store)
            else:
                self._finish(store)
        self.queue = kept

    def finish(self) -> None:
        """The kernel ends: all is written; a source that nobody waited for may be gone before it was read."""
        for store in self.queue:
            if store.rows is None:
                watch, layout = self.shared.watch, self.shared.layout
                offset = int(store.linear.flat[0]) % self.shared.smem_bytes
                symbol = layout.nearest(offset)
                size = store.linear.shape[1] * UNIT
                active = Active(self.chunk, store.threads)
                watch.report("copy_never_waited", store.site, active, 0, symbol.name, offset - symbol.offset, size)
                self._read(store)
            self._finish(store)
        self.queue = []

    # -- within ------------------------------------------------------------------------------------------

    def _begin(self, active: Active, places: Array, write: Writer, site: int) -> None:
        count = places.shape[1]
        if not count:
            return
        wide = repeated(active, count)
        linear = self.shared.linear(wide, places.reshape(-1), UNIT, site, "read")
        linear = np.broadcast_to(linear, (wide.count,))
        token = self.tokens.new()
        if self.shared.shadow is not None:
            self.shared.shadow.async_read(wide.threads, linear, UNIT, site, token)
        which, group = np.arange(active.count), self._committed[active.threads]
        self.queue.append(_Store(active.threads, group, which, linear.reshape(-1, count), site, token, write))

    def _read(self, store: _Store) -> None:
        if store.rows is not None:
            return
        store.rows = self.shared.read_rows(store.linear.reshape(-1), UNIT).reshape(len(store.threads), -1)
        if self.shared.shadow is not None:
            self.shared.shadow.retire([store.token], store.threads)

    def _finish(self, store: _Store) -> None:
        assert store.rows is not None
        store.write(Active(self.chunk, store.threads), store.which, store.rows)

    def _write(self, active: Active, target: Array, rows: Array, reduces: tuple[str, str] | None, site: int) -> None:
        if reduces is not None:
            # One copy after the other: several may add to one place.
            for at in range(len(target)):
                one = Active(self.chunk, active.threads[at : at + 1])
                old = self.globe.load_rows(one, target[at : at + 1], UNIT, site)
                self.globe.store_rows(
                    one, target[at : at + 1], reductions.combine(old, rows[at : at + 1], *reduces), site
                )
            return
        self.globe.store_rows(active, target, rows, site)
