"""Integer constants of a file: ``#define``, ``constexpr``, ``const``, enumerators, template arguments.

Evaluated as C++ does: with the types' widths and signs. What overflows a signed type, or is no integer, has no value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.source import ir
from tilewright.source.c_types import IntKind, common, int_kind, size_of
from tilewright.source.nodes import number

if TYPE_CHECKING:
    from tilewright.source.definitions import TemplateParameter
    from tilewright.source.parse import ParsedKernel

INT = IntKind(32, False)
_SIZE = IntKind(64, True)
_MAX_CALLS = 8  # of constexpr functions inside each other
_EXTREMA = {"min": min, "max": max, "std::min": min, "std::max": max}
_COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
_CONSTANT_WORDS = {"const", "constexpr"}
_INCONSTANT_WORDS = {"volatile", "__constant__", "__managed__", "extern"}


@dataclass(frozen=True)
class Evaluable:
    """A ``constexpr`` function: what a call of it is worth can be worked out where it is one ``return``."""

    template: tuple[TemplateParameter, ...]
    returns: str
    parsed: ParsedKernel

    @property
    def types(self) -> set[str]:
        return {p.name for p in self.template if p.kind == "type"}


@dataclass(frozen=True)
class _Frame:
    """What the names of a function that is being evaluated are worth: its parameters, its template arguments."""

    params: dict[int, Value]
    names: dict[str, Value]


@dataclass(frozen=True)
class Value:
    """An integer and its type."""

    number: int
    kind: IntKind


def _fitted(number: int, kind: IntKind) -> Value | None:
    """The result of arithmetic: unsigned types wrap, signed ones must not overflow."""
    wrapped = kind.wrap(number)
    return Value(wrapped, kind) if kind.unsigned or wrapped == number else None


def _divide(a: int, b: int) -> int:
    """C's division: towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _arithmetic(op: str, a: int, b: int) -> int | None:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/" if b:
            return _divide(a, b)
        case "%" if b:
            return a - b * _divide(a, b)
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
    return None


def _compare(op: str, a: int, b: int) -> bool:
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op]


def _binary(op: str, left: Value, right: Value) -> Value | None:
    if op in ("<<", ">>"):
        kind = left.kind.promoted()
        if not 0 <= right.number < kind.bits:
            return None
        return _fitted(left.number << right.number if op == "<<" else left.number >> right.number, kind)
    kind = common(left.kind, right.kind)
    a, b = kind.wrap(left.number), kind.wrap(right.number)
    if op in _COMPARISONS:
        return Value(int(_compare(op, a, b)), INT)
    number = _arithmetic(op, a, b)
    return None if number is None else _fitted(number, kind)


def literal_kind(text: str, number: int) -> IntKind:
    """The type of an integer literal, by its suffix and size."""
    body = text.lower().replace("'", "")
    suffix = re.sub(r"^(?:0x[0-9a-f]*|0b[01]*|\d+)", "", body)
    unsigned_only, long = "u" in suffix, "l" in suffix
    based = body.startswith("0") and len(body) > 1
    for bits in (64,) if long else (32, 64):
        for unsigned in (True,) if unsigned_only else ((False, True) if based else (False,)):
            kind = IntKind(bits, unsigned)
            if kind.wrap(number) == number:
                return kind
    return _SIZE


