"""CuTe's notation, read: ``((2,2),4):((1,4),2)``, ``Sw<3,4,3> o 0 o (8,64):(64,1)``, tilers ``<4:1, _, (2,2)>``.

A shape without strides is compact, the first mode fastest. ``_8``, as CuTe prints integers that are known to the
compiler, is 8. ``str`` of a layout prints the same notation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.errors import TilewrightError
from tilewright.layout.algebra import Tiler
from tilewright.layout.layout import AnyLayout, ComposedLayout, Layout, Swizzle
from tilewright.layout.tuples import IntTuple, column_major, congruent, written

_TOKEN = re.compile(r"\s*(?:(?P<number>-?_?[0-9]+)|(?P<name>Sw|o\b)|(?P<mark>[(),:<>_]))")
_DEEPEST, _MOST_DIGITS = 50, 18


def parse_layout(text: str) -> AnyLayout:
    """A layout, or a composed one.

    Raises:
        TilewrightError: ``layout/notation``, with the position, counted from 1.
    """
    found = parse(text)
    if isinstance(found, Swizzle):
        raise _Reader(text).error("a swizzle alone; a layout is needed: Sw<B,M,S> o 0 o (8,64):(64,1)", 0)
    return found


def parse_plain(text: str) -> Layout:
    """A layout without a swizzle. Raises TilewrightError as ``parse_layout`` does."""
    found = parse(text)
    if not isinstance(found, Layout):
        raise _Reader(text).error("a swizzle; a plain layout is needed here", 0)
    return found


def parse(text: str) -> AnyLayout | Swizzle:
    """A layout, a composed one, or a swizzle. Raises TilewrightError as ``parse_layout`` does."""
    reader = _Reader(text)
    found = _expression(reader)
    reader.end()
    return found


def parse_tiler(text: str) -> Tiler:
    """A layout, or ``<…>``: one for each mode; ``_`` leaves a mode as it is. Raises TilewrightError likewise."""
    reader = _Reader(text)
    found = _tiler(reader)
    reader.end()
    return found


def parse_tuple(text: str) -> IntTuple:
    """A shape, a coordinate or a profile: ``4``, ``(2,(3,4))``. Raises TilewrightError likewise."""
    reader = _Reader(text)
    found = _tuple(reader)
    reader.end()
    return found


@dataclass
class _Reader:
    text: str
    at: int = 0
    depth: int = field(default=0)

    def peek(self) -> str:
        """The next token; "" at the end."""
        found = _TOKEN.match(self.text, self.at)
        return found[0].strip() if found else ""

    def take(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise self.error("something else")
        self.at = found.end()
        return found[0].strip()

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.take()
        return True

    def expect(self, token: str, why: str) -> None:
        if not self.accept(token):
            raise self.error(f"{token!r} {why}")

    def number(self, what: str) -> int:
        token = self.peek()
        if not re.fullmatch(r"-?_?[0-9]+", token):
            raise self.error(what)
        if len(token) > _MOST_DIGITS:
            raise self.error(f"a number of at most {_MOST_DIGITS} digits")
        return int(self.take().replace("_", ""))

    def end(self) -> None:
        if self.text[self.at :].strip():
            raise self.error("the end")

    def error(self, needed: str, at: int | None = None) -> TilewrightError:
        place = self.at if at is None else at
        place += len(self.text[place:]) - len(self.text[place:].lstrip())
        have = repr(self.text[place : place + 12]) if at is None and self.text[place:] else "the end"
        message = f"Position {place + 1} of {self.text!r}: need {needed}, have {have}."
        if at is not None:
            message = f"{self.text!r} is {needed}."
        return TilewrightError(
            "layout/notation", message, {"position": place + 1}, "Write for example ((2,2),4):((1,4),2)."
        )


def _expression(reader: _Reader) -> AnyLayout | Swizzle:
    if reader.peek() != "Sw":
        return _layout(reader)
    swizzle = _swizzle(reader)
    if not reader.accept("o"):
        return swizzle
    offset = reader.number("the offset of a composed layout, such as 0")
    reader.expect("o", "and a layout after the offset")
    return ComposedLayout(swizzle, offset, _layout(reader))


def _swizzle(reader: _Reader) -> Swizzle:
    reader.take()
    reader.expect("<", "after Sw")
    numbers = [reader.number("a number of bits")]
    for _ in range(2):
        reader.expect(",", "between the three numbers of a swizzle")
        numbers.append(reader.number("a number of bits"))
    reader.expect(">", "after the three numbers of a swizzle")
    return Swizzle(*numbers)


def _layout(reader: _Reader) -> Layout:
    start = reader.at
    shape = _tuple(reader)
    if not reader.accept(":"):
        return Layout(shape, column_major(shape))
    stride = _tuple(reader)
    if not congruent(shape, stride):
        reader.at = start
        raise reader.error(f"a stride that nests as the shape {written(shape)} does, not {written(stride)}")
    return Layout(shape, stride)


def _tuple(reader: _Reader) -> IntTuple:
    if not reader.accept("("):
        return reader.number("a number or '('")
    reader.depth += 1
    if reader.depth > _DEEPEST:
        raise reader.error(f"at most {_DEEPEST} levels")
    parts = [_tuple(reader)]
    while reader.accept(","):
        if reader.peek() == ")":  # (4,) as Python writes it
            break
        parts.append(_tuple(reader))
    reader.expect(")", "or ','")
    reader.depth -= 1
    return tuple(parts)


def _tiler(reader: _Reader) -> Tiler:
    if reader.accept("_"):
        return None
    if not reader.accept("<"):
        return _layout(reader)
    reader.depth += 1
    if reader.depth > _DEEPEST:
        raise reader.error(f"at most {_DEEPEST} levels")
    parts: list[Tiler] = [_tiler(reader)]
    while reader.accept(","):
        parts.append(_tiler(reader))
    reader.expect(">", "or ','")
    reader.depth -= 1
    return tuple(parts)
