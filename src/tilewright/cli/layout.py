"""`tilewright layout LAYOUT`, and its operations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from tilewright.cli import layout_hardware
from tilewright.cli.terminal import emit
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.layout.layout import AnyLayout

NAME = "layout"
EXAMPLE = """Example: tilewright layout "((2,2),4):((1,4),2)"
         tilewright layout divide "(8,16)" "<4,8>" --form zipped
         tilewright layout atom mma.m16n8k16.f16 --svg fragment.svg
         tilewright layout solve --rows 64 --cols 64 --bytes 2 --write rows16 --read ldmatrix

Layouts are in CuTe's notation, in quotes: SHAPE:STRIDE, SHAPE alone (the first mode fastest), or
Sw<B,M,S> o OFFSET o SHAPE:STRIDE. A tiler by mode is <TILE,TILE>, with _ for a mode left as it is.

Exit codes: 0 done; 1 banks has conflicts; 2 bad input, or no layout is the answer; 4 solve found nothing."""

Json = Annotated[bool, Parameter(show_default=False)]
Text = Annotated[str, Parameter(name="LAYOUT")]
A = Annotated[str, Parameter(name="A")]
B = Annotated[str, Parameter(name="B")]


def command() -> App:
    """The verb with its operations as sub-verbs."""
    app = App(name=NAME, help=HELP, help_epilogue=EXAMPLE)
    app.default(show)
    for name, function, example in (*_OPERATIONS, *layout_hardware.OPERATIONS):
        app.command(function, name=name, help_epilogue=f"Example: tilewright layout {name} {example}")
    return app


HELP = """CuTe's layout algebra, thread-value layouts of matrix instructions, bank conflicts, and their solver.

