"""C expressions of host code in the sidecar's words: ``(N + BN - 1) / BN`` → ``ceil_div(N, BN)``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.launch.expressions import Binary, Call, Name, Node, Number, Unary
from tilewright.source.device_split import words

# A name → what it stands for, or None where it is not known.
Resolve = Callable[[str], Node | None]
# A call of a macro or function of the file: (name, argument texts) → its expansion as text, or None.
Expand = Callable[[str, tuple[str, ...]], str | None]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)(?P<suffix>[uUlLfF]*)"
    r"|(?P<name>(?:::)?[A-Za-z_]\w*(?:\s*(?:::|\.|->)\s*[A-Za-z_]\w*)*)|(?P<symbol><<|>>|[-+*/%(),<>]))"
)
_CAST = words(
    """int unsigned long short size_t float double int32_t int64_t uint32_t uint64_t uint signed char auto const
    std::size_t std::int64_t std::uint32_t"""
)
_CEIL_DIV = re.compile(
    r"(?i)(?:.*_|.*::)?(?:ceil_?div|div_?ceil|cdiv|div_?up|ceil_?divide|round_?up_?div|div_?round_?up)"
)
_MIN_MAX = {"min": "min", "max": "max", "std::min": "min", "std::max": "max"}
_CEIL = {"ceil", "ceilf", "std::ceil", "std::ceilf"}
_LEVELS = {"<<": 0, ">>": 0, "+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_SIZES = {"float": 4, "int": 4, "half": 2, "__half": 2, "nv_bfloat16": 2, "__nv_bfloat16": 2, "double": 8, "char": 1,
          "int8_t": 1, "uint8_t": 1, "unsigned": 4, "float4": 16, "int4": 16, "uint32_t": 4, "int32_t": 4, "float2": 8,
          "half2": 4}  # fmt: skip
_MAX_DEPTH = 12
_MAX_NESTED = 60  # parentheses and signs inside each other; far beyond anything a launch needs


def read_host_expression(
    text: str,
    resolve: Resolve,
    expand: Expand | None = None,
    depth: int = 0,
    is_real: Callable[[str], bool] | None = None,
) -> Node | None:
    """The tree of a C integer expression, or None where it holds what the sidecar's expressions cannot say.

    ``/`` is C's whole division; ``(a + b - 1) / b`` becomes ``ceil_div``, and so do ``ceil(float(a) / b)`` and calls of
    functions with such a name. ``ceil(a / b)`` of whole numbers is what C computes: ``a // b``.

    Args:
        is_real: whether a name is declared as ``float`` or ``double``; what `resolve` gives does not tell.
    """
    try:
        return _whole(_read(text, _Names(resolve, expand, is_real or (lambda _: False)), depth))
    except _Unreadable:
        return None


@dataclass(frozen=True)
class _Names:
    resolve: Resolve
    expand: Expand | None
    is_real: Callable[[str], bool]


def _read(text: str, names: _Names, depth: int) -> Node:
    """The tree with marks: what C computes in floating point is ``float(…)``, and its division ``/``."""
    if depth > _MAX_DEPTH or len(text) > 2000:
        raise _Unreadable
    reader = _Reader(text, names, depth)
    root = reader.expression(0)
    if reader.at < len(reader.tokens):
        raise _Unreadable
    return root


def _is_real(node: Node) -> bool:
    return (isinstance(node, Call) and node.function == "float") or (
        isinstance(node, Number) and isinstance(node.value, float)
    )


def _real(node: Node) -> Node:
    return node if _is_real(node) else Call("float", (node,))


def _bare(node: Node) -> Node:
    """A tree without the mark at its root; 16.0 is 16."""
    if isinstance(node, Call) and node.function == "float":
        return node.arguments[0]
    if isinstance(node, Number) and isinstance(node.value, float) and node.value.is_integer():
        return Number(int(node.value))
    return node


def _whole(node: Node) -> Node:
    """What an integer gets of a value: division rounds down. Quotients that were computed with are not said."""
    if isinstance(node, Number) or not _is_real(node):
        return node
    inner = _bare(node)
    if isinstance(inner, Binary) and inner.operator == "/":
        if _divides(inner.left) or _divides(inner.right):
            raise _Unreadable
        return Binary("//", inner.left, inner.right)
    if _divides(inner):
        raise _Unreadable
    return inner


def _divides(node: Node) -> bool:
    """Whether a tree holds a division in floating point, or a number that is not whole."""
    match node:
        case Binary(operator, left, right):
            return operator == "/" or _divides(left) or _divides(right)
        case Call(_, arguments):
            return any(_divides(a) for a in arguments)
        case Unary(_, operand):
            return _divides(operand)
        case Number(value):
            return isinstance(value, float) and not value.is_integer()
    return False


class _Unreadable(Exception):  # noqa: N818 - internal: becomes None
    pass


class _Reader:
    def __init__(self, text: str, names: _Names, depth: int) -> None:
        self.names, self.depth = names, depth
        self.tokens: list[tuple[str, str]] = []
        self.at = self.nested = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise _Unreadable
            kind = match.lastgroup or ""
            kind = "number" if kind == "suffix" else kind
            self.tokens.append((kind, re.sub(r"\s", "", match[kind])))
            position = match.end()

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def take(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise _Unreadable
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, symbol: str) -> None:
        if self.take()[1] != symbol:
            raise _Unreadable

    def expression(self, level: int) -> Node:
        left = self.unary()
        while (symbol := self.peek()) in _LEVELS and _LEVELS[symbol] >= level:
            self.take()
            left = _combined(symbol, left, self.expression(_LEVELS[symbol] + 1))
        return left

    def unary(self) -> Node:
        self.nested += 1
        if self.nested > _MAX_NESTED:
            raise _Unreadable
        found = self._operand()
        self.nested -= 1
        return found

    def _operand(self) -> Node:
        kind, text = self.take()
        if kind == "number":
            return Number(_number(text))
        if kind == "name":
            return self.name(text)
        if text == "-":
            operand = self.unary()
            return _real(Unary("-", _bare(operand))) if _is_real(operand) else Unary("-", operand)
        if text == "+":
            return self.unary()
        if text != "(":
            raise _Unreadable
        inside = self._until_close()
        if inside and all(word in _CAST for _, word in inside):
            return _cast((word for _, word in inside), self.unary())
        self.at -= len(inside) + 1
        inner = self.expression(0)
        self.expect(")")
        return inner

    def _until_close(self) -> list[tuple[str, str]]:
        """The tokens up to the closing parenthesis, which is taken too."""
        depth, begin = 1, self.at
        while depth:
            _, text = self.take()
            depth += (text == "(") - (text == ")")
        return self.tokens[begin : self.at - 1]

    def name(self, text: str) -> Node:
        if text in ("static_cast", "reinterpret_cast") and self.peek() == "<":
            kinds: list[str] = []
            while (word := self.take()[1]) != ">":
                kinds.append(word)
            return _cast(kinds, self.unary())
        if self.peek() == "(":
            return self.call(text)
        found = self.names.resolve(text.removeprefix("::"))
        if found is None:
            raise _Unreadable
        return _real(found) if self.names.is_real(text) else found

    def call(self, function: str) -> Node:
        self.take()
        if function == "sizeof":
            name = "".join(word for _, word in self._until_close())
            if name not in _SIZES:
                raise _Unreadable
            return Number(_SIZES[name])
        begin, texts = self.at, tuple(_arguments(self._until_close()))
        end = self.at
        if function in _CAST and len(texts) == 1:
            self.at = begin
            inner = self.expression(0)
            self.expect(")")
            return _cast((function,), inner)
        expansion = self.names.expand(function, texts) if self.names.expand is not None else None
        if expansion is not None:
            try:
                return _read(expansion, self.names, self.depth + 1)
            except _Unreadable:
                pass  # a function whose name says what it does may be called
        self.at = begin
        arguments: list[Node] = []
        while self.at < end - 1:
            arguments.append(self.expression(0))
            if self.at < end - 1:
                self.expect(",")
        self.at = end
        return _called(function, tuple(arguments))


def _number(text: str) -> int | float:
    """A literal as C reads it: ``010`` is eight."""
    try:
        if re.fullmatch(r"0\d+", text):
            return int(text, 8)
        value = int(text, 0) if re.fullmatch(r"0[xX][\da-fA-F]+|\d+", text) else float(text)
    except ValueError:
        raise _Unreadable from None
    if math.isinf(value):
        raise _Unreadable
    return value


def _arguments(tokens: list[tuple[str, str]]) -> list[str]:
    texts, depth = [""], 0
    for _, word in tokens:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            texts.append("")
        else:
            texts[-1] += f"{word} "
    return [text.strip() for text in texts if text.strip()]


def _cast(kinds: Iterable[str], node: Node) -> Node:
    """A value as another type: ``(float)`` makes division that of C's floating point, ``(int)`` rounds down."""
    named = set(kinds)
    if named & {"float", "double"}:
        return _real(node)
    return node if "auto" in named else _bare(_whole(node))


