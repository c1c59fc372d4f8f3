"""The load phase as streams: one text that loads tiles and stores them, where it is not read statement by statement."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from tilewright.kloop.kernel import Bump, CopyLoop, Refusal
from tilewright.source import ir


@dataclass(frozen=True)
class PassLoop:
    """A loop of the load phase that stores into a tile.

    Attributes:
        var, first, step: what it counts, from where, and how far a pass moves; None where that is not understood.
        trips: the most passes of a thread; None where that is not known.
        per_thread: threads may start at different values, or make different numbers of passes.
    """

    stmt: ir.For
    var: ir.Symbol | None
    first: ir.Expr | None
    step: ir.Expr | None
    trips: int | None
    per_thread: bool


@dataclass(frozen=True)
class Source:
    """What an asynchronous copy reads, as text can be made of it.

    Attributes:
        lvalue: in global memory, read where the store stands; None for ``register``.
        guard, inverted, fill: ``guard ? lvalue : fill``, where the store's value is that.
        fills_zero: the fill is all zero bits.
        register: the local that was loaded before; lane: which part of it, ``.x`` as number 0.
    """

    lvalue: ir.Expr | None = None
    guard: ir.Expr | None = None
    inverted: bool = False
    fill: ir.Expr | None = None
    fills_zero: bool = False
    register: tuple[int, int | None] | None = None
    lane: int | None = None


@dataclass(frozen=True)
class StreamStore:
    """One assignment to a staged array, anywhere in the load phase.

    Attributes:
        loops: places in the text of the loops around it that store, outermost first.
        width_bytes, type_text: of what is stored.
        place: what tells the target from another place; the two sides of a condition may share it.
        source: how an asynchronous copy does it; "plain" where the value is not loaded at all; or why none can.
    """

    stmt: ir.Do
    assign: ir.Assign
    array: int
    loops: tuple[int, ...]
    width_bytes: int
    type_text: str
    place: Hashable
    source: Source | Literal["plain"] | Refusal


@dataclass(frozen=True)
class Register:
    """A local (or one vector of a local array) that only carries loaded values into tiles.

    Asynchronous copies load nothing into it: a pointer to where it is loaded from takes its place.

    Attributes:
        first, lanes: of an array, the first element, and how many; type_text: of what is loaded at once.
        definitions: the statements that set it, with the loaded lvalue, the guard, and whether it is read where that
            is false; lvalue None for zeros.
        may_be_zero: some definition sets zeros, so that the pointer may be null.
        outer: it is declared outside the load phase, or without a value of its own.
    """

    symbol: ir.Symbol
    first: int | None
    type_text: str
    lanes: int
    definitions: tuple[tuple[ir.Stmt, ir.Expr | None, ir.Expr | None, bool], ...]
    may_be_zero: bool
    outer: bool


@dataclass(frozen=True)
class Slice:
    """Some statements of the load phase, and everything that they rest on.

    Attributes:
        kept: start and end of every statement that stays; of a compound one its parts are judged by themselves.
        needs: symbols that they name.
    """

    kept: frozenset[tuple[int, int]]
    needs: frozenset[int]


@dataclass(frozen=True)
class GlobalLoad:
    """One place of the load phase that reads global memory.

    Attributes:
        stmt: the statement that it stands in, a declaration or an expression. loops: around that, outermost first.
        expr: the lvalue (or ``__ldg(…)`` of one); type_text: of what is loaded.
        guards: conditions inside the statement on which it is read, and whether they must hold or fail.
        skipped: a condition around the statement may leave it out.
    """

    stmt: ir.Stmt
    expr: ir.Expr
    loops: tuple[ir.For, ...]
    type_text: str
    guards: tuple[tuple[ir.Expr, bool], ...]
    skipped: bool


@dataclass(frozen=True)
class LoadSplit:
    """A load phase cut at its loads instead of at its stores.

    Attributes:
        loops: the loops around loads, by where they start. fetching: what the loads rest on, and they themselves.
        whole: everything, which stores a tile once it finds in registers what it would load.
    """

    loads: tuple[GlobalLoad, ...]
    loops: dict[int, PassLoop]
    fetching: Slice
    whole: Slice


@dataclass(frozen=True)
class LoadStream:
    """A load phase taken as it is: one text that runs once to load a tile and once to store it.

    Attributes:
        body: its statements. stores, loops: what of them concerns the tiles.
        carried: locals from outside the load phase that it changes: each stream of its own advances a copy.
        bumped: statements of the compute phase that advance what the loads read and the compute phase reads too.
        storing: what is left where only the stores count. for_compute: what the compute phase needs of it.
        aiming: statements that only aim local pointers into the tiles: loads into registers have no use for them.
        unring: why a ring of stages cannot hold the tiles, where one buffer can.
        registers: locals that asynchronous copies replace by pointers, by symbol and first lane.
        wide: copy loops in it that asynchronous copies take by 16 bytes; nothing else fills their arrays.
        split: how it is cut at its loads, where something is computed between a load and its store.
    """

    body: tuple[ir.Stmt, ...]
    stores: tuple[StreamStore, ...]
    loops: dict[int, PassLoop]
    carried: frozenset[int]
    bumped: tuple[Bump, ...]
    storing: Slice
    for_compute: Slice
    aiming: tuple[ir.Stmt, ...] = ()
    unring: Refusal | None = None
    registers: dict[tuple[int, int | None], Register] = field(default_factory=dict)
    wide: tuple[CopyLoop, ...] = ()
    split: LoadSplit | None = None

    def widened(self, stmt: ir.Stmt) -> bool:
        """Whether a statement is part of a copy loop that asynchronous copies take by 16 bytes."""
        at = stmt.span
        return any(w.stmt.span.start <= at.start and at.end <= w.stmt.span.end for w in self.wide)
