"""Which mbarriers count bytes or copies ("full") and which are only arrived at ("empty")."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from tilewright.mutate.statements import Statement, Statements

_NAME = re.compile(r"[%$_a-zA-Z][\w$%]*(?:\.[xyzw])?")
_ADDRESS = re.compile(r"\[\s*([\w$%]+)\s*(?:\+\s*(-?\s*\w+))?\s*[\],]")
# The first operand of all others is their result.
_NO_RESULT = frozenset({"st", "red", "bar", "barrier", "fence", "membar", "bra", "ret", "exit", "cp", "wgmma"})
_DEPTH = 24


@dataclass(frozen=True)
class _Place:
    """A shared address, as far as the text says: the variable, and the constant that is added to it."""

    symbols: frozenset[str]
    offset: int


class BarrierRoles:
    """Tells full barriers from empty ones, by what arrives at them.

    A full barrier is one of a variable whose barriers get ``expect_tx``, complete_tx copies or
    ``cp.async.mbarrier.arrive``. Where full and empty barriers share one variable (dynamic shared memory), the
    constant offsets decide. It gives names only: a wrong guess makes no mutant wrong.
    """

    def __init__(self, statements: Statements) -> None:
        self._items = statements.items

    def is_full(self, wait: Statement) -> bool:
        place = self._place(wait)
        fulls = [f for f in self._fulls if f.symbols & place.symbols]
        if not fulls:
            return False
        waits = {w for w in self._waits if w.symbols & place.symbols}
        shared = len({w.offset for w in waits}) > 1
        return not shared or any(f.offset == place.offset for f in fulls)

    @cached_property
    def _fulls(self) -> list[_Place]:
        return [self._place(s) for s in self._items if self._fills(s)]

    @cached_property
    def _waits(self) -> list[_Place]:
        return [self._place(s) for s in self._items if s.root == "mbarrier" and s.modifiers[0].endswith("_wait")]

    @staticmethod
    def _fills(s: Statement) -> bool:
        if s.root == "mbarrier":
            return "expect_tx" in s.modifiers
        return s.opcode.startswith("cp.async.mbarrier.arrive")

    def _place(self, s: Statement) -> _Place:
        address = next((m for m in map(_ADDRESS.search, s.operands) if m is not None), None)
        if address is None:
            return _Place(frozenset(), 0)
        offset = int(address[2].replace(" ", ""), 0) if address[2] else 0
        return _Place(self._symbols(address[1]), offset + self._constant(address[1], 0))

    def _symbols(self, start: str) -> frozenset[str]:
        """The variables that a register's value can come from, through every definition of it but loads."""
        seen: set[str] = set()
        found: set[str] = set()
        todo = [start]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self._defs and not name.startswith("%"):
                found.add(name)
            for s in self._defs.get(name, ()):
                if s.root != "ld":
                    todo += (x for o in s.operands[1:] for x in _NAME.findall(o))
        return frozenset(found)

    def _constant(self, name: str, depth: int) -> int:
        """What is added to the variable, as far as it is a plain constant."""
        found = self._defs.get(name, ())
        if len(found) != 1 or depth > _DEPTH:
            return 0
        s = found[0]
        if s.root in ("mov", "cvta", "cvt") and len(s.operands) == 2:
            return self._part(s.operands[1], depth)
        if s.root == "add":
            return sum(self._part(o, depth) for o in s.operands[1:])
        if s.root == "mad":
            return self._part(s.operands[3], depth)
        return 0

    def _part(self, operand: str, depth: int) -> int:
        symbol, _, added = operand.partition("+")
        if added:
            return self._part(symbol.strip(), depth) + int(added, 0)
        try:
            return int(operand, 0)
        except ValueError:
            return self._constant(operand, depth + 1)

    @cached_property
    def _defs(self) -> dict[str, list[Statement]]:
        defs: dict[str, list[Statement]] = defaultdict(list)
        for s in self._items:
            if s.kind == "instruction" and s.operands and s.root not in _NO_RESULT:
                for name in _NAME.findall(s.operands[0]):
                    defs[name].append(s)
        return defs
