"""Operands of instructions, in the scope where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.ptx.lexer import DEEPEST, NAME, Cursor
from tilewright.ptx.module import (
    Address,
    Group,
    Immediate,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

# PTX ISA, "Special Registers". WARP_SZ is a constant there, not a register.
_SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|clusterid|nclusterid|cluster_n?ctaid)(?:\.[xyzw])?|laneid|warpid|nwarpid|smid|nsmid|gridid"
    r"|lanemask_(?:eq|le|lt|ge|gt)|clock(?:_hi|64)?|pm\d(?:_64)?|envreg(?:[0-9]|[12][0-9]|3[01])|globaltimer(?:_lo|_hi)?"
    r"|total_smem_size|aggr_smem_size|dynamic_smem_size|reserved_smem_offset_\w+|is_explicit_cluster|current_graph_exec"
    r"|cluster_n?ctarank)(?![\w$])"
)
_WARP_THREADS = 32
# A register, a small decimal number, or an address in a register.
_COMMON = re.compile(
    r"\s*(?:(%[\w$]+)|(-?(?:[1-9]\d{0,17}|0))|\[\s*(%[\w$]+)\s*(?:\+\s*(-?(?:[1-9]\d{0,17}|0))\s*)?\])\s*", re.ASCII
)
_DIGITS = "0123456789"
_BRACKET = re.compile(r"[{\[(]|[}\])]|,")
_OPENING = "{[("
_PLUS_OR_MINUS = re.compile(r"[+-]")


@dataclass
class Scope:
    """What names mean between one pair of braces.

    Attributes:
        names: as written → unique register. families: stem as written → (unique stem, count).
        symbols: as written → unique name of a variable of this scope. labels: of this scope alone.
        cache: operands already read here, by their text.
        used: variables and functions that operands of the whole function name → offset in the text.
    """

    parent: Scope | None = None
    names: dict[str, str] = field(default_factory=dict)
    families: dict[str, tuple[str, int]] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    cache: dict[str, Operand] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    is_shared: bool = False

    def inner(self) -> Scope:
        """A scope inside this one; it shares all names until it declares its own (``own``)."""
        return Scope(self, self.names, self.families, self.symbols, {}, self.cache, self.used, is_shared=True)

    def own(self) -> None:
        """Before a declaration: no longer share the parent's tables, and forget what names meant."""
        if self.is_shared:
            self.names, self.families, self.symbols = dict(self.names), dict(self.families), dict(self.symbols)
            self.cache, self.is_shared = {}, False
        else:
            self.cache.clear()

    def register(self, name: str) -> str | None:
        """The unique name of a register, or None where none of this name is declared."""
        found = self.names.get(name)
        if found is not None:
            return found
        stem = name.rstrip(_DIGITS)
        family = self.families.get(stem)
        if family is None:
            return None
        digits = name[len(stem) :]
        if not digits or len(digits) > 9 or int(digits) >= family[1] or (digits[0] == "0" and digits != "0"):
            return None
        return family[0] + digits

    def label(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.labels.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


def operands_of(text: str, scope: Scope, cursor: Cursor, start: int) -> tuple[Operand, ...]:
    """The operands of ``text``, which stands at offset ``start`` of the cursor's text."""
    cache = scope.cache
    pieces = _pieces(text, cursor, start) if "{" in text or "(" in text else text.split(",")
    try:
        return tuple([cache[piece] for piece in pieces])
    except KeyError:
        pass
    if "[" in text:
        pieces = _pieces(text, cursor, start)
    out: list[Operand] = []
    at = start
    for piece in pieces:
        found = cache.get(piece)
        if found is None:
            found = _common(piece, scope) or _whole(piece, scope, cursor, at)
            cache[piece] = found
        out.append(found)
        at += len(piece) + 1
    return tuple(out)


def _common(piece: str, scope: Scope) -> Operand | None:
    """The forms that almost all operands have; None for the others."""
    match = _COMMON.fullmatch(piece)
    if match is None:
        return None
    name, number, base, offset = match.groups()
    if number is not None:
        return Immediate(int(number))
    register = scope.register(name or base)
    if register is None:
        return None
    return Register(register) if name is not None else Address(Register(register), int(offset or 0))


def _pieces(text: str, cursor: Cursor, start: int) -> list[str]:
    """The text between the commas that no bracket encloses."""
    pieces: list[str] = []
    depth = begin = 0
    for match in _BRACKET.finditer(text):
        found = match.group()
        if found == ",":
            if depth == 0:
                pieces.append(text[begin : match.start()])
                begin = match.end()
        elif found in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth < 0:
                cursor.fail("a bracket that was opened", start + match.start())
    if depth:
        cursor.fail("the closing bracket of an operand", start)
    pieces.append(text[begin:])
    return pieces


def _whole(piece: str, scope: Scope, cursor: Cursor, at: int) -> Operand:
    if piece.startswith((" {", "{")) and piece.endswith("}"):
        # The large vectors of matrix instructions: their registers come from the cache.
        inner = piece.strip()[1:-1]
        if inner and "{" not in inner and "(" not in inner and "[" not in inner:
            begin = at + piece.index("{") + 1
            return Vector(operands_of(inner, scope, cursor, begin))
    cursor.pos = at
    operand = _operand(scope, cursor, 0)
    if cursor.skip() < at + len(piece):
        cursor.fail('"," or ";"')
    return operand


def _operand(scope: Scope, cursor: Cursor, depth: int) -> Operand:
    if depth > DEEPEST:
        cursor.fail(f"at most {DEEPEST} nested brackets")
    first = _simple(scope, cursor, depth)
    if cursor.accept("|"):
        return Pair(first, _simple(scope, cursor, depth))
    return first


def _simple(scope: Scope, cursor: Cursor, depth: int) -> Operand:
    if cursor.accept("{"):
        return Vector(_items("}", scope, cursor, depth))
    if cursor.accept("["):
        return _address(scope, cursor, depth)
    if cursor.accept("!"):
        register = scope.register(cursor.name("a predicate"))
        if register is None:
            cursor.fail("a predicate")
        return Register(register, negated=True)
    if cursor.peek("("):
        return _group_or_number(scope, cursor, depth)
    match = cursor.match(NAME)
    if match is None:
        return cursor.expression() if cursor.text[cursor.pos : cursor.pos + 1] in _NUMBER_STARTS else _none(cursor)
    return _named(match, scope, cursor)


_NUMBER_STARTS = tuple("0123456789-+~.")


def _none(cursor: Cursor) -> Operand:
    cursor.fail("an operand")


def _named(match: re.Match[str], scope: Scope, cursor: Cursor) -> Operand:
    name = match.group()
    register = scope.register(name)
    if register is not None:
        return Register(register)
    if name == "_":
        return Sink()
    if name == "WARP_SZ":
        return Immediate(_WARP_THREADS)
    if name[0] == "%":
        special = _SPECIAL.match(cursor.text, match.start())
        if special is None:
            cursor.fail("a declared register or a special register", match.start())
        cursor.pos = special.end()
        return Special(special.group())
    unique = scope.symbols.get(name, name)
    scope.used.setdefault(unique, match.start())
    return Symbol(unique, _offset(cursor))


def _offset(cursor: Cursor) -> int:
    """``+4``, ``+-4``, ``-4``, ``+4*8`` or nothing."""
    if not (cursor.peek("+") or cursor.peek("-")):
        return 0
    value = cursor.expression()
    if value.kind != "int":
        cursor.fail("an offset in bytes")
    return value.value


def _items(closing: str, scope: Scope, cursor: Cursor, depth: int) -> tuple[Operand, ...]:
    out: list[Operand] = []
    if cursor.accept(closing):
        return ()
    while True:
        out.append(_operand(scope, cursor, depth + 1))
        if cursor.accept(closing):
            return tuple(out)
        cursor.expect(",", f'"," or "{closing}"')


def _group_or_number(scope: Scope, cursor: Cursor, depth: int) -> Operand:
    """``(a, b)`` of a call, or a constant in parentheses: ``(3+1)*4``."""
    start = cursor.pos
    cursor.accept("(")
    group = Group(_items(")", scope, cursor, depth))
    if cursor.skip() < len(cursor.text) and cursor.text[cursor.pos] in "*+-<>":
        cursor.pos = start
        return cursor.expression()
    return group


def _address(scope: Scope, cursor: Cursor, depth: int) -> Address:
    base: Register | Symbol | None = None
    if (match := cursor.match(NAME)) is not None:
        named = _named(match, scope, cursor)
        if not isinstance(named, Register | Symbol):
            cursor.fail("a register or a symbol as address", match.start())
        base = named
    offset = 0
    if isinstance(base, Symbol):
        base, offset = Symbol(base.name), base.offset
    elif base is not None:
        offset = _offset(cursor)
    else:
        value = cursor.expression()
        if value.kind != "int":
            cursor.fail("an address")
        offset = value.value
    coordinates: tuple[Operand, ...] = ()
    if cursor.accept(","):
        coordinates = _flat(_items("]", scope, cursor, depth))
    else:
        cursor.expect("]", '"]"')
    return Address(base, offset, coordinates)


def _flat(items: tuple[Operand, ...]) -> tuple[Operand, ...]:
    out: list[Operand] = []
    for item in items:
        out.extend(item.items if isinstance(item, Vector) else (item,))
    return tuple(out)
