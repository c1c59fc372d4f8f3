"""Registers between blocks: an array over all threads, or one NumPy scalar while all threads agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.emulator.machine.chunk import Active


class Registers:
    def __init__(self, initial: Sequence[np.generic], threads: int) -> None:
        self.values: list[Any] = list(initial)
        self.threads = threads
        # Registers whose array nobody else holds: only those may be changed in place.
        self.owned: set[int] = set()

    def read(self, active: Active, numbers: tuple[int, ...]) -> list[Any]:
        values = self.values
        if active.index is None:
            if self.owned:
                self.owned.difference_update(numbers)  # the block may hand the same array on under another name
            return [values[i] for i in numbers]
        index = active.index
        return [v[index] if v.ndim else v for v in [values[i] for i in numbers]]

    def write(self, active: Active, numbers: tuple[int, ...], results: tuple[Any, ...]) -> None:
        values = self.values
        if active.index is None:
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
        current[active.index] = result