class Constants:
    """Evaluates integer constant expressions.

    Args:
        values: names already known: template arguments, ``-D`` definitions of the sidecar.
        named: (declared type, initialiser) of the file's constants, by name; "" where a macro or enumerator has none.
        symbols: the kernel's symbols, for constants declared in it.
        aliases: ``using``/``typedef`` names, for ``sizeof``.
        functions: ``constexpr`` functions that have one definition, by name.

    Attributes:
        used: names without a symbol whose value some evaluation relied on, as the kernel writes them. The compiler is
            asked to confirm them.
    """

    def __init__(
        self,
        values: Mapping[str, int],
        named: Mapping[str, tuple[str, ir.Expr]],
        symbols: Mapping[int, ir.Symbol],
        aliases: dict[str, str],
        functions: Mapping[str, Evaluable] | None = None,
    ) -> None:
        self._functions = dict(functions or {})
        self._frames: list[_Frame] = []
        self._values = dict(values)
        self._named = dict(named)
        self._symbols = symbols
        # A name that the kernel declares too means different things at different places.
        self._shadowed = {s.name for s in symbols.values()}
        self.aliases = aliases
        self.used: set[str] = set()
        self._busy: set[str] = set()

    def names(self) -> dict[str, int]:
        """Every name with an integer value, for the sidecar's expressions."""
        out = dict(self._values)
        for name in self._named:
            value = self._by_name(name)
            if value is not None:
                out[name] = value.number
        return out

    def by_name(self, name: str) -> int | None:
        value = self._by_name(name)
        if value is None:
            return None
        self.used.add(name)
        return value.number

    def _by_name(self, name: str) -> Value | None:
        if name in self._values:
            return Value(self._values[name], literal_kind("", abs(self._values[name])))
        if name not in self._named or name in self._busy:
            return None
        self._busy.add(name)
        try:
            kind, init = self._named[name]
            return self._converted(kind, self._value(init)) if kind else self._value(init)
        finally:
            self._busy.discard(name)

    def evaluate(self, expr: ir.Expr) -> int | None:
        """The value of an integer constant expression, or None where it is none."""
        value = self._value(expr)
        return None if value is None else value.number

    def is_index(self, type_text: str) -> bool:
        """Whether a variable of that type holds any index as it is: an integer of 32 bits or more."""
        if "auto" in type_text.split():
            return True
        kind = int_kind(type_text, self.aliases)
        return kind is not None and kind.bits >= 32

    def kind(self, expr: ir.Expr) -> IntKind | None:
        """The type of an integer constant expression, or None where it is none."""
        value = self._value(expr)
        return None if value is None else value.kind

    def _converted(self, type_text: str, value: Value | None) -> Value | None:
        """The value as the type holds it; None where that is no integer type."""
        if value is None:
            return None
        if "auto" in type_text.split():
            return value
        kind = int_kind(type_text, self.aliases)
        if kind is None:
            return None
        return Value(int(value.number != 0), kind) if kind.bits == 1 else Value(kind.wrap(value.number), kind)

    def _value(self, expr: ir.Expr) -> Value | None:
        match expr:
            case ir.Number(value=bool(v)):
                return Value(int(v), IntKind(1, True))
            case ir.Number(value=int(v), text=t):
                return Value(v, literal_kind(t, v))
            case ir.Name(id=name, symbol=None):
                return self._global(name)
            case ir.Name(symbol=int(s)):
                return self._local(s)
            case ir.Cast(type_text=t, operand=x) if "*" not in t and "&" not in t:
                return self._converted(t, self._value(x))
            case ir.Unary(op=op, operand=x):
                return self._unary(op, self._value(x))
            case ir.Binary(op="&&" | "||" as op, left=a, right=b):
                return self._logical(op, a, b)
            case ir.Binary(op=op, left=a, right=b):
                left, right = self._value(a), self._value(b)
                return None if left is None or right is None else _binary(op, left, right)
            case ir.Ternary(condition=c, then=a, otherwise=b):
                return self._chosen(c, a, b)
            case ir.Call(callee=f, args=(a, b)) if f in _EXTREMA:
                left, right = self._value(a), self._value(b)
                if left is None or right is None or left.kind != right.kind:
                    return None
                return Value(_EXTREMA[f](left.number, right.number), left.kind)
            case ir.Call(callee=f, args=args) if f.split("<")[0].split("::")[-1] in self._functions:
                return self._called(f, args)
            case ir.InitList(items=(x,)):
                return self._value(x)
            case ir.SizeOf(type_text=t):
                size = size_of(t, self.aliases)
                return None if size is None else Value(size, _SIZE)
        return None

    def _called(self, callee: str, args: tuple[ir.Expr, ...]) -> Value | None:
        """What a call of a ``constexpr`` function is worth; None where that is not one ``return`` of integers."""
        function = self._functions[callee.split("<")[0].split("::")[-1]]
        body, params = function.parsed.body.body, function.parsed.params
        result = body[0].value if len(body) == 1 and isinstance(body[0], ir.Jump) else None
        values = [p for p in function.template if p.kind == "value"]
        written = re.findall(r"[^,<>]+", callee.partition("<")[2]) if "<" in callee else []
        if result is None or function.parsed.errors or len(args) != len(params) or len(self._frames) > _MAX_CALLS:
            return None
        if len(written) != len(values) or (values and function.types):
            return None
        names = {p.name: self._template_value(p.type_text, w.strip()) for p, w in zip(values, written, strict=True)}
        held: dict[int, Value] = {}
        deduced: dict[str, IntKind] = {}
        for p, arg in zip(params, args, strict=True):
            value = self._value(arg)
            own = function.types & set(p.type_text.split())
            if value is not None and not own:
                value = self._converted(p.type_text, value)
            if value is None or p.pointers or p.dims:
                return None
            if any(deduced.setdefault(t, value.kind) != value.kind for t in own):
                return None
            held[p.id] = value
        if any(v is None for v in names.values()):
            return None
        self._frames.append(_Frame(held, {n: v for n, v in names.items() if v is not None}))
        try:
            out = self._value(result)
        finally:
            self._frames.pop()
        own = function.types & set(function.returns.split())
        if own:
            kind = deduced.get(own.pop())
            return None if out is None or kind is None else Value(kind.wrap(out.number), kind)
        return self._converted(function.returns, out)

    def _template_value(self, type_text: str, written: str) -> Value | None:
        """A template argument that is a number or a name."""
        literal = number(written)
        if isinstance(literal, int):
            return self._converted(type_text, Value(literal, literal_kind(written, literal)))
        found = [s for s in self._symbols.values() if s.name == written]
        symbol = found[0].id if len(found) == 1 and not self._frames else None
        if not re.fullmatch(r"[A-Za-z_]\w*", written) or len(found) > 1:
            return None
        return self._converted(type_text, self._value(ir.Name(ir.Span(0, 0), written, symbol)))

    def _unary(self, op: str, value: Value | None) -> Value | None:
        if value is None:
            return None
        kind = value.kind.promoted()
        match op:
            case "-":
                return _fitted(-value.number, kind)
            case "+":
                return Value(value.number, kind)
            case "!":
                return Value(int(not value.number), INT)
            case "~":
                return Value(kind.wrap(~value.number), kind)
        return None

    def _logical(self, op: str, a: ir.Expr, b: ir.Expr) -> Value | None:
        left = self._value(a)
        if left is None:
            return None
        if bool(left.number) == (op == "||"):
            return Value(int(op == "||"), INT)
        right = self._value(b)
        return None if right is None else Value(int(bool(right.number)), INT)

    def _chosen(self, condition: ir.Expr, a: ir.Expr, b: ir.Expr) -> Value | None:
        cond, left, right = self._value(condition), self._value(a), self._value(b)
        if cond is None or left is None or right is None:
            return None
        kind = common(left.kind, right.kind)
        return Value(kind.wrap((left if cond.number else right).number), kind)

    def _global(self, name: str) -> Value | None:
        if self._frames:  # inside a function, whose names are not the kernel's
            value = self._frames[-1].names.get(name) or self._by_name(name)
            if name in self._values and name not in self._frames[-1].names:
                self.used.add(name)
            return value
        if name in self._shadowed:
            return None
        value = self._by_name(name)
        if value is not None and not self._busy:  # inside another constant, that one's value is what counts
            self.used.add(name)
        return value

    def _local(self, symbol_id: int) -> Value | None:
        if self._frames:
            return self._frames[-1].params.get(symbol_id)
        symbol = self._symbols.get(symbol_id)
        if symbol is None or symbol.init is None or symbol.pointers or symbol.dims or symbol.kind != "local":
            return None
        if not is_constant_type(symbol.type_text):
            return None
        return self._converted(symbol.type_text, self._value(symbol.init))


def is_constant_type(type_text: str) -> bool:
    """Whether a declaration makes a constant, so that its initialiser is its value for good."""
    words = set(type_text.split())
    return bool(words & _CONSTANT_WORDS) and not words & _INCONSTANT_WORDS
