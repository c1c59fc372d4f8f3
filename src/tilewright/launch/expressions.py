"""The sidecar's expressions: ``ceil_div(N, BN)``. Parsed by a small Pratt parser, never ``eval``-ed.

The grammar is ``+ - * / // % **``, comparisons (1 or 0), parentheses, numbers, the functions of ``FUNCTIONS`` and
names. ``//`` and ``%`` round as Python's do (towards minus infinity). ``/`` is the true division, with one promise: two
integers whose quotient is whole give an integer, exactly. So ``K / BK`` can be a grid size where it divides, and is
reported where it does not.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tilewright.errors import TilewrightError

MAX_LENGTH = 400  # characters; bounds the depth of the tree too
MAX_BITS = 4096  # of an integer result: 9**9**9 must not eat the machine


@dataclass(frozen=True)
class Number:
    value: int | float


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Unary:
    operator: str
    operand: Node


@dataclass(frozen=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple[Node, ...]


Node = Number | Name | Unary | Binary | Call
Value = Callable[[Mapping[str, int | float]], int | float]  # of an expression, given those of its names


@dataclass(frozen=True)
class Place:
    """Where an expression stands: a file and its line, for messages."""

    file: str = ""
    line: int | None = None

    def error(self, reason: str, message: str, hint: str = "") -> TilewrightError:
        facts: dict[str, object] = {}
        if self.file:
            facts["file"] = self.file
        if self.line is not None:
            facts["line"] = self.line
        return TilewrightError(f"launch/{reason}", message, facts, hint)


class _Arithmetic(Exception):  # noqa: N818 - internal; becomes a TilewrightError with its place
    """A value that has no result: a division by zero, a root of a negative number."""


def _ceil_div(a: int | float, b: int | float) -> int | float:
    return -(-a // b)


# name -> (fewest arguments, most arguments or None, function)
Functions = Mapping[str, tuple[int, int | None, Callable[..., int | float]]]
FUNCTIONS: Functions = {
    "ceil_div": (2, 2, _ceil_div),
    "min": (1, None, lambda *values: min(values)),
    "max": (1, None, lambda *values: max(values)),
    "sqrt": (1, 1, math.sqrt),
}
# Of the flags that a variant appends to a launch: the names are those of its tensor maps, 1 where one can be made.
FLAG_FUNCTIONS: Functions = {
    **FUNCTIONS,
    "encodable": (1, None, lambda *values: min(values)),
}

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<symbol>\*\*|//|[=!<>]=|[-+*/%(),<>]))"
)

# Binding powers (left, right): ** binds to the right and tighter than a sign before it, comparisons bind least.
_COMPARISONS: Mapping[str, Callable[[int | float, int | float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_BINARY = {
    **dict.fromkeys(_COMPARISONS, (0, 1)), "+": (1, 2), "-": (1, 2), "*": (3, 4), "/": (3, 4), "//": (3, 4),
    "%": (3, 4), "**": (8, 7),
}  # fmt: skip
_SIGN_POWER = 5
MAX_DEPTH = 60  # nesting; far beyond anything a launch needs


class _Parser:
    def __init__(self, text: str, place: Place) -> None:
        self.text, self.place = text, place
        self.tokens = self._tokens()
        self.next = 0
        self.depth = 0

    def error(self, what: str) -> TilewrightError:
        return self.place.error("bad_expression", f"{what} in the expression '{_short(self.text)}'.")

    def _tokens(self) -> list[tuple[str, str]]:
        if len(self.text) > MAX_LENGTH:
            raise self.error(f"more than {MAX_LENGTH} characters")
        tokens, position, end = [], 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self.error(f"unexpected '{self.text[position:].lstrip()[0]}'")
            kind = match.lastgroup or ""
            tokens.append((kind, match.group(kind)))
            position = match.end()
        if not tokens:
            raise self.place.error("bad_expression", "an expression is empty.")
        return [*tokens, ("end", "the end")]

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.next]

    def take(self) -> tuple[str, str]:
        token = self.tokens[self.next]
        self.next += 1
        return token

    def expect(self, symbol: str) -> None:
        kind, text = self.take()
        if kind == "end" or text != symbol:
            raise self.error(f"'{symbol}' is missing before {text if kind == 'end' else repr(text)}")

    def expression(self, power: int = 0) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error("too deep a nesting")
        left = self.prefix()
        while True:
            kind, text = self.peek()
            if kind != "symbol" or text not in _BINARY or _BINARY[text][0] < power:
                break
            self.take()
            left = Binary(text, left, self.expression(_BINARY[text][1]))
        self.depth -= 1
        return left

    def prefix(self) -> Node:
        kind, text = self.take()
        if kind == "number":
            return Number(_number(text))
        if kind == "name":
            return self.call(text) if self.peek() == ("symbol", "(") else Name(text)
        if text in ("+", "-"):
            return Unary(text, self.expression(_SIGN_POWER))
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        raise self.error(f"unexpected {text if kind == 'end' else repr(text)}")

    def call(self, function: str) -> Call:
        self.expect("(")
        arguments: list[Node] = []
        if self.peek() != ("symbol", ")"):
            arguments.append(self.expression())
            while self.peek() == ("symbol", ","):
                self.take()
                arguments.append(self.expression())
        self.expect(")")
        return Call(function, tuple(arguments))


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text) if text.isdigit() else float(text)


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: as written.
        root: its tree.
        place: the sidecar's file and line, for messages.
    """

    text: str
    root: Node
    place: Place = Place()

    def names(self) -> frozenset[str]:
        """The names that it needs."""
        return self._needed

    def evaluate(self, names: Mapping[str, int | float]) -> int | float:
        """Its value. An unknown name, a division by zero and the like are ``TilewrightError`` with the place."""
        if not self._needed <= names.keys():
            raise _unknown_name(self, min(self._needed - names.keys()), names)
        try:
            return self._value(names)
        except ZeroDivisionError:
            why = "a division by zero"
        except (OverflowError, ValueError):
            why = "out of range"
        except _Arithmetic as error:
            why = str(error)
        raise self.place.error("bad_value", f"'{_short(self.text)}' has no value: {why}.")

    @cached_property
    def _needed(self) -> frozenset[str]:
        return frozenset(_names(self.root))

    @cached_property
    def _value(self) -> Value:
        return _value_of(self.root)

    def __getstate__(self) -> dict[str, object]:
        """Its fields: what was made of them stays in the process."""
        return {"text": self.text, "root": self.root, "place": self.place}

    def evaluate_int(self, names: Mapping[str, int | float]) -> int:
        """Its value, which must be whole."""
        value = self.evaluate(names)
        if isinstance(value, float):
            if not value.is_integer():
                hint = "Use // or ceil_div(a, b)." if "/" in self.text else ""
                message = f"'{_short(self.text)}' is {value:g}, and a whole number is needed."
                raise self.place.error("not_whole", message, hint)
            return int(value)
        return value


