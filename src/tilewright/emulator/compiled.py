"""A kernel as the scheduler runs it: one Python function per basic block, and what follows each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.layout import Layout
from tilewright.ptx.cfg import Graph
from tilewright.ptx.module import Function, Module


@dataclass(frozen=True)
class Fall:
    """Go on at ``target``; ``yields``: let others run first."""

    target: int
    yields: bool = False


@dataclass(frozen=True)
class Branch:
    """The block's extra result is the predicate."""

    taken: int
    other: int


@dataclass(frozen=True)
class Switch:
    """The extra result is the index into ``targets``."""

    targets: tuple[int, ...]
    site: int = -1


@dataclass(frozen=True)
class Leave:
    """End of the thread; where ``other`` is given, the extra result says for whom."""

    other: int | None = None


@dataclass(frozen=True)
class Barrier:
    """The extra result is a :class:`BarrierCall`."""

    target: int
    site: int


@dataclass(frozen=True)
class Retry:
    """The extra result says which threads go on; the others come back to this block."""

    target: int
    site: int


@dataclass(frozen=True)
class Poll:
    """All go on at ``target``; those for whom the extra result is false let others run first."""

    target: int
    site: int


Terminator = Fall | Branch | Switch | Leave | Barrier | Retry | Poll


@dataclass(frozen=True)
class BarrierCall:
    """What a barrier instruction asks for.

    Attributes:
        kind: ``block`` or ``cluster``.
        number: of the barrier; one for all threads, or per thread. count: threads, or None.
        arrives, waits: bar.arrive and barrier.cluster.arrive only arrive, barrier.cluster.wait only waits.
        guard: which threads take part; None for all.
        reduce: (operation, predicate), and the register that gets the result.
    """

    kind: str
    number: Any
    count: Any
    arrives: bool
    waits: bool
    is_aligned: bool
    guard: Any = None
    reduce: tuple[str, Any] | None = None
    result_register: int = -1


BlockFunction = Callable[..., tuple[tuple[Any, ...], Any]]


@dataclass(frozen=True)
class CompiledBlock:
    """Attributes:

    function: ``(machine, active, *live_in) -> (live_out values, extra)``.
    live_in, live_out: numbers of registers; live_out are those that the block defines and somebody reads later.
    has_collective: it holds an instruction that wants all lanes of a warp.
    has_warpgroup: one that wants all four warps of a warpgroup.
    is_quiet: nothing in it changes what another thread could see, but for atomics, which the machine counts.
    can_retry: nothing up to its last collective does, so that lanes which it does not let through can begin again.
    look: the first instruction that reads memory which others may write; -1: none does.
    """

    function: BlockFunction
    live_in: tuple[int, ...]
    live_out: tuple[int, ...]
    end: Terminator
    instructions: int
    has_collective: bool
    first_site: int
    has_warpgroup: bool = False
    is_quiet: bool = False
    can_retry: bool = False
    look: int = -1


@dataclass(frozen=True)
class CompiledKernel:
    """Attributes:

    initial: a zero of each register's type.
    shared_granule: bytes of the smallest shared access, for the shadow.
    """

    module: Module
    function: Function
    graph: Graph
    layout: Layout
    blocks: tuple[CompiledBlock, ...]
    initial: tuple[np.generic, ...]
    registers: Mapping[str, int]
    shared_granule: int
    source: str
