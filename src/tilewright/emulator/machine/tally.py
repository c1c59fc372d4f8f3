"""Memory traffic by instruction while a kernel runs."""

from __future__ import annotations

from typing import Any

from tilewright.emulator.machine.chunk import Active, Array


class Tally:
    def shared(self, active: Active, linear: Array, size: int, site: int, what: str) -> None:
        """An access to shared memory."""

    def globe(self, active: Active, address: Any, size: int, site: int, what: str) -> None:
        """An access to global memory."""
