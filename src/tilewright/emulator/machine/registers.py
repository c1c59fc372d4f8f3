"""Registers between blocks: an array over a team's threads, or one NumPy scalar while all of them agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.emulator.machine.chunk import Active, Array, Chunk


class Registers:
    def __init__(self, initial: Sequence[np.generic], threads: int) -> None:
        self.values: list[Any] = list(initial)
        self.threads = threads
        # Registers whose array nobody else holds: only those may be changed in place.
        self.owned: set[int] = set()

    def read(self, active: Active, numbers: tuple[int, ...]) -> list[Any]:
        values = self.values
        if active.local is None:
            if self.owned:
                self.owned.difference_update(numbers)  # the block may hand the same array on under another name
            return [values[i] for i in numbers]
        index = active.local
        return [v[index] if v.ndim else v for v in [values[i] for i in numbers]]

    def write(self, active: Active, numbers: tuple[int, ...], results: tuple[Any, ...]) -> None:
        values = self.values
        if active.local is None:
            for number, result in zip(numbers, results, strict=True):
                values[number] = result
            if self.owned:
                self.owned.difference_update(numbers)
            return
        for number, result in zip(numbers, results, strict=True):
            self._write_some(active, number, result)

    def _write_some(self, active: Active, number: int, result: Any) -> None:
        current = self.values[number]
        if not current.ndim:
            if not result.ndim and result == current:
                return
            current = np.full(self.threads, current)
            self.values[number] = current
            self.owned.add(number)
        elif number not in self.owned:
            current = self.values[number] = current.copy()
            self.owned.add(number)
        current[active.local] = result


class Team:
    """Threads that the scheduler runs under one tag, and their registers: all of a chunk, or a warp of each block.

    Attributes:
        size: how many. whole: all of them.
    """

    def __init__(self, chunk: Chunk, members: Array | None, initial: Sequence[np.generic]) -> None:
        self.chunk = chunk
        self.size = chunk.threads if members is None else len(members)
        self.registers = Registers(initial, self.size)
        self.whole = chunk.full if members is None else Active(chunk, members)
        self.whole.local = None
        self._places: Array | None = None
        if members is not None:
            self._places = np.zeros(chunk.threads, np.int64)
            self._places[members] = np.arange(self.size)

    def active(self, threads: Array | None) -> Active:
        """Some of its threads, None for all, ready to run."""
        if threads is None or len(threads) == self.size:
            return self.whole
        active = Active(self.chunk, threads)
        if self._places is not None:
            active.local = self._places[threads]
        return active
