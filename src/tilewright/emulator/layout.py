"""Where a kernel's shared and local variables lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.ptx.module import Function, Module, Variable

# A zone of this size stands between two shared arrays. It keeps the low ten bits of every address as the hardware has
# them, so that banks and swizzles come out the same, and an index that leaves its array does not land in the next one.
RED_ZONE = 1024
RESERVED_SM90 = 0x400  # static shared memory begins above what the system reserves, from sm_90 on
ALIGN_DYNAMIC = 16


@dataclass(frozen=True)
class Placed:
    """A variable and its place. ``size_bytes`` of dynamic shared memory is what the launch asked for."""

    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class SharedLayout:
    """Attributes:

    symbols: in ascending order of offset.
    first, end: of the bytes that belong to any of them.
    """

    symbols: tuple[Placed, ...]
    first: int
    end: int

    @property
    def spare(self) -> int:
        """Where an access lands that belongs nowhere: 32 bytes that nothing else uses."""
        return _round_up(self.end, 16)

    def has_room(self, low: int, high: int) -> bool:
        """One symbol holds all bytes from ``low`` up to ``high``, or no gap lies between."""
        if self._valid is None:
            return self.first <= low and high <= self.end
        return any(s.offset <= low and high <= s.offset + s.size_bytes for s in self.symbols)

    @cached_property
    def _valid(self) -> Any:
        """One bool per byte, or None where the symbols leave no gap between ``first`` and ``end``."""
        covered = np.zeros(self.end, bool)
        for symbol in self.symbols:
            covered[symbol.offset : symbol.offset + symbol.size_bytes] = True
        return None if covered[self.first :].all() else covered

    def is_outside(self, address: Any, size: int) -> Any:
        """Which accesses touch a byte that is nobody's."""
        outside = (address < self.first) | (address + size > self.end)
        if self._valid is None:
            return outside
        last = np.clip(address + size - 1, 0, self.end - 1)
        return outside | ~self._valid[np.clip(address, 0, self.end - 1)] | ~self._valid[last]

    def nearest(self, address: int) -> Placed:
        """The last symbol that begins at or before an address."""
        before = [s for s in self.symbols if s.offset <= address]
        return before[-1] if before else (self.symbols[0] if self.symbols else Placed("shared memory", 0, 0))


@dataclass(frozen=True)
class Layout:
    """Attributes:

    addresses: of every shared and local variable, in its own space.
    smem_bytes: per block, a multiple of 16. static_bytes: as a compiler would count them, without red zones.
    local_bytes: per thread.
    """

    shared: SharedLayout
    addresses: dict[str, int] = field(default_factory=dict)
    smem_bytes: int = 0
    static_bytes: int = 0
    local_bytes: int = 0


def lay_out(module: Module, function: Function, dynamic_bytes: int, compute: int) -> Layout:
    """Place shared variables as the hardware would, red zones apart.

    Args:
        dynamic_bytes: of the launch; every ``extern`` array begins at the same place.
        compute: compute capability as 90.
    """
    variables = [*(v for v in module.variables if v.space == "shared"), *function.shared]
    static = [v for v in variables if v.size_bytes]
    extern = [v for v in variables if not v.size_bytes]
    at = first = RESERVED_SM90 if compute >= 90 else 0
    addresses: dict[str, int] = {}
    symbols: list[Placed] = []
    static_bytes = 0
    for variable in static:
        at = _round_up(at, variable.align)
        static_bytes = _round_up(static_bytes, variable.align) + variable.size_bytes
        addresses[variable.name] = at
        symbols.append(Placed(variable.name, at, variable.size_bytes))
        at += variable.size_bytes + RED_ZONE
    if extern:
        at = _round_up(at, max([ALIGN_DYNAMIC, *(v.align for v in extern)]))
        symbols.append(Placed(extern[0].name, at, dynamic_bytes))
        for variable in extern:
            addresses[variable.name] = at
        at += dynamic_bytes + RED_ZONE
    end = max((s.offset + s.size_bytes for s in symbols), default=first)
    local, local_bytes = _place(function.local + function.call_params)
    shared = SharedLayout(tuple(symbols), min((s.offset for s in symbols), default=first), end)
    return Layout(shared, addresses | local, shared.spare + 32, static_bytes, local_bytes)


def _place(variables: Sequence[Variable]) -> tuple[dict[str, int], int]:
    at, out = 0, {}
    for variable in variables:
        at = _round_up(at, variable.align)
        out[variable.name] = at
        at += variable.size_bytes
    return out, _round_up(at, 16)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
