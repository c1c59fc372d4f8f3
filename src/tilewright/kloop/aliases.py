"""Stores to global memory between the loads of one tile and those of the next: may the loads see them?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.kloop.kernel import Refusal
from tilewright.source import ir
from tilewright.source.effects import Store, short_name
from tilewright.source.places import UNKNOWN, Place, Places
from tilewright.source.reader import OpenKernel

_WORD = re.compile(rb"\w+")
_HINT = "declare both pointers __restrict__, or say so in the sidecar: [assume] no_alias = true"


class Aliases:
    """Compares pointers of one kernel.

    Two pointers count as apart where the kernel declares both ``__restrict__``, or where the sidecar says that no
    buffer that is written overlaps one that is read. Either is the caller's promise, so each use of it is kept.

    Attributes:
        assumptions: what was taken for granted, for the receipt.
    """

    def __init__(self, kernel: OpenKernel, places: Places, no_alias: bool) -> None:
        self._kernel = kernel
        self._places = places
        self._no_alias = no_alias
        self.assumptions: list[str] = []

    def judge(self, store: Store, load: Iterable[ir.Stmt]) -> Refusal | None:
        """Whether a store of the compute phase must not be passed by the loads of a later tile."""
        line = self._kernel.source.line(store.span.start)
        symbol = store.place.symbol
        if store.place.space != "global" or symbol is None:
            through = f"`{self._name(symbol)}`" if symbol is not None else "an unknown pointer"
            what = f"the compute phase stores through {through}, which the next tile's loads may read"
            return Refusal("may_alias", what, line, "move the store behind the K-loop")
        for place in self._read(load):
            if place.space != "global" or place.symbol is None:
                what = "the loads read through a pointer that is not followed, and the compute phase stores through "
                return Refusal("may_alias", f"{what}`{self._name(symbol)}`", line, "move the store behind the K-loop")
            if place.symbol == symbol:
                what = f"the compute phase stores through `{self._name(symbol)}`, which the next tile's loads read"
                return Refusal("may_alias", what, line, "move the store behind the K-loop")
            why = self._apart(symbol, place.symbol)
            if why is None:
                what = f"the compute phase stores through `{self._name(symbol)}`, which the next tile's loads may read"
                return Refusal("may_alias", f"{what} by way of `{self._name(place.symbol)}`", line, _HINT)
            said = f"loads through `{self._name(place.symbol)}` do not see stores through `{self._name(symbol)}`: {why}"
            if said not in self.assumptions:
                self.assumptions.append(said)
        return None

    def _name(self, symbol: int) -> str:
        return self._kernel.symbols[symbol].name

    def _apart(self, one: int, other: int) -> str | None:
        if self._restrict(one) and self._restrict(other):
            return "both are __restrict__"
        return "the sidecar says no_alias" if self._no_alias else None

    def _restrict(self, symbol: int) -> bool:
        """Whether a kernel's parameter is declared ``* __restrict__ name``."""
        one = self._kernel.symbols[symbol]
        declarator = self._kernel.source.text[one.span.start : one.span.end]
        words = set(_WORD.findall(declarator.rsplit(b"*", 1)[-1]))
        return one.kind == "param" and one.pointers == 1 and bool({b"__restrict__", b"__restrict"} & words)

    def _read(self, load: Iterable[ir.Stmt]) -> list[Place]:
        """Every place outside shared memory and registers that the loads read."""
        out: list[Place] = []
        for stmt in load:
            for node in ir.walk(stmt):
                out += self._places.loaded(node)
                match node:
                    case ir.Index() | ir.Member() | ir.Unary(op="*"):
                        out.append(self._places.of(node))
                    case ir.Name(symbol=int(s)) if self._kernel.symbols[s].reference:
                        out.append(self._places.of(node))
                    case ir.Call():
                        out += self._read_by(node)
        return [p for p in out if p.space not in ("local", "shared")]

    def _read_by(self, call: ir.Call) -> list[Place]:
        """What a function of the file may read behind its arguments."""
        function = self._kernel.functions.get(short_name(call.callee))
        if function is None:
            return []
        if function.looks:
            return [UNKNOWN]
        behind = {i for params in function.params for i, p in enumerate(params) if p.how != "value"}
        return [self._places.at(a) for i, a in enumerate(call.args) if i in behind]