def parse(text: str, place: Place | None = None, functions: Functions | None = None) -> Expression:
    """Parse one expression; function names and argument counts are checked here, names when it is evaluated.

    Args:
        functions: those that it may call; ``FUNCTIONS`` by default.
    """
    place = place or Place()
    parser = _Parser(text, place)
    root = parser.expression()
    if parser.peek()[0] != "end":
        raise parser.error(f"unexpected '{parser.peek()[1]}'")
    _check_calls(root, text, place, functions or FUNCTIONS)
    return Expression(text, root, place)


@lru_cache(maxsize=4096)
def parse_once(text: str) -> Expression:
    """`parse`, for what is evaluated again and again, as the costs of a ladder."""
    return parse(text)


def parse_call(text: str, place: Place | None = None) -> tuple[str, tuple[Expression, ...]]:
    """Parse ``name(expression, …)``, whatever the name: the form of a ``fill``."""
    place = place or Place()
    parser = _Parser(text, place)
    kind, name = parser.take()
    if kind != "name" or parser.peek() != ("symbol", "("):
        raise place.error("bad_expression", f"'{_short(text)}' is not of the form name(…).")
    call = parser.call(name)
    if parser.peek()[0] != "end":
        raise parser.error(f"unexpected '{parser.peek()[1]}'")
    for argument in call.arguments:
        _check_calls(argument, text, place, FUNCTIONS)
    return name, tuple(Expression(text, argument, place) for argument in call.arguments)