LAYOUT alone is shown: its table of offsets, and a picture with --svg."""


def show(layout: Text, /, *, svg: Path | None = None, json: Json = False) -> int:
    """Show a layout: size, and the offset at each place.

    Parameters
    ----------
    layout
        In CuTe's notation.
    svg
        Draw the table into this file.
    json
        Print the report as one JSON object.
    """
    from tilewright.layout.notation import parse_layout

    return _finish("show", parse_layout(layout), svg, json)


def coalesce(layout: Text, /, *, profile: str | None = None, svg: Path | None = None, json: Json = False) -> int:
    """The same function with as few modes as possible; with a profile such as (1,1), mode by mode."""
    from tilewright.layout import algebra, notation

    kept = None if profile is None else notation.parse_tuple(profile)
    found = algebra.coalesce(notation.parse_plain(layout), kept)
    return _finish(f"coalesce {layout}", found, svg, json)


def filter_zeros(layout: Text, /, *, svg: Path | None = None, json: Json = False) -> int:
    """Drop modes of stride 0 and of size 1, then coalesce: the same set of offsets."""
    from tilewright.layout import algebra, notation

    return _finish(f"filter {layout}", algebra.filter_zeros(notation.parse_plain(layout)), svg, json)


def compose(a: A, b: B, /, *, svg: Path | None = None, json: Json = False) -> int:
    """A o B: the layout R with R(c) = A(B(c)). A may have a swizzle, or be one; B may be a tiler by mode."""
    from tilewright.layout import algebra, notation

    return _finish(f"{a} o {b}", algebra.composition(notation.parse(a), notation.parse_tiler(b)), svg, json)


def complement(
    layout: Text,
    size: Annotated[int, Parameter(name="SIZE")] = 1,
    /,
    *,
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """What is missing: A* such that (A, A*) reaches every offset below SIZE, or a little beyond, once."""
    from tilewright.layout import algebra, notation

    found = algebra.complement(notation.parse_plain(layout), size)
    return _finish(f"complement {layout} {size}", found, svg, json)


def divide(
    a: A,
    b: B,
    /,
    *,
    form: Literal["logical", "zipped", "tiled", "flat"] = "logical",
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """Split A by the tile B: what a tile holds, and which tile.

    Parameters
    ----------
    form
        logical: by mode; zipped: ((TileM,TileN),(RestM,RestN)); tiled: ((TileM,TileN),RestM,RestN); flat: all apart.
    """
    from tilewright.layout import notation, tiling

    found = tiling.divide(notation.parse_plain(a), notation.parse_tiler(b), form)
    return _finish(f"{form} divide {a} by {b}", found, svg, json)


def product(
    a: A,
    b: B,
    /,
    *,
    form: Literal["logical", "zipped", "tiled", "flat", "blocked", "raked"] = "logical",
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """Repeat A over the layout B.

    Parameters
    ----------
    form
        As of divide; blocked: (A,B) in each mode, copies side by side; raked: (B,A), copies interleaved.
    """
    from tilewright.layout import notation, tiling

    found = tiling.product(notation.parse_plain(a), notation.parse_tiler(b), form)
    return _finish(f"{form} product {a} by {b}", found, svg, json)


def right_inverse(layout: Text, /, *, svg: Path | None = None, json: Json = False) -> int:
    """R with A(R(i)) = i, as far as the modes go on from 0 without a gap."""
    from tilewright.layout import algebra, notation

    return _finish(f"right inverse {layout}", algebra.right_inverse(notation.parse_plain(layout)), svg, json)


def left_inverse(layout: Text, /, *, svg: Path | None = None, json: Json = False) -> int:
    """L with L(A(i)) = i, for a layout that gives no offset twice."""
    from tilewright.layout import algebra, notation

    return _finish(f"left inverse {layout}", algebra.left_inverse(notation.parse_plain(layout)), svg, json)


def recast(
    layout: Text,
    old: Annotated[int, Parameter(name="OLD_BITS")],
    new: Annotated[int, Parameter(name="NEW_BITS")],
    /,
    *,
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """The same bytes as elements of another width."""
    from tilewright.layout import notation
    from tilewright.layout.recast import recast as change

    found = change(notation.parse_layout(layout), old, new)
    return _finish(f"recast {layout} from {old} to {new} bits", found, svg, json)


def at(layout: Text, coordinate: Annotated[str, Parameter(name="COORDINATE")], /, *, json: Json = False) -> int:
    """The offset at a coordinate such as (1,(0,2)), or at an index."""
    from tilewright.layout import notation
    from tilewright.layout.tuples import within, written
    from tilewright.receipt.record import to_json

    found, where = notation.parse_layout(layout), notation.parse_tuple(coordinate)
    if not within(where, found.shape):
        raise TilewrightError(
            "layout/coordinate", f"{coordinate} lies outside the shape {written(found.shape)}: each part counts from 0."
        )
    offset = found(where)
    if json:
        emit(to_json({"layout": str(found), "coordinate": where, "offset": offset}))
    else:
        emit(f"{offset}\n")
    return 0


_OPERATIONS = (
    ("show", show, '"(4,8):(8,1)"'),
    ("coalesce", coalesce, '"(2,(1,6)):(1,(6,2))"'),
    ("filter", filter_zeros, '"(2,4):(0,1)"'),
    ("compose", compose, '"(6,2):(8,2)" "(4,3):(3,1)"'),
    ("complement", complement, '"(2,2):(1,6)" 24'),
    ("divide", divide, '"(4,2,3):(2,1,8)" "4:2"'),
    ("product", product, '"(2,2):(4,1)" "6:1"'),
    ("right-inverse", right_inverse, '"(4,8):(8,1)"'),
    ("left-inverse", left_inverse, '"(4,8):(1,8)"'),
    ("recast", recast, '"(8,64):(64,1)" 16 8'),
    ("at", at, '"(4,8):(8,1)" "(1,2)"'),
)


def _finish(operation: str, layout: AnyLayout, svg: Path | None, json: bool) -> int:
    from tilewright.layout.drawing import grid_of_layout
    from tilewright.layout.reports import layout_report
    from tilewright.layout.text import layout_text

    report = layout_report(operation, layout)
    if report.offsets is None and svg is not None:
        raise TilewrightError(
            "layout/too_large", f"{layout} has {layout.size} places; a picture can have at most 65,536."
        )
    grids = [grid_of_layout(layout)] if report.offsets is not None else []
    layout_hardware.finish(report, layout_text(report, grids), grids, svg, json)
    return 0
