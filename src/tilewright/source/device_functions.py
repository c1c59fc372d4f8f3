"""The file's ``__device__`` functions, as their callers see them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.source import ir
from tilewright.source.effects import Collector, DeviceFunction, Effects, Parameter, Store, short_name
from tilewright.source.expr_types import Types
from tilewright.source.intrinsics import VALUES
from tilewright.source.leaks import Leaks
from tilewright.source.parse import ParsedKernel
from tilewright.source.places import UNKNOWN


def device_functions(
    definitions: Mapping[str, list[ParsedKernel]], aliases: dict[str, str]
) -> dict[str, DeviceFunction]:
    """Summaries by name: overloads are taken together, callees come first, recursion counts as unknown.

    Args:
        definitions: every definition of each name.
    """
    done: dict[str, DeviceFunction] = {}
    calls = {name: set().union(*(_calls(p) for p in parsed)) for name, parsed in definitions.items()}
    for _ in definitions:  # each round settles the functions whose callees are settled
        for name, parsed in definitions.items():
            if name not in done and not any(c in definitions and c not in done for c in calls[name]):
                done[name] = _summary(name, parsed, done, aliases)
    return done


def _calls(parsed: ParsedKernel) -> set[str]:
    return {c.callee.split("<")[0].split("::")[-1] for c in ir.walk(parsed.body) if isinstance(c, ir.Call)}


def _summary(
    name: str, definitions: list[ParsedKernel], done: Mapping[str, DeviceFunction], aliases: dict[str, str]
) -> DeviceFunction:
    merged = Effects()
    stored: set[int] = set()
    leaked: set[int] = set()
    xored: set[int] = set()
    looks = False
    for parsed in definitions:
        collector = Collector(parsed.symbols, done, parsed.body.body, kernel=False, aliases=aliases)
        looks |= any(_looks(n, collector, done) for n in ir.walk(parsed.body))
        effects = collector.collect(parsed.body.body)
        positions = {p.id: i for i, p in enumerate(parsed.params)}
        for store in effects.stores:
            if store.place.space == "param" and store.place.symbol in positions:
                stored.add(positions[store.place.symbol])
            else:
                merged.stores.append(Store(UNKNOWN, store.span))
        merged.barriers += effects.barriers
        merged.other_barriers += effects.other_barriers
        merged.asynchronous += effects.asynchronous
        merged.unknown += [*effects.unknown, *parsed.errors]
        types = Types(parsed.symbols, aliases)
        inner = effects.declared | {p.id for p in parsed.params if not (p.reference or p.pointers)}
        for p in parsed.params:
            behind = bool(p.reference or p.pointers or p.dims)
            leaks = Leaks(parsed.symbols, done, types, aliases, {p.id}, inner)
            if behind and leaks.find(parsed.body.body) is not None:
                leaked.add(positions[p.id])
            held = Leaks(parsed.symbols, done, types, aliases, set(), inner, frozenset({p.id}))
            if held.swizzle(parsed.body.body) is not None:
                xored.add(positions[p.id])
            if not behind and held.find(parsed.body.body) is not None:
                leaked.add(positions[p.id])
    params = tuple(tuple(_passing(p) for p in parsed.params) for parsed in definitions)
    pure = all(_is_pure(p, done) for p in definitions)
    sets = frozenset(stored), frozenset(leaked), frozenset(xored)
    return DeviceFunction(name, params, *sets, merged, pure, looks)


def _looks(node: ir.Stmt | ir.Expr, collector: Collector, done: Mapping[str, DeviceFunction]) -> bool:
    """Whether a node reads memory behind an address that is not one of the arguments."""
    given = ("local", "param", "shared")
    if any(p.space not in given for p in collector.places.loaded(node)):
        return True
    match node:
        case ir.Index() | ir.Unary(op="*") | ir.Member(arrow=True):
            return collector.places.of(node).space not in given
        case ir.Call(callee=c):
            callee = done.get(short_name(c))
            return callee is not None and callee.looks
    return False


def _is_pure(parsed: ParsedKernel, done: Mapping[str, DeviceFunction]) -> bool:
    """Plain arithmetic on arguments that are taken by value: no memory, no names from outside, no loops that may end
    differently."""
    if parsed.errors or any(p.pointers or p.reference or p.dims for p in parsed.params):
        return False
    for node in ir.walk(parsed.body):
        match node:
            case ir.Name(symbol=None) | ir.Index() | ir.Asm() | ir.Opaque() | ir.OpaqueStmt() | ir.Unary(op="*" | "&"):
                return False
            case ir.Member(arrow=True):
                return False
            case ir.Call(callee=c):
                callee = done.get(c.split("<")[0].split("::")[-1])
                if not VALUES.match(c) and (callee is None or not callee.pure):
                    return False
            case ir.Declare(symbols=symbols) if any(
                s.pointers or s.reference or s.dims or "static" in s.type_text.split() for s in symbols
            ):
                return False
    return True


def _passing(symbol: ir.Symbol) -> Parameter:
    const = "const" in symbol.type_text.split()
    if symbol.reference:
        return Parameter("reference", const)
    return Parameter("pointer" if symbol.pointers or symbol.dims else "value", const)