def _called(function: str, arguments: tuple[Node, ...]) -> Node:
    if function in _MIN_MAX and arguments:
        found = Call(_MIN_MAX[function], tuple(_bare(_whole(a)) for a in arguments))
        return _real(found) if any(_is_real(a) for a in arguments) else found
    if function in _CEIL and len(arguments) == 1:
        inner = _bare(arguments[0])
        parts = (inner.left, inner.right) if isinstance(inner, Binary) and inner.operator == "/" else ()
        if parts and not any(_divides(part) for part in parts):
            return _real(Call("ceil_div", parts))
        if _divides(inner):
            raise _Unreadable
        return _real(inner)  # whole already: C rounds down before ceil sees it
    if _CEIL_DIV.fullmatch(function) and len(arguments) == 2:
        return Call("ceil_div", tuple(_bare(_whole(a)) for a in arguments))
    raise _Unreadable


def _combined(symbol: str, left: Node, right: Node) -> Node:
    if isinstance(left, Number) and isinstance(right, Number) and symbol != "/":
        return _combined_whole(symbol, left, right)
    if not _is_real(left) and not _is_real(right):
        return _combined_whole(symbol, left, right)
    left, right = _bare(left), _bare(right)
    if symbol == "/":
        return _real(left if right == Number(1) else Binary("/", left, right))
    return _real(_combined_whole(symbol, left, right))


