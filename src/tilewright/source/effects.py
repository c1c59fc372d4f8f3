"""What statements may do: which names they write, what memory they store to, which barriers they pass.

Everything not known to be harmless counts as harmful.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.source import intrinsics, ir
from tilewright.source.places import Place, Places
from tilewright.source.places import root as root


@dataclass(frozen=True)
class Parameter:
    """How a ``__device__`` function takes one argument: ``value``, ``reference`` or ``pointer``; const or not."""

    how: str
    const: bool


@dataclass(frozen=True)
class DeviceFunction:
    """A function of the file that kernels call; several of one name are taken together.

    Attributes:
        params: of each definition.
        stored: positions of the arguments that some definition stores through.
        leaked: positions of the arguments whose address some definition hands out as a number or pointer.
        xored: positions of the arguments that some definition XORs with something.
        looks: it may read memory that it was not given.
        pure: its value follows from its arguments alone, which are all taken by value.
    """

    name: str
    params: tuple[tuple[Parameter, ...], ...]
    stored: frozenset[int]
    leaked: frozenset[int]
    xored: frozenset[int]
    effects: Effects
    pure: bool = False
    looks: bool = False


@dataclass(frozen=True)
class Store:
    """A store through memory."""

    place: Place
    span: ir.Span


@dataclass
class Effects:
    """Collected over a group of statements.

    Attributes:
        reads, writes: symbol ids, through references and pointers to locals too; reads: those to shared arrays too. A
            name passed where it may be changed counts as written.
        declared: symbols that the statements declare (no writes by themselves).
        stores: stores to shared or global memory, or to a place that is not known.
        barriers: spans of ``__syncthreads()``; other_barriers: anything else that may wait for other threads.
        jumps: return, break, continue, goto. unknown: what could not be classified, with its span.
        asynchronous: spans of asynchronous copies, pipelines or mbarriers.
        calls: functions called.
    """

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    declared: set[int] = field(default_factory=set)
    stores: list[Store] = field(default_factory=list)
    barriers: list[ir.Span] = field(default_factory=list)
    other_barriers: list[tuple[str, ir.Span]] = field(default_factory=list)
    jumps: list[tuple[str, ir.Span]] = field(default_factory=list)
    unknown: list[tuple[str, ir.Span]] = field(default_factory=list)
    asynchronous: list[ir.Span] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)

    def stores_to_shared(self) -> set[int]:
        return {s.place.symbol for s in self.stores if s.place.space == "shared" and s.place.symbol is not None}


# What does nothing by itself.
_PLAIN = frozenset({
    ir.Binary, ir.Index, ir.Member, ir.Cast, ir.Ternary, ir.InitList, ir.Number, ir.SizeOf, ir.Do, ir.Block, ir.If,
    ir.For, ir.While, ir.Alias, ir.Nothing,
})  # fmt: skip


def short_name(callee: str) -> str:
    """``wmma::load_matrix_sync<…>`` → ``load_matrix_sync``."""
    return callee.split("<")[0].split("::")[-1]


class Collector:
    """Walks statements of one function and fills :class:`Effects`.

    Args:
        body: the whole function, for what its pointers may point to.
        kernel: whether it is a ``__global__`` function.
    """

    def __init__(
        self,
        symbols: Mapping[int, ir.Symbol],
        functions: Mapping[str, DeviceFunction],
        body: Iterable[ir.Stmt | ir.Expr],
        kernel: bool,
        aliases: dict[str, str],
    ) -> None:
        self._symbols = symbols
        self._functions = functions
        self._known: dict[tuple[int, ...], tuple[tuple[ir.Stmt | ir.Expr, ...], Effects]] = {}
        self.places = Places(symbols, body, kernel, self._changes_argument, aliases)

    def collect(self, nodes: Iterable[ir.Stmt | ir.Expr]) -> Effects:
        """What the nodes do together; the same nodes give the same object, which must not be changed."""
        wanted = tuple(nodes)
        key = tuple(map(id, wanted))
        known = self._known.get(key)
        if known is None:
            out = Effects()
            for node in wanted:
                self._visit(node, out)
            self._known[key] = known = (wanted, out)  # with the nodes, so that no other can get their identities
        return known[1]

    def _visit(self, node: ir.Stmt | ir.Expr, out: Effects) -> None:
        if type(node) in _PLAIN:
            for child in ir.children(node):
                self._visit(child, out)
            return
        match node:
            case ir.Name(symbol=int(s)):
                self._read(self._symbols[s], out)
            case ir.Declare(symbols=symbols):
                out.declared.update(s.id for s in symbols)
            case ir.Assign(left=left, op=op):
                self._write(left, out, node.span)
                if op == "=" and isinstance(left, ir.Name):
                    self._visit(node.right, out)
                    return
            case ir.Unary(op="++" | "--" | "p++" | "p--", operand=x):
                self._write(x, out, node.span)
            case ir.Call():
                self._call(node, out)
                return
            case ir.Asm():
                self._asm(node, out)
            case ir.Jump(kind=k):
                out.jumps.append((k, node.span))
            case ir.OpaqueStmt(what=w) | ir.Opaque(what=w):
                out.unknown.append((w, node.span))
        for child in ir.children(node):
            self._visit(child, out)

    def _read(self, symbol: ir.Symbol, out: Effects) -> None:
        out.reads.add(symbol.id)
        if symbol.reference or symbol.pointers:
            for place in (self.places.of(ir.Name(symbol.span, symbol.name, symbol.id)), self.places.pointee(symbol)):
                if place.space in ("local", "shared") and place.symbol is not None:
                    out.reads.add(place.symbol)

    def _write(self, target: ir.Expr, out: Effects, span: ir.Span) -> None:
        self._record(self.places.of(target), out, span)

    def _record(self, place: Place, out: Effects, span: ir.Span) -> None:
        if place.space == "local" and place.symbol is not None:
            out.writes.add(place.symbol)
        else:
            out.stores.append(Store(place, span))

    def _call(self, call: ir.Call, out: Effects) -> None:
        name, short = call.callee, short_name(call.callee)
        out.calls.add(short)
        if name in intrinsics.BARRIERS:
            out.barriers.append(call.span)
        elif intrinsics.ASYNCHRONOUS.search(name):
            out.asynchronous.append(call.span)
        elif short in self._functions:
            self._device_call(self._functions[short], call, out)
        elif self._fragment_call(name) and short in intrinsics.WRITES_FIRST and call.args:
            self._write(call.args[0], out, call.span)
        elif self._fragment_call(name) and short == "store_matrix_sync" and call.args:
            out.stores.append(Store(self.places.at(call.args[0]), call.span))
        elif not self._harmless(name):
            if intrinsics.OTHER_BARRIERS.match(name):
                out.other_barriers.append((name, call.span))
            else:
                out.unknown.append((f"a call of {name.split('<')[0]}, whose body is not in this file", call.span))
            for arg in call.args:  # it may take its arguments by reference, or store through them
                self._record(self.places.of(arg), out, call.span)
                self._record(self.places.at(arg), out, call.span)
        for arg in call.args:
            self._visit(arg, out)

    @staticmethod
    def _fragment_call(name: str) -> bool:
        return name.split("<")[0].split("::")[0] in ("wmma", "nvcuda", short_name(name))

    @staticmethod
    def _harmless(name: str) -> bool:
        known = intrinsics.VALUES.match(name) or intrinsics.HARMLESS.match(name)
        return bool(known) or name in intrinsics.LOADS or name in intrinsics.HARMLESS_SYNC

    def _changes_argument(self, call: ir.Call, position: int) -> bool:
        """Whether a call may change the variable that is its argument number ``position``."""
        short = short_name(call.callee)
        if short in self._functions:
            return any(
                position < len(params) and params[position].how == "reference" and not params[position].const
                for params in self._functions[short].params
            )
        known = self._harmless(call.callee) or call.callee in intrinsics.BARRIERS or short == "store_matrix_sync"
        return not known and not (short in intrinsics.WRITES_FIRST and position > 0)

    def _device_call(self, function: DeviceFunction, call: ir.Call, out: Effects) -> None:
        inner = function.effects
        out.barriers.extend(call.span for _ in inner.barriers)
        out.other_barriers.extend((w, call.span) for w, _ in inner.other_barriers)
        out.asynchronous.extend(call.span for _ in inner.asynchronous)
        out.unknown.extend((f"{w} in {function.name}()", call.span) for w, _ in inner.unknown)
        out.stores.extend(Store(s.place, call.span) for s in inner.stores)
        takers = [params for params in function.params if len(params) >= len(call.args)]
        if not takers:
            out.unknown.append((f"a call of {function.name} with other parameters", call.span))
            return
        for i in sorted(function.stored):
            if i < len(call.args):
                by_reference = any(params[i].how == "reference" for params in takers)
                arg = call.args[i]
                self._record(self.places.of(arg) if by_reference else self.places.at(arg), out, call.span)

    def _asm(self, node: ir.Asm, out: Effects) -> None:
        if intrinsics.is_asynchronous_asm(node.code):
            out.asynchronous.append(node.span)
        for piece in intrinsics.asm_instructions(node.code):
            match intrinsics.asm_kind(piece):
                case "barrier":
                    out.other_barriers.append((piece, node.span))
                case "stores":
                    out.stores.append(Store(Place("unknown", None), node.span))
                case "unknown":
                    out.unknown.append((f"inline PTX `{piece.split()[0]}`", node.span))
        for _, target in node.outputs:
            self._write(target, out, node.span)
