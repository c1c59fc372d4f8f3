"""The copies of a load phase, however it was read: what is stored where, inside which loops and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.kloop.kernel import Copy, CopyLoop, Fetch, LaneStore, LoadItem, Refusal
from tilewright.kloop.load_stream import LoadStream, Register, Source, StreamStore
from tilewright.kloop.loops import Header, counted_header
from tilewright.source import ir
from tilewright.source.c_types import LANES


@dataclass(frozen=True)
class Site:
    """One copy of the load phase.

    Attributes:
        stores: (lvalue in shared memory, bytes into what ``source`` reads, bytes stored).
        loops: around it, outermost first. tests: conditions around it, and whether they have to be true.
    """

    stmt: ir.Stmt
    array: int
    source: ir.Expr
    guard: ir.Expr | None
    inverted: bool
    fills_zero: bool
    converts: bool
    stores: tuple[tuple[ir.Expr, int, int], ...]
    loops: tuple[Header, ...] = ()
    tests: tuple[tuple[ir.Expr, bool], ...] = ()


@dataclass(frozen=True)
class Unplaced:
    """A store to ``array`` that is no plain copy, and why."""

    stmt: ir.Stmt
    array: int
    why: str


def sites_of(loads: Sequence[LoadItem]) -> list[Site]:
    """The copies of a load phase that was read statement by statement."""
    out: list[Site] = []
    bodies: list[tuple[Sequence[LoadItem], tuple[Header, ...]]] = [(loads, ())]
    bodies += [
        (item.body, (Header(item.var, item.first, item.bound, item.stride),))
        for item in loads
        if isinstance(item, CopyLoop)
    ]
    for body, loops in bodies:
        for item in body:
            if isinstance(item, Copy):
                places = ((item.target, 0, item.width_bytes),)
                flags = (item.inverted, item.fills_zero, item.converts)
                out.append(Site(item.stmt, item.array, item.source, item.guard, *flags, places, loops))
            elif isinstance(item, Fetch):
                out += _fetched(item, body, loops)
    return out


def _fetched(fetch: Fetch, body: Iterable[LoadItem], loops: tuple[Header, ...]) -> list[Site]:
    """What is stored of one fetched register, array by array."""
    stores = [s for s in body if isinstance(s, LaneStore) and s.fetched == fetch.symbol.id]
    out: list[Site] = []
    for array in dict.fromkeys(s.array for s in stores):
        places = tuple(
            (s.target, LANES.index(s.lane) * s.width_bytes if s.lane else 0, s.width_bytes)
            for s in stores
            if s.array == array
        )
        flags = (False, fetch.fills_zero, False)
        out.append(Site(fetch.stmt, array, fetch.source, fetch.guard, *flags, places, loops))
    return out


# -- load phases that are taken as a whole -------------------------------------------------------------


_Way = tuple[tuple[Header, ...], tuple[tuple[ir.Expr, bool], ...]]


def sites_of_stream(stream: LoadStream) -> list[Site | Unplaced]:
    """The same of a load phase that was taken as a whole; lanes of one register become one copy."""
    ways = {id(s): way for s, way in _ways(stream.body, ((), ()))}
    jumps = any(isinstance(n, ir.Jump) for s in stream.body for n in ir.walk(s))
    out: list[Site | Unplaced] = []
    for store in stream.stores:
        way = ways.get(id(store.stmt))
        found = "it stands in a loop or branch that is not understood" if way is None or jumps else ""
        site = _of_store(stream, store, way, ways) if way is not None and not found else found
        out.append(Unplaced(store.stmt, store.array, site) if isinstance(site, str) else site)
    return _joined(out)


def _ways(body: Iterable[ir.Stmt], way: _Way) -> Iterator[tuple[ir.Stmt, _Way]]:
    """Every simple statement, with the loops and conditions around it; those in other constructs are left out."""
    loops, tests = way
    for stmt in body:
        match stmt:
            case ir.Block(body=inner):
                yield from _ways(inner, way)
            case ir.If(condition=c, then=a, otherwise=b):
                yield from _ways((a,), (loops, (*tests, (c, True))))
                if b is not None:
                    yield from _ways((b,), (loops, (*tests, (c, False))))
            case ir.For(body=inner):
                header = counted_header(stmt)
                if header is not None and not stmt.header.within:
                    yield from _ways((inner,), ((*loops, header), tests))
            case ir.Do() | ir.Declare():
                yield stmt, way


def _of_store(stream: LoadStream, store: StreamStore, way: _Way, ways: dict[int, _Way]) -> Site | str:
    source = store.source
    if isinstance(source, Refusal):
        return source.message
    if not isinstance(source, Source):
        return "what it stores is not loaded"
    lvalue, guard, inverted, zero, offset = source.lvalue, source.guard, source.inverted, source.fills_zero, 0
    if lvalue is None:
        register = stream.registers.get(source.register) if source.register is not None else None
        loaded = _loaded(register, store, way, ways) if register is not None else None
        if loaded is None:
            return "what it stores is loaded elsewhere, or in more than one place"
        lvalue, guard, inverted, cleared = loaded
        zero = zero or cleared
        offset = (source.lane or 0) * store.width_bytes
    places = ((store.assign.left, offset, store.width_bytes),)
    return Site(store.stmt, store.array, lvalue, guard, inverted, zero, False, places, *way)


def _loaded(
    register: Register, store: StreamStore, way: _Way, ways: dict[int, _Way]
) -> tuple[ir.Expr, ir.Expr | None, bool, bool] | None:
    """(place, guard, inverted, zeros where nothing is read) of what a register holds where it is stored.

    It is set once; or cleared, and then set behind an ``if`` or without one. In the same loops, in this order.
    """
    *before, (stmt, lvalue, guard, inverted) = register.definitions
    loops, tests = way
    at = ways.get(id(stmt))
    if lvalue is None or at is None or at[0] != loops or stmt.span.end > store.stmt.span.start:
        return None
    if not before:
        return (lvalue, guard, inverted, False) if at == way else None
    more = at[1][len(tests) :]
    cleared = len(before) == 1 and before[0][1] is None and ways.get(id(before[0][0])) == way
    if not cleared or before[0][0].span.end > stmt.span.start or at[1][: len(tests)] != tests or guard is not None:
        return None
    match more:
        case ():
            return lvalue, None, False, True
        case ((condition, True),):
            return lvalue, condition, False, True
    return None


def _joined(found: list[Site | Unplaced]) -> list[Site | Unplaced]:
    """Lanes of one loaded value, stored one by one, as one copy."""
    out: list[Site | Unplaced] = []
    for site in found:
        last = out[-1] if out else None
        if isinstance(site, Site) and isinstance(last, Site) and _same(site, last):
            out[-1] = replace(last, stores=last.stores + site.stores)
        else:
            out.append(site)
    return out


def _same(a: Site, b: Site) -> bool:
    return a.source is b.source and a.array == b.array and (a.loops, a.tests) == (b.loops, b.tests)
