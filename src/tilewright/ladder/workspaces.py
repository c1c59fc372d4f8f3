"""Memory of a rung that stays on the card from call to call: zero at first, and zero again behind every launch.

So a launch needs no other one before it that clears its counters. Launches that may run at the same time must not share
it: those of one stream cannot, so each stream has its own; and a launch that is captured into a graph, which may be
replayed beside anything, keeps what it got. One captured graph that is instantiated twice must not be replayed beside
itself: of two launches with one workspace, sums may be wrong, and a block that waits for a mark may wait for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tilewright.gpu.driver import allocate, checked, fill, synchronize

ALIGNMENT_BYTES = 256
_PIECES = 16  # that are allocated together, where they are small
_BLOCK_BYTES = 1 << 26
_PER_THREAD_STREAM = 2  # CUDA Driver API, CU_STREAM_PER_THREAD: one handle, and a stream in each thread


class Workspaces:
    """The kept arrays of one rung on one card.

    Args:
        arrays: name → bytes.
    """

    def __init__(self, arrays: Mapping[str, int]) -> None:
        self._offsets: dict[str, int] = {}
        end = 0
        for name, count_bytes in arrays.items():
            self._offsets[name] = end
            end += -(-count_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._piece_bytes = end
        self._free: list[int] = []
        self._of_stream: dict[tuple[int, int], dict[str, int]] = {}
        self._lock = threading.Lock()

    def at(self, stream: int) -> Mapping[str, int]:
        """Addresses by name, for the next launch on a stream of the current card.

        Raises:
            DeviceError: there is no memory.
        """
        if _is_captured(stream):
            return self._taken()
        key = (stream, threading.get_ident() if stream == _PER_THREAD_STREAM else 0)
        found = self._of_stream.get(key)
        if found is None:
            found = self._of_stream[key] = self._taken()
        return found

    def _taken(self) -> dict[str, int]:
        with self._lock:
            if not self._free:
                pieces = max(1, min(_PIECES, _BLOCK_BYTES // self._piece_bytes))
                base = _zeros(pieces * self._piece_bytes)
                self._free = [base + i * self._piece_bytes for i in range(pieces)]
            base = self._free.pop()
        return {name: base + offset for name, offset in self._offsets.items()}


def _is_captured(stream: int) -> bool:
    from cuda.bindings import driver

    if not stream:
        return False  # the default stream cannot be captured
    return bool(
        checked(driver.cuStreamIsCapturing(stream)) != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    )


def _zeros(count_bytes: int) -> int:
    """New memory, zero already, even while a stream is captured: nothing of this becomes a part of the graph."""
    from cuda.bindings import driver

    with _relaxed():
        base = allocate(count_bytes)
        own = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        fill(base, 0, count_bytes, own)
        synchronize(own)
        checked(driver.cuStreamDestroy(own))
    return base


@contextmanager
def _relaxed() -> Iterator[None]:
    """Capturing forbids allocations unless they are said to be no part of it."""
    from cuda.bindings import driver

    before = checked(
        driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    )
    try:
        yield
    finally:
        checked(driver.cuThreadExchangeStreamCaptureMode(before))