def _combined_whole(symbol: str, left: Node, right: Node) -> Node:
    if symbol in ("<<", ">>"):
        if not isinstance(right, Number) or not isinstance(right.value, int) or not 0 <= right.value < 62:
            raise _Unreadable
        return _combined("*" if symbol == "<<" else "/", left, Number(1 << right.value))
    if isinstance(left, Number) and isinstance(right, Number):
        a, b = left.value, right.value
        if symbol in "+-*":
            return Number({"+": a + b, "-": a - b, "*": a * b}[symbol])
        if symbol == "/" and isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0:
            return Number(a // b)
    if symbol == "/":
        rounded = _rounded_up(left, right)
        return rounded if rounded is not None else left if right == Number(1) else Binary("//", left, right)
    if symbol == "*" and Number(1) in (left, right):
        return right if left == Number(1) else left
    return Binary(symbol, left, right)


def _rounded_up(left: Node, right: Node) -> Node | None:
    """``a + b - 1``, ``a + (b - 1)``, ``b - 1 + a``, ``a - 1 + b`` over ``b``."""
    terms = _terms(left, 1)
    if isinstance(right, Number):
        rest = [t for t in terms if not isinstance(t[1], Number)]
        constant = sum(sign * n.value for sign, n in terms if isinstance(n, Number))
        return Call("ceil_div", (rest[0][1], right)) if constant == right.value - 1 and _single(rest) else None
    if (1, right) not in terms or (-1, Number(1)) not in terms:
        return None
    terms.remove((1, right))
    terms.remove((-1, Number(1)))
    return Call("ceil_div", (terms[0][1], right)) if _single(terms) else None


def _single(terms: list[tuple[int, Node]]) -> bool:
    return len(terms) == 1 and terms[0][0] == 1


def _terms(node: Node, sign: int) -> list[tuple[int, Node]]:
    if isinstance(node, Binary) and node.operator in "+-":
        return _terms(node.left, sign) + _terms(node.right, sign if node.operator == "+" else -sign)
    return [(sign, node)]


_POWERS = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "**": 4}


def shown(node: Node, power: int = 0) -> str:
    """A tree as the text of a sidecar's expression."""
    match node:
        case Number(value):
            return str(value)
        case Name(name):
            return name
        case Unary(operator, operand):
            return f"{operator}{shown(operand, 3)}"
        case Call(function, arguments):
            return f"{function}({', '.join(shown(a) for a in arguments)})"
        case Binary(operator, left, right):
            own = _POWERS[operator]
            text = f"{shown(left, own)} {operator} {shown(right, own + 1)}"
            return f"({text})" if own < power else text
