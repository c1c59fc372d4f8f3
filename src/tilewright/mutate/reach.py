"""Which variables a kernel's memory instructions can touch, as far as its text says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from tilewright.mutate.statements import Statement, Statements

_NAME = re.compile(r"(?<![\w$%])[%$_a-zA-Z][\w$%]*(?:\.[xyzw])?")
# All of them begin at the same address.
_DYNAMIC = re.compile(r"\.extern\s+\.shared\s[^;\[]*?([\w$]+)\s*\[\s*\]")
_NO_RESULT = frozenset({"st", "red", "bar", "barrier", "fence", "membar", "bra", "ret", "exit", "cp"})
_OWN = frozenset({"param", "const", "local"})
_READS = frozenset({"ld", "ldmatrix"})
_WRITES = frozenset({"st", "stmatrix", "atom", "red"})
_QUIET = ("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all", "wmma.mma", "bar.warp.sync")
Touched = tuple[frozenset[str], frozenset[str]]


class Reach:
    """By the parameters and variables that an address is computed from. Two parameters are two buffers."""

    def __init__(self, statements: Statements) -> None:
        self._items = statements.items
        self._dynamic = frozenset(_DYNAMIC.findall(statements.ptx))

    def touched(self, indices: Iterable[int], quiet: frozenset[str]) -> Touched | None:
        """(variables that are read, that are written) by instructions; None where the text does not say.

        Args:
            quiet: roots of instructions that touch no memory.
        """
        read: set[str] = set()
        written: set[str] = set()
        for x in (self._items[i] for i in indices):
            space = {m.partition("::")[0] for m in x.modifiers}
            if x.root in quiet or x.opcode.startswith(_QUIET) or (x.root in ("ld", "st") and space & _OWN):
                continue
            addresses = [o for o in x.operands if o.startswith("[")]
            symbols = [self._symbols(o) for o in addresses]
            if not symbols or not all(symbols):
                return None
            if x.root in _WRITES or x.opcode.startswith("wmma.store"):
                written |= symbols[0] or set()
            elif x.root in _READS or x.opcode.startswith("wmma.load"):
                read |= symbols[0] or set()
            elif x.opcode.startswith(("cp.async.ca", "cp.async.cg")) and len(symbols) == 2:
                written |= symbols[0] or set()
                read |= symbols[1] or set()
            else:
                return None
        return frozenset(read), frozenset(written)

    def _symbols(self, address: str) -> set[str] | None:
        """Parameters and variables; None for an address that was itself loaded from memory."""
        seen: set[str] = set()
        found: set[str] = set()
        todo = _NAME.findall(address)
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if not name.startswith("%"):
                found.add("dynamic shared memory" if name in self._dynamic else name)
            for x in self._defs.get(name, ()):
                if x.root in ("ld", "atom") and "param" not in x.modifiers:
                    return None
                # A parameter of 32 bits is a number.
                if x.root != "ld" or x.modifiers[-1].endswith("64"):
                    todo += (n for o in x.operands[1:] for n in _NAME.findall(o))
        return found

    @cached_property
    def _defs(self) -> dict[str, list[Statement]]:
        defs: dict[str, list[Statement]] = defaultdict(list)
        for x in self._items:
            if x.kind == "instruction" and x.operands and x.root not in _NO_RESULT and x.operands[0][0] != "[":
                for name in _NAME.findall(x.operands[0]):
                    defs[name].append(x)
        return defs
