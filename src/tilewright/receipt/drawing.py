"""Plain text for terminals and pipes: aligned tables that keep a width, wrapped lines, colour that can be off.

Plain string formatting instead of a library: the same text must come out of a pipe and of a terminal, and a cached run
must stay quick.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_SGR = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}
LABEL_WIDTH = 11
_GAP = 2


@dataclass(frozen=True)
class Cell:
    """One piece of text and its style (``good``, ``bad``, ``warn``, ``dim``, ``bold`` or empty)."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table: header (two lines at most), cells, and the group it stays with when a table is split."""

    header: str
    cells: tuple[Cell, ...]
    group: int = 0

    @property
    def width(self) -> int:
        """Columns of the terminal that it takes."""
        return max(len(text) for text in (*self.header.split("\n"), *(printable(cell.text) for cell in self.cells)))


@dataclass(frozen=True)
class Pen:
    """How to draw.

    Attributes:
        width: columns that no table and no wrapped line exceeds.
        color: whether escape codes may be written.
    """

    width: int = 100
    color: bool = False

    def paint(self, text: str, style: str) -> str:
        """``text`` in a style, or as it is."""
        if not self.color or not style or not text:
            return text
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m"

    def labelled(self, label: str, text: str, style: str = "") -> list[str]:
        """``label`` in the first column, ``text`` wrapped beside it."""
        lines = self._wrapped(printable(text), self.width - LABEL_WIDTH)
        lead = [label.ljust(LABEL_WIDTH), *[" " * LABEL_WIDTH] * (len(lines) - 1)]
        if len(label) >= LABEL_WIDTH:  # too long for its column: on a line of its own
            return [label, *(" " * LABEL_WIDTH + self.paint(line, style) for line in lines)]
        return [head + self.paint(line, style) for head, line in zip(lead, lines, strict=True)]

    def bullets(self, label: str, texts: Sequence[str]) -> list[str]:
        """Like `labelled`, one dash per text; the label stands once."""
        lines: list[str] = []
        for text in texts:
            wrapped = self._wrapped(printable(text), self.width - LABEL_WIDTH - 2)
            marked = [f"- {wrapped[0]}", *(f"  {line}" for line in wrapped[1:])]
            lines += [(label if not lines else "").ljust(LABEL_WIDTH) + marked[0]]
            lines += [" " * LABEL_WIDTH + line for line in marked[1:]]
        return lines

    def listed(self, label: str, parts: Sequence[str]) -> list[str]:
        """Like `labelled`; a line may break between the parts, never inside one."""
        lines: list[str] = []
        for part in map(printable, parts):
            if lines and len(lines[-1]) + _GAP + len(part) <= self.width - LABEL_WIDTH:
                lines[-1] += " " * _GAP + part
            else:
                lines.append(part)
        return [(label if not number else "").ljust(LABEL_WIDTH) + line for number, line in enumerate(lines)]

    def table(self, columns: Sequence[Column]) -> list[str]:
        """An aligned table; where it is too wide, one table per group, each with the first column."""
        if self.fits(columns):
            return self._table(columns)
        lines: list[str] = []
        for group in dict.fromkeys(column.group for column in columns[1:]):
            lines += [""] if lines else []
            lines += self._table([columns[0], *(column for column in columns[1:] if column.group == group)])
        return lines

    def fits(self, columns: Sequence[Column]) -> bool:
        """Whether the columns stand beside each other within the width."""
        return sum(column.width + _GAP for column in columns) - _GAP <= self.width

    def _table(self, columns: Sequence[Column]) -> list[str]:
        depth = max(column.header.count("\n") for column in columns) + 1
        heads = [["", *column.header.split("\n")][-depth:] for column in columns]
        widths = [column.width for column in columns]
        lines = [self._row([Cell(head[level], "dim") for head in heads], widths) for level in range(depth)]
        return lines + [self._row(row, widths) for row in zip(*(column.cells for column in columns), strict=True)]

    def _row(self, cells: Sequence[Cell], widths: Sequence[int]) -> str:
        parts = []
        for cell, width in zip(cells, widths, strict=True):
            text = printable(cell.text)
            parts.append(self.paint(text, cell.style) + " " * (width - len(text)))
        return (" " * _GAP).join(parts).rstrip()

    @staticmethod
    def _wrapped(text: str, width: int) -> list[str]:
        # Long words (paths, mangled names) stay whole: a path that is cut cannot be copied.
        return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False) or [""]


def printable(text: str) -> str:
    """Without control characters: a file's or kernel's name must not steer the terminal."""
    return "".join(char if char.isprintable() else "?" if char not in "\t\n" else " " for char in text)


def kib(size_bytes: int | None) -> str:
    """``11.5 KiB``; whole numbers without a point; below one KiB in bytes."""
    if size_bytes is None:
        return "-"
    if size_bytes < 1024:
        return f"{size_bytes} B"
    return f"{size_bytes / 1024:.1f}".removesuffix(".0") + " KiB"


def factor(value: float | None) -> str:
    """A speedup, ``1.80x``."""
    return "-" if value is None else f"{value:.2f}x"


def number(value: float | int | None) -> str:
    """Three significant digits at most, a dash for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
