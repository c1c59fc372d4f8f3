"""The machine that generated code runs on: one chunk of thread blocks with all of its memories and units."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.compiled import CompiledKernel
from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.async_stores import AsyncStores
from tilewright.emulator.machine.atomics import Atomics
from tilewright.emulator.machine.barriers import BlockBarriers
from tilewright.emulator.machine.bulk_copies import BulkCopies, Tokens
from tilewright.emulator.machine.bulk_stores import BulkStores
from tilewright.emulator.machine.chunk import Active, Chunk
from tilewright.emulator.machine.clusters import Clusters
from tilewright.emulator.machine.copies import AsyncCopies
from tilewright.emulator.machine.departures import Departures
from tilewright.emulator.machine.generic_memory import GenericMemory
from tilewright.emulator.machine.global_memory import GlobalMemory
from tilewright.emulator.machine.local_memory import LOCAL_POISONS, LocalMemory
from tilewright.emulator.machine.matrices import Matrices
from tilewright.emulator.machine.mbarriers import Mbarriers
from tilewright.emulator.machine.presence import Presence
from tilewright.emulator.machine.shared_memory import SharedMemory
from tilewright.emulator.machine.tensor_maps import TensorMaps
from tilewright.emulator.machine.warpgroups import Warpgroups
from tilewright.emulator.machine.warps import Warps
from tilewright.emulator.machine.watch import Watch


class Machine:
    def __init__(
        self,
        kernel: CompiledKernel,
        chunk: Chunk,
        globe: GlobalMemory,
        params: bytes,
        watch: Watch,
        lands: str,
        random: np.random.Generator | None,
        local_poison: int = LOCAL_POISONS[0],
    ) -> None:
        self.kernel = kernel
        self.chunk = chunk
        self.watch = watch
        self.globe = globe
        self.shared = SharedMemory(chunk, kernel.layout.shared, watch)
        self.local = LocalMemory(chunk, kernel.layout.local_bytes, local_poison)
        self.generic = GenericMemory(globe, self.shared, self.local)
        watch.layout = kernel.layout.shared
        if chunk.geometry.cluster_size > 1 and watch.shadow is not None:
            watch.presence = Presence(chunk)
        self.warps = Warps(watch)
        self.atomics = Atomics(self.generic, random)
        self.clusters = Clusters(chunk, watch)
        self.departures = Departures(chunk, self.clusters, kernel.layout.shared, watch)
        self.shared.departures = self.departures
        self.mbarriers = Mbarriers(chunk, self.shared, watch, self.departures)
        self.copies = AsyncCopies(chunk, self.shared, globe, self.mbarriers, lands)
        self.async_stores = AsyncStores(chunk, self.shared, self.mbarriers, lands)
        tokens, maps = Tokens(), TensorMaps(globe)
        self.bulk = BulkCopies(chunk, self.shared, globe, maps, self.mbarriers, tokens, lands)
        self.stores = BulkStores(chunk, self.shared, globe, maps, tokens)
        self.warpgroups = Warpgroups(chunk, self.shared, watch, tokens, self.warps)
        self.matrices = Matrices(self.warps, self.shared, self.generic)
        self.barriers = BlockBarriers(chunk, watch)
        self.is_deadlocked = False
        self._params = params
        self._scalars: dict[tuple[int, str], np.generic] = {}
        self._ticks = 0

    def param(self, offset: int, dtype: str) -> np.generic:
        """A kernel parameter."""
        found = self._scalars.get((offset, dtype))
        if found is None:
            found = self._scalars[offset, dtype] = np.frombuffer(self._params, dtype, 1, offset)[0]
        return found

    def clock(self, dtype: str) -> np.generic:
        """A counter that only grows."""
        self._ticks += 1
        return np.dtype(dtype).type(self._ticks)  # type: ignore[no-any-return]

    def trap(self, active: Active, what: str, site: int) -> None:
        thread = int(active.threads[0])
        who = f"thread {int(self.chunk.tid[thread])} of block {int(self.chunk.block_ids[self.chunk.slot_of[thread]])}"
        message = f"an assertion fails in {who}" if what == "assert" else f"{who} runs into {what}"
        raise Fault("trap", message, site)

    def hear(self, active: Active) -> None:
        """They read words of global memory through which blocks may agree."""
        if self.watch.presence is not None:
            self.watch.presence.learn(active.threads)

    def land_some(self) -> bool:
        """Let asynchronous copies that somebody waits for land; whether any did."""
        return self.bulk.land_wanted() | self.copies.land_wanted() | self.async_stores.land_wanted()

    def finish(self) -> None:
        """What must be in order when all threads have ended."""
        if self.is_deadlocked:
            return
        self.stores.finish()
        self.departures.finish()
        if self.watch.shadow is not None:
            self.watch.shadow.finish()
