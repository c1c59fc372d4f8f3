"""What a launch executed: instructions by class, FLOPs, bytes, and memory traffic by source line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.emulator.counters.banks import bank_conflicts
from tilewright.emulator.counters.operations import classify, operations
from tilewright.emulator.counters.sectors import sectors
from tilewright.emulator.counters.warps import by_warp
from tilewright.ptx.module import Instruction

IntArray = npt.NDArray[np.int64]
ROWS_AT_ONCE = 4096  # of 32 addresses: 1 MiB


@dataclass(frozen=True, slots=True)
class LineTraffic:
    """Memory traffic of one source line; fractions where it is a share (``Counters.per_tile``).

    Attributes:
        requests: of warps, to global memory. sectors: of 32 bytes, that they touched. ideal_sectors: that would do.
        wavefronts: of accesses to shared memory. ideal_wavefronts: without bank conflicts.
        bytes: that lanes asked for, of both.
    """

    requests: float = 0
    sectors: float = 0
    ideal_sectors: float = 0
    wavefronts: float = 0
    ideal_wavefronts: float = 0
    bytes: float = 0

    def plus(self, other: LineTraffic) -> LineTraffic:
        return LineTraffic(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, factor: float) -> LineTraffic:
        return LineTraffic(*(getattr(self, f.name) * factor for f in fields(self)))


@dataclass(frozen=True)
class Counters:
    """What a launch, or the share of it that was looked at, executed.

    Attributes:
        lines: source line (None: unknown) → traffic.
        mix: class (``fp32``, ``integer``, ``load_shared``, ``tensor``, …) → thread-instructions.
        thread_instructions: of all classes.
        operations: kind (``fp32``, ``tensor_f16``, ``tensor_s8``, …) → FLOPs, or integer operations of tensor cores;
            a multiply-add counts as two.
        global_bytes_read, global_bytes_written, shared_bytes: that lanes asked for.
    """

    lines: Mapping[int | None, LineTraffic] = field(default_factory=dict)
    mix: Mapping[str, float] = field(default_factory=dict)
    thread_instructions: float = 0
    operations: Mapping[str, float] = field(default_factory=dict)
    global_bytes_read: float = 0
    global_bytes_written: float = 0
    shared_bytes: float = 0

    @property
    def flops(self) -> float:
        """Floating-point operations, on tensor cores too."""
        return sum(n for kind, n in self.operations.items() if not kind.startswith(_INTEGER_KINDS))

    def times(self, factor: float) -> Counters:
        """Scaled: from a sample of blocks to the launch."""
        return Counters(
            {line: traffic.times(factor) for line, traffic in self.lines.items()},
            {name: n * factor for name, n in self.mix.items()},
            self.thread_instructions * factor,
            {kind: n * factor for kind, n in self.operations.items()},
            self.global_bytes_read * factor,
            self.global_bytes_written * factor,
            self.shared_bytes * factor,
        )

    def per_tile(self, tiles: int) -> Counters:
        """The share of one of ``tiles`` tiles. Raises ValueError unless ``tiles`` is positive."""
        if tiles < 1:
            raise ValueError(f"a share of {tiles} tiles")
        return self.times(1 / tiles)


_INTEGER_KINDS = ("tensor_s", "tensor_u", "tensor_b1")


class _Kind(NamedTuple):
    """Accesses that are counted together."""

    key: int | None
    size: int
    is_shared: bool
    copies: int
    is_load: bool = False


class CounterSheet:
    """Gathers counters while a kernel runs.

    Accesses come with a key: their source line, or what ``counters`` turns into one, such as an instruction's index.
    """

    def __init__(self) -> None:
        self._lines: dict[int | None, LineTraffic] = defaultdict(LineTraffic)
        self._mix: Counter[str] = Counter()
        self._operations: Counter[str] = Counter()
        self._global = {True: 0, False: 0}
        self._shared = 0
        self._rows: dict[_Kind, list[tuple[IntArray, npt.NDArray[np.bool_]]]] = defaultdict(list)
        self._kept: Counter[_Kind] = Counter()

    def global_access(
        self, key: int | None, threads: IntArray, addresses: IntArray, size: int, is_write: bool, copies: int = 1
    ) -> None:
        """An access of ``size`` bytes by each thread (int64[n], ascending) of ``copies`` like blocks."""
        self._global[is_write] += len(threads) * size * copies
        self._keep(_Kind(key, size, False, copies), threads, addresses)

    def shared_access(
        self, key: int | None, threads: IntArray, offsets: IntArray, size: int, copies: int = 1, is_load: bool = False
    ) -> None:
        """``offsets``: bytes from the start of the block's shared memory (or from any multiple of 128 before it).

        ``is_load``: an ordinary load, whose phases may merge (`bank_conflicts`).
        """
        self._shared += len(threads) * size * copies
        self._keep(_Kind(key, size, True, copies, is_load), threads, offsets)

    def _keep(self, kind: _Kind, threads: IntArray, addresses: IntArray) -> None:
        total = len(threads) * kind.size * kind.copies
        self._lines[kind.key] = self._lines[kind.key].plus(LineTraffic(bytes=total))
        rows = self._rows[kind]
        rows.append(by_warp(threads, addresses.copy()))  # registers are written in place
        self._kept[kind] += len(rows[-1][0])
        if self._kept[kind] > ROWS_AT_ONCE:
            self._count(kind)

    def _count(self, kind: _Kind) -> None:
        """Many accesses at once: one by one they are too small for NumPy."""
        rows = self._rows.pop(kind)
        self._kept[kind] = 0
        addresses, active = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        if kind.is_shared:
            wavefronts, ideal = bank_conflicts(addresses, active, kind.size, kind.is_load)
            traffic = LineTraffic(wavefronts=int(wavefronts.sum()), ideal_wavefronts=int(ideal.sum()))
        else:
            requests, touched, best = sectors(addresses, active, kind.size)
            traffic = LineTraffic(int(requests.sum()), int(touched.sum()), int(best.sum()))
        self._lines[kind.key] = self._lines[kind.key].plus(traffic.times(kind.copies))

    def bulk_access(self, key: int | None, traffic: LineTraffic, is_write: bool) -> None:
        """Copies of global memory that one thread begins."""
        self._global[is_write] += int(traffic.bytes)
        self._lines[key] = self._lines[key].plus(traffic)

    def global_bytes(self, key: int | None, count: int, is_write: bool) -> None:
        """Bytes that belong to requests which are counted elsewhere."""
        self._global[is_write] += count
        self._lines[key] = self._lines[key].plus(LineTraffic(bytes=count))

    def executed(self, instructions: Iterable[Instruction], threads: int) -> None:
        """A basic block that ``threads`` threads have run through in all."""
        for instruction in instructions:
            self._mix[classify(instruction)] += threads
            for kind, each in operations(instruction).items():
                self._operations[kind] += each * threads

    def counters(self, line_of: Callable[[int | None], int | None] = lambda key: key) -> Counters:
        """What was gathered. ``line_of``: the source line of a key, where the accesses came with other keys."""
        for kind in list(self._rows):
            self._count(kind)
        lines: dict[int | None, LineTraffic] = defaultdict(LineTraffic)
        for key, traffic in self._lines.items():
            lines[line_of(key)] = lines[line_of(key)].plus(traffic)
        return Counters(
            dict(lines),
            dict(self._mix),
            sum(self._mix.values()),
            dict(self._operations),
            self._global[False],
            self._global[True],
            self._shared,
        )
