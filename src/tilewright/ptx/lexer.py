"""PTX text as a cursor: comments blanked, numbers read, and errors that name the line."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from typing import NoReturn

from tilewright.errors import TilewrightError
from tilewright.ptx.module import Immediate

# PTX ISA, "Identifiers"; ``%`` and ``$`` may stand inside a name too.
NAME = re.compile(r"[a-zA-Z_$%][\w$]*")
SPACE = re.compile(r"\s*")
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOT_A_NEWLINE = re.compile(r"[^\n]")
_NUMBER = re.compile(
    r"0[fF](?P<f32>[0-9a-fA-F]{8})(?!\w)|0[dD](?P<f64>[0-9a-fA-F]{16})(?!\w)|0[xX](?P<hex>[0-9a-fA-F]+)U?(?!\w)"
    r"|0[bB](?P<bin>[01]+)U?(?!\w)|(?P<real>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)(?!\w)"
    r"|0(?P<oct>[0-7]+)U?(?!\w)|(?P<dec>[1-9]\d*|0)U?(?!\w)",
    re.ASCII,
)
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
# Longest text of a 64-bit number: 64 binary digits and some zeros before them.
_LONGEST_NUMBER = 80
_LONGEST_EXCERPT = 40
# How deep parentheses and braces may be nested; compilers stay below ten.
DEEPEST = 100


def not_ptx(line: int, expected: str, found: str) -> TilewrightError:
    """The error for text that is no PTX, or that is cut off. ``expected`` is a phrase: ``a register``."""
    shown = found.strip().split("\n", 1)[0][:_LONGEST_EXCERPT]
    what = f'"{shown}"' if shown else "the end of the text"
    return TilewrightError(
        "ptx/not_ptx",
        f"PTX line {line}: expected {expected}, found {what}.",
        {"ptx_line": line, "expected": expected},
        "The PTX is damaged, cut off, or of a kind that Tilewright does not read: compile the kernel again.",
    )


class Cursor:
    """A position in PTX text. Comments are blanked, so that offsets and lines stay as they were."""

    def __init__(self, text: str) -> None:
        self.text = _COMMENT.sub(_blank, text) if "/" in text else text
        self.pos = 0
        self._line_starts: list[int] | None = None

    def line_of(self, pos: int) -> int:
        """Line of an offset, from 1."""
        if self._line_starts is None:
            self._line_starts = [0, *(m.end() for m in re.finditer("\n", self.text))]
        return bisect_right(self._line_starts, pos)

    def fail(self, expected: str, pos: int | None = None) -> NoReturn:
        at = self.pos if pos is None else pos
        match = SPACE.match(self.text, at)
        at = match.end() if match is not None else at
        raise not_ptx(self.line_of(min(at, len(self.text.rstrip()))), expected, self.text[at : at + 200])

    def skip(self) -> int:
        """Leave white space behind; returns the new offset."""
        match = SPACE.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()
        return self.pos

    def peek(self, literal: str) -> bool:
        return self.text.startswith(literal, self.skip())

    def accept(self, literal: str) -> bool:
        if not self.peek(literal):
            return False
        self.pos += len(literal)
        return True

    def expect(self, literal: str, what: str = "") -> None:
        if not self.accept(literal):
            self.fail(what or f'"{literal}"')

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, after white space; the cursor moves behind it."""
        match = pattern.match(self.text, self.skip())
        if match is not None:
            self.pos = match.end()
        return match

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = self.match(pattern)
        if match is None:
            self.fail(what)
        return match

    def name(self, what: str = "a name") -> str:
        return self.take(NAME, what).group()

    def number(self, what: str = "a number") -> Immediate:
        start = self.skip()
        match = self.match(_NUMBER)
        value = _value(match) if match is not None else None
        if value is None:
            self.fail(what, start)
        return value

    def at_number(self) -> bool:
        return _NUMBER.match(self.text, self.skip()) is not None

    def integer(self, what: str = "a number") -> int:
        start = self.skip()
        number = self.number(what)
        if number.kind != "int":
            self.fail(what, start)
        return number.value

    def expression(self, depth: int = 0) -> Immediate:
        """A constant expression of sums, products, shifts and parentheses; a single number of any kind.

        Precedence is C's, ``<<`` below ``+`` below ``*`` (PTX ISA, "Constant Expressions").
        """
        value = self._sum(depth)
        while value.kind == "int" and (shift := self.match(_SHIFT)) is not None:
            by = self._integer(self._sum(depth))
            if not 0 <= by < 64:
                self.fail("a shift of 0 to 63")
            value = self._wrapped(value.value << by if shift.group() == "<<" else value.value >> by)
        return value

    def _sum(self, depth: int) -> Immediate:
        value = self._product(depth)
        while value.kind == "int" and (sign := self.match(_SIGN)) is not None:
            term = self._integer(self._product(depth))
            value = self._wrapped(value.value + term if sign.group() == "+" else value.value - term)
        return value

    def _product(self, depth: int) -> Immediate:
        value = self._factor(depth)
        while value.kind == "int" and self.accept("*"):
            value = self._wrapped(value.value * self._integer(self._factor(depth)))
        return value

    def _factor(self, depth: int) -> Immediate:
        if depth > DEEPEST:
            self.fail(f"at most {DEEPEST} nested parentheses")
        if self.accept("-"):
            return _negative(self._factor(depth + 1))
        if self.accept("+"):
            return self._factor(depth + 1)
        if self.accept("~"):
            return Immediate(~self._integer(self._factor(depth + 1)))
        if self.accept("("):
            value = self.expression(depth + 1)
            self.expect(")")
            return value
        return self.number("a number")

    def _integer(self, value: Immediate) -> int:
        if value.kind != "int":
            self.fail("an integer")
        return value.value

    def _wrapped(self, value: int) -> Immediate:
        if not -(1 << 64) < value < 1 << 64:
            self.fail("a constant of at most 64 bits")
        return Immediate(value)


_SIGN = re.compile(r"[+-]")
_SHIFT = re.compile(r"<<|>>")


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    return text if text[0] == '"' else _NOT_A_NEWLINE.sub(" ", text)


def _value(match: re.Match[str]) -> Immediate | None:
    """The number of a match; None where it has more than 64 bits."""
    kind = match.lastgroup or ""
    digits = match.group(kind)
    if len(digits) > _LONGEST_NUMBER:
        return None
    if kind in ("f32", "f64"):
        return Immediate(int(digits, 16), "f32" if kind == "f32" else "f64")
    if kind == "real":
        return Immediate(int.from_bytes(struct.pack("<d", float(digits)), "little"), "f64")
    value = int(digits, _BASES[kind])
    return Immediate(value) if value < 1 << 64 else None


def _negative(value: Immediate) -> Immediate:
    if value.kind == "int":
        return Immediate(-value.value)
    return Immediate(value.value ^ (1 << (31 if value.kind == "f32" else 63)), value.kind)
