"""Who looks on while a kernel runs: the hazard checks and the counters, each present or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.emulator.checks.reports import Detail, Reporter
from tilewright.emulator.machine.chunk import Active, Array, Chunk

if TYPE_CHECKING:
    from tilewright.emulator.checks.shared_shadow import SharedShadow
    from tilewright.emulator.layout import SharedLayout
    from tilewright.emulator.machine.presence import Presence
    from tilewright.emulator.machine.tally import Tally


class Watch:
    """Attributes:

    shadow: of the chunk's shared memory; None where checks are off.
    tally: of memory traffic; None where counters are off.
    presence: who knows that the blocks of its cluster have begun; None where there are no clusters, or no checks.
    layout: of shared memory, for names.
    """

    def __init__(self, chunk: Chunk, reporter: Reporter, shadow: SharedShadow | None, tally: Tally | None) -> None:
        self.chunk = chunk
        self.reporter = reporter
        self.shadow = shadow
        self.tally = tally
        self.presence: Presence | None = None
        self.layout: SharedLayout | None = None

    def shared_access(
        self,
        active: Active,
        linear: Array,
        size: int,
        site: int,
        what: str,
        unchanged: Callable[[], Array] | None = None,
    ) -> None:
        """``unchanged``: of a store, which threads leave their bytes as they are (bool per thread)."""
        if self.tally is not None:
            self.tally.shared(active, linear, size, site, what)
        if self.shadow is not None:
            if what == "read":
                self.shadow.read(active.threads, linear, size, site)
            else:
                self.shadow.write(active.threads, linear, size, site, unchanged)

    def global_access(self, active: Active, address: Any, size: int, site: int, what: str) -> None:
        if self.tally is not None:
            self.tally.globe(active, address, size, site, what)

    def converge(self, active: Active) -> None:
        """A warp-collective instruction orders the lanes of each warp."""
        if self.shadow is not None:
            self.shadow.converge(active.threads)
        if self.presence is not None:
            self.presence.converge(active.threads)

    def barrier(self, arriving: Array, waiting: Array) -> None:
        """What the arriving threads of a block have done is before what the waiting ones do."""
        if self.shadow is not None:
            self.shadow.barrier(arriving, waiting)
        if self.presence is not None:
            self.presence.meet(arriving, waiting)

    def barrier_all(self) -> None:
        """A barrier that every thread of every block takes part in."""
        if self.shadow is not None:
            self.shadow.barrier_all()
        if self.presence is not None:
            self.presence.meet(self.chunk.all_threads, self.chunk.all_threads)

    def overhear(self, active: Active) -> None:
        """They may learn by it what other threads of their block know."""
        if self.presence is not None:
            self.presence.overhear(active.threads)

    def strong_access(self, active: Active, linear: Array, size: int, site: int, what: str) -> None:
        """A volatile or relaxed access to shared memory."""
        if self.tally is not None:
            self.tally.shared(active, linear, size, site, what)
        if self.shadow is not None:
            access = self.shadow.strong_read if what == "read" else self.shadow.strong_write
            access(active.threads, linear, size, site)
        self.overhear(active)

    def fence(self, active: Active) -> None:
        """With strong accesses on both sides it orders threads."""
        if self.shadow is not None:
            self.shadow.fence(active.threads)

    def proxy_fence(self, active: Active) -> None:
        """What the threads know is shown to the asynchronous proxy."""
        if self.shadow is not None:
            self.shadow.proxy_fence(active.threads)

    # -- reports -----------------------------------------------------------------------------------------

    def report(
        self,
        kind: str,
        site: int,
        active: Active,
        which: int,
        symbol: str,
        offset: int,
        size: int,
        note: str = "",
        other_site: int = -1,
    ) -> None:
        """One finding; ``which`` counts within ``active``."""
        thread = int(active.threads[which])
        block, tid = self._who(thread)
        self.reporter.report(kind, site, other_site, lambda: Detail(symbol, offset, size, block, tid, -1, note))

    def _who(self, thread: int) -> tuple[int, int]:
        """Linear block index in the grid, and linear thread index in the block."""
        return int(self.chunk.block_ids[self.chunk.slot_of[thread]]), int(self.chunk.tid[thread])

    def out_of_bounds(
        self, active: Active, bad: Array, offset: Array, size: int, site: int, what: str, name: str, limit: int
    ) -> None:
        """``name`` "": the address lies in no buffer, and ``offset`` is the address itself."""
        at = int(np.flatnonzero(bad)[0])
        symbol = f"{name} ({limit:,} bytes)" if name else "no buffer"
        self.report(f"out_of_bounds_{what}", site, active, at, symbol, int(offset[at]), size)

    def input_modified(self, active: Active, offset: Array, size: int, site: int, name: str) -> None:
        self.report("input_modified", site, active, 0, name, int(offset[0]), size)

    def remote(self, kind: str, active: Active, which: int, offset: int, site: int) -> None:
        """The shared memory of another block, at an offset, when that block may not be there."""
        if self.layout is not None:
            symbol = self.layout.nearest(offset)
            self.report(kind, site, active, which, symbol.name, offset - symbol.offset, 0)

    def between_blocks(
        self, kind: str, active: Active, bad: Array, offset: Array, size: int, site: int, name: str
    ) -> None:
        """Blocks that nothing orders, at one place of global memory."""
        at = int(np.flatnonzero(bad)[0])
        self.report(kind, site, active, at, name, int(offset[at]), size)

    def global_uninitialised(self, active: Active, bad: Array, offset: Array, size: int, site: int, name: str) -> None:
        at = int(np.flatnonzero(bad)[0])
        self.report("uninitialised_read", site, active, at, name, int(offset[at]), size)

    def barrier_divergence(self, site: int, other_site: int, thread: int) -> None:
        block, tid = self._who(thread)
        self.reporter.report(
            "barrier_divergence", site, other_site, lambda: Detail("barrier", 0, 0, block, tid, tid // 32)
        )

    def deadlock(self, site: int, thread: int, count: int, what: str, note: str = "") -> None:
        block, tid = self._who(thread)
        self.reporter.report("deadlock", site, -1, lambda: Detail(what, 0, count, block, tid, -1, note))

    def standstill(self, site: int, thread: int, count: int) -> None:
        """Threads that look at memory for ever."""
        block, tid = self._who(thread)
        self.reporter.report("deadlock", site, -1, lambda: Detail("", 0, count, block, tid))

    def told(self, thread: int, count: int) -> str:
        """Who waits."""
        block, tid = self._who(thread)
        return f"thread {tid} of block {block}{f' and {count - 1:,} more wait' if count > 1 else ' waits'}"
