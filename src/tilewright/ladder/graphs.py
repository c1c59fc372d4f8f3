"""Times of calls that were captured in CUDA graphs: nothing of the host is in them.

Small data: a graph of several calls, one behind the other, their data in the L2; it runs once untimed, which also keeps
the card busy while the host puts the timed one on the stream. Large data: a graph of one call, behind an overwrite of
the whole L2, which does the same. All contenders are timed in the same way, on the same stream; one that cannot be
captured, or must not be (the driver's copy of large data), is called by the host instead.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from tilewright.gpu.stopwatch import LEAST_FLUSH_BYTES
from tilewright.ladder.comparing import Contender, sentence
from tilewright.ladder.yardstick import Copy, copies

# A graph should run that long: what the host needs to put two events and a graph on a stream is hidden by it.
GRAPH_US = 150.0
MOST_CALLS = 64
# Nor longer than that: a peer whose call took 10 ms held the card for a minute. A call from the host is far below.
MOST_GRAPH_US = 30_000.0
RATE_BYTES = 1 << 30  # that the card's rate is measured by
_WARM_UP = 2
_HOST_CALLS, _HOST_BATCHES = 20, 5


@dataclass(frozen=True)
class Protocol:
    """``calls`` in a graph, or one call from a cold L2."""

    is_cold: bool
    calls: int


def protocol_for(total_bytes: float, expected_us: float, l2_bytes: int) -> Protocol:
    """How sizes are timed: what fits into half of the L2 stays there from call to call.

    Args:
        total_bytes: unique ones of a call. expected_us: of a call, at the least.
    """
    if total_bytes > l2_bytes / 2:
        return Protocol(True, 1)
    return Protocol(False, max(4, min(MOST_CALLS, math.ceil(GRAPH_US / max(expected_us, 1.0)))))


def calls_of(protocol: Protocol, call_us: float) -> int:
    """Calls in the graph of a contender that takes so long: fewer where that is far more than was expected of any."""
    return max(1, min(protocol.calls, math.ceil(MOST_GRAPH_US / max(call_us, 1.0))))


class GraphClock:
    """Times contenders by name; see ``measure.Clock``. A context manager.

    Attributes:
        failed: name → why it could not be captured, nor called.
        is_captured: name → whether it is a graph; one that is not is called by the host, and that is timed too.

    Args:
        stream: a ``torch.cuda.Stream`` that is the current one.
    """

    def __init__(self, torch: Any, stream: Any, contenders: Mapping[str, Contender], protocol: Protocol, flush: Any):
        self._torch, self._stream, self._protocol, self._flush = torch, stream, protocol, flush
        self._pool = torch.cuda.graph_pool_handle()
        self._runs: dict[str, Callable[[], Any]] = {}
        self._calls: dict[str, int] = {}
        self._graphs: list[Any] = []
        self.failed: dict[str, str] = {}
        self.is_captured: dict[str, bool] = {}
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for name, one in contenders.items():
            try:
                self._runs[name] = self._prepared(one)
            except Exception as error:  # whatever a foreign kernel raises is why it does not take part
                self.failed[name] = sentence(error)

    def _prepared(self, one: Contender) -> Callable[[], Any]:
        for _ in range(_WARM_UP):
            self._start.record(self._stream)
            one.call()
            self._end.record(self._stream)
        self._end.synchronize()
        calls = calls_of(self._protocol, float(self._start.elapsed_time(self._end)) * 1000.0)
        self._calls[one.name] = calls
        self.is_captured[one.name] = one.is_captured
        if not one.is_captured:
            return lambda: [one.call() for _ in range(calls)]
        graph = self._torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            for _ in range(calls):
                one.call()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one that says what happened
                graph.capture_end()
            raise
        graph.capture_end()
        self._graphs.append(graph)
        replay: Callable[[], Any] = graph.replay
        return replay

    def time_us(self, name: str) -> float:
        """Microseconds of one call."""
        run = self._runs[name]
        if self._protocol.is_cold:
            self._flush.zero_()
        else:
            run()
        self._start.record(self._stream)
        run()
        self._end.record(self._stream)
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1000.0 / self._calls[name]

    def close(self) -> None:
        """Give the graphs back, and what they allocated."""
        self._stream.synchronize()
        self._runs.clear()
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()


def flush_bytes(l2_bytes: int) -> int:
    return max(2 * l2_bytes, LEAST_FLUSH_BYTES)


def host_us(torch: Any, call: Callable[[], Any]) -> float:
    """Microseconds of the host until a call returns: the median of a few batches, the device idle before each."""
    times = []
    for _ in range(_HOST_BATCHES):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(_HOST_CALLS):
            call()
        times.append((time.perf_counter() - begin) / _HOST_CALLS * 1e6)
    torch.cuda.synchronize()
    return median(times)


def card_rates(torch: Any, stream: Any, l2_bytes: int, kernel: Copy | None = None) -> tuple[float, float]:
    """Bytes per second of the fastest device copy, read and written together, and microseconds of a launch, now.

    Args:
        kernel: a copy of ours, beside the driver's.
    """
    one = torch.ones(1, device="cuda")
    flush = torch.empty(flush_bytes(l2_bytes), dtype=torch.uint8, device="cuda")
    step = Contender("launch", "copy", lambda: one.add_(1))
    found = []
    for contenders, protocol in (
        (copies(torch, RATE_BYTES, True, kernel), Protocol(True, 1)),
        ([step], Protocol(False, MOST_CALLS)),
    ):
        clock = GraphClock(torch, stream, {c.name: c for c in contenders}, protocol, flush)
        names = [c.name for c in contenders if c.name not in clock.failed]
        found.append(min(median(clock.time_us(name) for _ in range(20)) for name in names))
        clock.close()
    return 2 * RATE_BYTES / found[0] * 1e6, found[1]
