"""Checks of a global buffer that nobody has filled: reads before writes, and bytes that two thread blocks write."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.emulator.checks.reports import Detail, Reporter

IntArray = npt.NDArray[np.int64]


class GlobalShadow:
    """Which bytes of one buffer have been written, and by which block.

    Args:
        name: of the buffer, for reports. size_bytes: of the buffer.
        owner_granule_bytes: smallest store to it, to see blocks that write the same bytes; None: that is not checked.

    In all methods ``offsets`` is int64[n], bytes from the start of the buffer, in bounds; ``size`` the bytes of each
    access; ``blocks`` and ``threads`` int64[n], the number of the block and the linear thread index in it.
    """

    def __init__(self, name: str, size_bytes: int, reporter: Reporter, owner_granule_bytes: int | None = None) -> None:
        self._name = name
        self._reporter = reporter
        self._written = np.zeros(-(-size_bytes // 16) * 16, np.uint8)
        self._granule = owner_granule_bytes
        granules = -(-size_bytes // owner_granule_bytes) if owner_granule_bytes else 0
        self._owner = np.full(granules, -1, np.int32)

    def fill(self) -> None:
        """The host has filled it after all."""
        self._written[:] = 1

    def write(self, offsets: IntArray, size: int, site: int, blocks: IntArray, threads: IntArray) -> None:
        """Plain stores."""
        rows, row_bytes = self._rows(offsets, size)
        self._written.reshape(-1, row_bytes)[rows] = 1
        if self._granule is None:
            return
        granules = offsets[:, None] // self._granule + np.arange(max(1, size // self._granule))
        owner = self._owner[granules]
        strange = (owner >= 0) & (owner != blocks[:, None])
        self._owner[granules] = blocks[:, None]
        # Two blocks in this very call: the last one is the owner now, the others see that they are not.
        strange |= self._owner[granules] != blocks[:, None]
        if strange.any():
            self._report("overlapping_blocks", strange.any(axis=1), offsets, size, site, blocks, threads)

    def atomic(self, offsets: IntArray, size: int) -> None:
        """Atomics and reductions: they may meet, and belong to nobody."""
        rows, row_bytes = self._rows(offsets, size)
        self._written.reshape(-1, row_bytes)[rows] = 1

    def read(self, offsets: IntArray, size: int, site: int, blocks: IntArray, threads: IntArray) -> None:
        """Loads, and atomics before they write."""
        rows, row_bytes = self._rows(offsets, size)
        blank = self._written.reshape(-1, row_bytes)[rows] == 0
        if blank.any():
            bad = blank.reshape(len(offsets), -1).any(axis=1)
            self._report("uninitialised_read", bad, offsets, size, site, blocks, threads)

    def _rows(self, offsets: IntArray, size: int) -> tuple[IntArray, int]:
        """Rows of the shadow: whole ones for aligned accesses, else byte by byte, int64[n] or int64[n, size]."""
        if size in (1, 2, 4, 8, 16) and not int(np.bitwise_or.reduce(offsets, initial=0)) & (size - 1):
            return offsets // size, size
        return offsets[:, None] + np.arange(size), 1

    def _report(
        self,
        kind: str,
        bad: npt.NDArray[np.bool_],
        offsets: IntArray,
        size: int,
        site: int,
        blocks: IntArray,
        threads: IntArray,
    ) -> None:
        first = int(np.argmax(bad))

        def detail() -> Detail:
            return Detail(self._name, int(offsets[first]), size, int(blocks[first]), int(threads[first]))

        self._reporter.report(kind, site, -1, detail, int(bad.sum()))
