"""Tables of a layout: a grid of cells, as aligned text and as a picture (SVG)."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tilewright.layout.atoms import Operand
from tilewright.layout.layout import AnyLayout
from tilewright.layout.tuples import modes, product

CELL_WIDTH, CELL_HEIGHT, MARGIN, TITLE_HEIGHT = 44, 34, 28, 26
WIDEST_TEXT, MOST_CELLS = 300, 4096  # characters, and cells, of a table
EMPTY = "·"
_HUES, _SHADES = 8, 4


@dataclass(frozen=True)
class Cell:
    """Attributes:

    owner: what gives the cell its colour, such as the thread; None of a cell that nobody holds.
    lines: what stands in it, such as ``("T5", "V1")``.
    """

    owner: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Attributes:

    row_name, col_name: of the axes.
    cells: row by row.
    """

    title: str
    row_name: str
    col_name: str
    cells: tuple[tuple[Cell, ...], ...]


def grid_of_layout(layout: AnyLayout, title: str = "") -> Grid:
    """The offset at each (row, column): of a layout of rank 2 its two modes, of one mode a single row."""
    values = layout.offsets()
    rows = product(modes(layout.shape)[0]) if layout.rank >= 2 else 1
    cells = [[Cell(value, (str(value),)) for value in values[row::rows]] for row in range(rows)]
    return Grid(title or str(layout), "row", "col", tuple(map(tuple, cells)))


def grid_of_operand(operand: Operand, title: str) -> Grid:
    """Thread and value of each element of a tile. Where several threads hold one, the first, and how many more."""
    threads = operand.layout[0].size
    holders: dict[int, list[tuple[int, int]]] = {}
    for i, place in enumerate(operand.layout.offsets()):
        holders.setdefault(place, []).append((i % threads, i // threads))
    cells = [
        tuple(_held(holders.get(row + operand.rows * col, [])) for col in range(operand.cols))
        for row in range(operand.rows)
    ]
    return Grid(title, operand.row_name, operand.col_name, tuple(cells))


def _held(holders: list[tuple[int, int]]) -> Cell:
    if not holders:
        return Cell(None, (EMPTY,))
    thread, value = min(holders)
    more = (f"+{len(holders) - 1}",) if len(holders) > 1 else ()
    return Cell(thread, (f"T{thread}", f"V{value}", *more))


def text_of(grid: Grid) -> str:
    """Aligned columns, with the numbers of rows and columns; too large a grid says where else to look."""
    rows, cols = len(grid.cells), len(grid.cells[0])
    too_large = f"({rows} x {cols} cells, too large for a table: --json and --svg have them)"
    if rows * cols > MOST_CELLS:
        return too_large
    body = [["/".join(cell.lines) for cell in row] for row in grid.cells]
    head = [str(col) for col in range(cols)]
    widths = [max(len(line[col]) for line in [head, *body]) for col in range(cols)]
    first = len(str(rows - 1))
    if first + 1 + sum(width + 1 for width in widths) > WIDEST_TEXT:
        return too_large
    lines = [" " * first + "  " + _joined(head, widths)]
    lines += [f"{row:>{first}}  " + _joined(line, widths) for row, line in enumerate(body)]
    return "\n".join(lines)


def _joined(line: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True)).rstrip()


def svg_of(grids: Sequence[Grid]) -> str:
    """A picture: each grid below the one before, a colour for each thread (32 colours, then they repeat)."""
    parts: list[str] = []
    top = 0
    width = 0
    for grid in grids:
        parts += _drawn(grid, top)
        width = max(width, MARGIN + CELL_WIDTH * len(grid.cells[0]) + 8, 8 * len(_heading(grid)) + 8)
        top += TITLE_HEIGHT + MARGIN + CELL_HEIGHT * len(grid.cells) + 12
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" '
        'font-family="monospace" font-size="11" text-anchor="middle">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{top}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _heading(grid: Grid) -> str:
    return f"{grid.title}   ({grid.row_name} down, {grid.col_name} across)"


def _drawn(grid: Grid, top: int) -> list[str]:
    y0 = top + TITLE_HEIGHT + MARGIN
    parts = [
        f'<text x="4" y="{top + 18}" font-size="13" text-anchor="start">{escape(_heading(grid))}</text>',
    ]
    for col in range(len(grid.cells[0])):
        x = MARGIN + col * CELL_WIDTH + CELL_WIDTH // 2
        parts.append(f'<text x="{x}" y="{y0 - 6}">{col}</text>')
    for i, row in enumerate(grid.cells):
        y = y0 + i * CELL_HEIGHT
        parts.append(f'<text x="{MARGIN // 2}" y="{y + CELL_HEIGHT // 2 + 4}">{i}</text>')
        for j, cell in enumerate(row):
            parts += _cell(cell, MARGIN + j * CELL_WIDTH, y)
    return parts


def _cell(cell: Cell, x: int, y: int) -> list[str]:
    fill = "white" if cell.owner is None else color_of(cell.owner)
    box = f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="{fill}" stroke="black"/>'
    step = 13
    first = y + CELL_HEIGHT // 2 + 4 - (len(cell.lines) - 1) * step // 2
    middle = x + CELL_WIDTH // 2
    return [
        box,
        *(f'<text x="{middle}" y="{first + i * step}">{escape(line)}</text>' for i, line in enumerate(cell.lines)),
    ]


def color_of(owner: int) -> str:
    """``#rrggbb``: eight hues, and four shades of each; light enough for black text."""
    shade = owner // _HUES % _SHADES
    red, green, blue = colorsys.hls_to_rgb(owner % _HUES / _HUES, 0.88 - 0.08 * shade, 0.75)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