def _names(node: Node) -> set[str]:
    match node:
        case Name(name):
            return {name}
        case Unary(_, operand):
            return _names(operand)
        case Binary(_, left, right):
            return _names(left) | _names(right)
        case Call(_, arguments):
            return set().union(*(_names(argument) for argument in arguments))
    return set()


def _check_calls(node: Node, text: str, place: Place, functions: Functions) -> None:
    match node:
        case Unary(_, operand):
            _check_calls(operand, text, place, functions)
        case Binary(_, left, right):
            _check_calls(left, text, place, functions)
            _check_calls(right, text, place, functions)
        case Call(function, arguments):
            if function not in functions:
                message = f"'{function}' is not a function of expressions; they have {', '.join(functions)}."
                raise place.error("unknown_function", message)
            fewest, most, _ = functions[function]
            if len(arguments) < fewest or (most is not None and len(arguments) > most):
                need = f"{fewest}" if most == fewest else f"at least {fewest}"
                message = f"{function} takes {need} arguments and got {len(arguments)} in '{_short(text)}'."
                raise place.error("bad_expression", message)
            for argument in arguments:
                _check_calls(argument, text, place, functions)


def _unknown_name(expression: Expression, name: str, names: Mapping[str, object]) -> TilewrightError:
    from difflib import get_close_matches

    shown = ", ".join(sorted(names)[:30]) or "no name"
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    close = get_close_matches(name, list(names), n=1)
    hint = f"Did you mean '{close[0]}'?" if close else "Add it to the size sets, or use a constant of the file."
    message = f"the name '{name}' in '{_short(expression.text)}' is not known; known are {shown}{more}."
    return expression.place.error("unknown_name", message, hint)


def _value_of(node: Node) -> Value:
    """A function that is quicker than a walk through the tree: expressions are evaluated by the thousand."""
    match node:
        case Number(value):
            return lambda _: value
        case Name(name):
            return operator.itemgetter(name)
        case Unary(symbol, operand):
            of = _value_of(operand)
            return (lambda names: -of(names)) if symbol == "-" else of
        case Binary(symbol, left, right):
            return _binary(symbol, _value_of(left), _value_of(right))
        case Call(function, arguments):
            call = FLAG_FUNCTIONS[function][2]
            values = [_value_of(argument) for argument in arguments]
            if len(values) == 2:
                first, second = values
                return lambda names: _bounded(call(first(names), second(names)))
            return lambda names: _bounded(call(*[value(names) for value in values]))


def _binary(symbol: str, left: Value, right: Value) -> Value:
    if symbol in _COMPARISONS:
        compare = _COMPARISONS[symbol]
        return lambda names: int(compare(left(names), right(names)))
    compute = _ARITHMETIC[symbol]
    return lambda names: _bounded(compute(left(names), right(names)))


def _quotient(a: int | float, b: int | float) -> int | float:
    whole = isinstance(a, int) and isinstance(b, int) and a % b == 0
    return a // b if whole else a / b


def _power(a: int | float, b: int | float) -> int | float:
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > MAX_BITS:
        raise _Arithmetic("out of range")
    result = a**b
    if isinstance(result, complex):
        raise _Arithmetic("a root of a negative number")
    return result


_ARITHMETIC: Mapping[str, Callable[[Any, Any], int | float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "//": operator.floordiv,
    "%": operator.mod, "**": _power,
}  # fmt: skip


def _bounded(value: int | float) -> int | float:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise _Arithmetic("out of range")
    elif not math.isfinite(value):
        raise _Arithmetic("out of range")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
