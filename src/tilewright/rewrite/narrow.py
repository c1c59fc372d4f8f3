"""Bytes that wait in registers stay what they were loaded as.

``guard ? x : 0`` of two bytes is an int: the compiler extends the sign of what it loads on the spot, inside the branch,
and so waits for the load there. With a fill of the loaded type nothing is extended, and the value is the same.

A vector of bytes or halves that a local array takes apart is held whole: taking it apart is work that waits for it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.kloop.load_stream import LoadStream, Register, Source, StreamStore
from tilewright.source import ir
from tilewright.source.c_types import int_kind, size_of
from tilewright.source.edits import Edit

_INT_BITS = 32
_INT_BYTES = _INT_BITS // 8
_MOST = 127  # fits every integer type


def narrow_fill(value: ir.Expr | None, type_text: str, aliases: Mapping[str, str]) -> list[Edit]:
    """The fill of a chosen value cast to the type that is stored, where that is narrower than an int."""
    kind = int_kind(type_text, dict(aliases))
    if kind is None or kind.bits >= _INT_BITS or not isinstance(value, ir.Ternary):
        return []
    return [
        Edit(x.span.start, x.span.start, f"({type_text})")
        for x in (value.then, value.otherwise)
        if isinstance(x, ir.Number) and isinstance(x.value, int) and 0 <= x.value <= _MOST
    ]


def narrow_locals(body: Iterable[ir.Stmt], aliases: Mapping[str, str]) -> list[Edit]:
    """The same for locals that a load phase declares with such a value."""
    symbols = (s for stmt in body for n in ir.walk(stmt) if isinstance(n, ir.Declare) for s in n.symbols)
    plain = (s for s in symbols if not (s.pointers or s.dims or s.reference) and s.init is not None)
    return [e for s in plain for e in narrow_fill(s.init, s.type_text.replace("const", "").strip(), aliases)]


@dataclass(frozen=True)
class Group:
    """Stores of the elements of one vector, which a local array takes apart.

    Attributes:
        register: the vector. stores: numbers of the stores, in order of the text.
    """

    register: Register
    stores: tuple[int, ...]

    def whole(self) -> str:
        """The vector in the local array."""
        return (
            f"reinterpret_cast<const {self.register.type_text} &>({self.register.symbol.name}[{self.register.first}])"
        )

    def lane(self, store: StreamStore, held: str) -> str:
        """What a store takes of the vector that is held."""
        assert isinstance(store.source, Source)
        return f"reinterpret_cast<const {store.type_text} *>(&{held})[{store.source.lane}]"


def narrow_groups(
    stream: LoadStream, sides: Sequence[frozenset[tuple[int, bool]]], aliases: Mapping[str, str]
) -> list[Group]:
    """Vectors whose elements are narrower than a register and are stored one by one, all under one condition."""
    found: dict[tuple[int, int | None], list[int]] = {}
    for number, store in enumerate(stream.stores):
        source = store.source
        if isinstance(source, Source) and source.register is not None and source.lane is not None:
            found.setdefault(source.register, []).append(number)
    out: list[Group] = []
    for key, numbers in found.items():
        register, stores = stream.registers[key], [stream.stores[n] for n in numbers]
        element = size_of(stores[0].type_text, dict(aliases))
        alike = {(s.loops, s.type_text, sides[n]) for n, s in zip(numbers, stores, strict=True)}
        set_before = all(d[0].span.end <= stores[0].stmt.span.start for d in register.definitions)
        narrow = element is not None and element < _INT_BYTES
        narrow = narrow and size_of(register.type_text, dict(aliases)) == register.lanes * (element or 0)
        if (
            register.first is not None
            and len(register.symbol.dims) == 1
            and narrow
            and len(alike) == 1
            and len(numbers) > 1
            and set_before
        ):
            out.append(Group(register, tuple(numbers)))
    return out
