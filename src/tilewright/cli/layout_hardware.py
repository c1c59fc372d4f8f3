"""`tilewright layout`: the operations that know hardware: atoms, tiled copies and mmas, banks, the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.terminal import emit
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_REFUSED, TilewrightError

if TYPE_CHECKING:
    from tilewright.layout.atoms import Operand
    from tilewright.layout.drawing import Grid
    from tilewright.layout.reports import ThreadsReport

Json = Annotated[bool, Parameter(show_default=False)]


def finish(report: object, text: str, grids: Sequence[Grid], svg: Path | None, json: bool) -> None:
    """Print a report, as text or JSON, and draw its grids into a file, whole or not at all."""
    from tilewright.receipt.record import to_json

    if svg is not None:
        from tilewright.layout.drawing import svg_of

        partial = svg.with_name(f".{svg.name}.partial")
        try:
            partial.write_text(svg_of(grids), encoding="utf-8")
            partial.replace(svg)
        except OSError as error:
            error.filename = str(svg)  # the name that was asked for
            raise
        finally:
            partial.unlink(missing_ok=True)
    emit(to_json(report) if json else text)


def atom(
    name: Annotated[str, Parameter(name="ATOM")],
    /,
    *,
    operand: Literal["a", "b", "c", "d"] | None = None,
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """Which thread holds which element of a matrix instruction's operands.

    Parameters
    ----------
    name
        Such as mma.m16n8k16.f16, ldmatrix.x4.trans, wgmma.m64n64k16.bf16; `layout atoms` lists them.
    operand
        Only this one: a, b, c; d of ldmatrix and stmatrix.
    """
    from tilewright.layout import atoms, reports

    found = atoms.atom(name)
    if operand is not None and operand not in found.operands:
        have = ", ".join(found.operands)
        raise TilewrightError("layout/unknown_operand", f"{name} has the operands {have}, not {operand}.")
    operands = {key: value for key, value in found.operands.items() if operand in (None, key)}
    report = reports.atom_report(atoms.Atom(found.name, found.threads, operands, found.source, found.notes))
    return _threads(report, operands, svg, json)


def atoms_list(*, json: Json = False) -> int:
    """List the atoms whose layouts are known."""
    from tilewright.layout.atoms import atom_names
    from tilewright.receipt.record import to_json

    names = atom_names()
    if json:
        emit(to_json({"atoms": names}))
        return EXIT_OK
    emit("\n".join(names) + "\n\nwgmma also with n = 8, 16, … 256. WMMA fragments are opaque: they have no layout.\n")
    return EXIT_OK


def smem(
    mode: Annotated[Literal["none", "32B", "64B", "128B"], Parameter(name="MODE")],
    element: Annotated[str, Parameter(name="ELEMENT")] = "f16",
    /,
    *,
    major: Literal["k", "mn"] = "k",
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """The canonical shared-memory layout of a wgmma operand, with its swizzle, in elements."""
    from tilewright.layout.atoms import wgmma_smem
    from tilewright.layout.drawing import grid_of_layout
    from tilewright.layout.reports import layout_report
    from tilewright.layout.text import layout_text

    layout = wgmma_smem(mode, element, major)
    report = layout_report(f"wgmma shared memory, {mode}, {major}-major, {element}", layout)
    grids = [grid_of_layout(layout)]
    finish(report, layout_text(report, grids), grids, svg, json)
    return EXIT_OK


def tiled_copy(
    *,
    threads: str,
    values: str | None = None,
    atom: str | None = None,
    tile: str | None = None,
    bits: int = 16,
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """Threads over a tile, each with a block of values, or warps with an ldmatrix: the thread-value layout of the copy.

    Parameters
    ----------
    threads
        (row, column) to thread, such as "(16,4):(4,1)"; with --atom, to warp, such as "(2,2)".
    values
        (row, column) to value of one thread, such as "(1,8)".
    atom
        Instead of --values: ldmatrix.x4 or another, which each warp repeats over the tile.
    tile
        With --atom: (rows,columns) of the whole tile.
    bits
        Of an element; with --atom, 16.
    """
    from tilewright.layout import notation, reports, tiled
    from tilewright.layout.atoms import atom as atom_of

    if (values is None) == (atom is None):
        raise TilewrightError("cli/usage", "tiled-copy needs either --values or --atom.", {}, "See `layout --help`.")
    laid = notation.parse_plain(threads)
    if atom is not None:
        operand = tiled.tiled_atom(atom_of(atom), laid, _sizes(tile, 2))
    else:
        assert values is not None
        operand = reports.copy_operand(tiled.tiled_copy(laid, notation.parse_plain(values)), bits)
    name = f"copy {threads} x {values or atom}"
    report = reports.ThreadsReport(name, operand.layout[0].size, (reports.operand_report("tile", operand),))
    return _threads(report, {"tile": operand}, svg, json)


def tiled_mma(
    name: Annotated[str, Parameter(name="ATOM")],
    /,
    *,
    atoms: str = "(1,1,1)",
    tile: str | None = None,
    operand: Literal["a", "b", "c"] | None = None,
    svg: Path | None = None,
    json: Json = False,
) -> int:
    """An mma over several warps, each of which may repeat it: the thread-value layouts of the whole tile.

    Parameters
    ----------
    name
        The atom, such as mma.m16n8k16.f16.
    atoms
        (m, n, k) to warp, such as "(2,2,1)" or "(2,2):(2,1)".
    tile
        (M,N,K) of the whole tile: a multiple of atom times atoms.
    operand
        Only this one.
    """
    from tilewright.layout import notation, reports, tiled
    from tilewright.layout.atoms import atom as atom_of

    found = tiled.tiled_mma(atom_of(name), notation.parse_plain(atoms), _sizes(tile, 3))
    operands = {key: value for key, value in found.operands.items() if operand in (None, key)}
    shown = tiled.TiledMma(found.threads, found.tile, operands)
    return _threads(reports.tiled_mma_report(name, shown), operands, svg, json)


def banks(
    shared: Annotated[str, Parameter(name="SHARED")],
    /,
    *,
    bytes: int,
    threads: str | None = None,
    width: int | None = None,
    pattern: str | None = None,
    write: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """Passes of an access pattern through the 32 banks of shared memory; exit code 1 where there are conflicts.

    Parameters
    ----------
    shared
        Layout of the tile in shared memory, in elements: (row, column) to offset.
    bytes
        Of an element.
    threads
        Thread-value layout: (thread, value) to place of the tile, counted down the columns.
    width
        Bytes of each access of a thread; default: one element.
    pattern
        Instead of --threads: rows16, cols4, ldmatrix, mma.m16n8k16.f16.a, … as `layout solve` has them.
    write
        The tile is written so; default: it is loaded. Loads of 8 and 16 bytes merge where lanes share in pairs.
    """
    from tilewright.layout import notation, reports
    from tilewright.layout.patterns import Tile
    from tilewright.layout.patterns import pattern as pattern_of
    from tilewright.layout.text import banks_text
    from tilewright.layout.tuples import modes, product

    place = notation.parse_layout(shared)
    if (threads is None) == (pattern is None):
        raise TilewrightError(
            "cli/usage", "banks needs either --threads or --pattern.", {}, "See `layout banks --help`."
        )
    if bytes not in (1, 2, 4, 8, 16):
        raise TilewrightError("cli/usage", f"--bytes is 1, 2, 4, 8 or 16, not {bytes}.")
    if threads is not None:
        report = reports.banks_by_threads(place, notation.parse_layout(threads), bytes, width or bytes, write)
    else:
        assert pattern is not None
        if place.rank != 2 or width is not None:
            raise TilewrightError(
                "cli/usage",
                "A pattern needs a SHARED of rows and columns, and has its own width.",
                {"rank": place.rank},
            )
        rows, cols = (product(mode) for mode in modes(place.shape))
        report = reports.banks_by_pattern(place, pattern_of(pattern, Tile(rows, cols, bytes), write), bytes)
    finish(report, banks_text(report), (), None, json)
    return EXIT_OK if report.conflict_free else EXIT_CHECK_FAILED


def solve(
    *,
    rows: int,
    cols: int,
    bytes: int,
    write: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    read: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    json: Json = False,
) -> int:
    """The smallest padding and the simplest swizzle without bank conflicts, proved; exit code 4 where none is.

    Parameters
    ----------
    rows
        Of the tile in shared memory.
    cols
        Of the tile, in elements.
    bytes
        Of an element.
    write
        How it is written: rows16, rows8, rows4 (cooperative copies), stmatrix, cols2, …
    read
        How it is read: ldmatrix, cols4, rows16, a fragment such as mma.m16n8k16.f16.a (.t: transposed).
    """
    from tilewright.layout.patterns import Tile, pattern
    from tilewright.layout.reports import solve_report
    from tilewright.layout.solve import solve as search
    from tilewright.layout.text import solve_text

    tile = Tile(rows, cols, bytes)
    writes = [pattern(name, tile, is_write=True) for name in write]
    report = solve_report(search(tile, [*writes, *(pattern(name, tile) for name in read)]))
    finish(report, solve_text(report), (), None, json)
    return EXIT_REFUSED if report.verdict == "none" else EXIT_OK


OPERATIONS = (
    ("atom", atom, "mma.m16n8k16.f16 --operand a --svg a.svg"),
    ("atoms", atoms_list, "--json"),
    ("smem", smem, "128B f16 --major k"),
    ("tiled-copy", tiled_copy, '--threads "(16,4):(4,1)" --values "(1,8)"'),
    ("tiled-mma", tiled_mma, 'mma.m16n8k16.f16 --atoms "(2,2,1)" --tile "(32,32,16)" --operand c'),
    ("banks", banks, '"(64,64):(64,1)" --bytes 2 --pattern ldmatrix'),
    ("solve", solve, "--rows 64 --cols 64 --bytes 2 --write rows16 --read ldmatrix"),
)


def _sizes(text: str | None, count: int) -> tuple[int, ...] | None:
    """A tile as that many numbers."""
    from tilewright.layout.notation import parse_tuple
    from tilewright.layout.tuples import flatten

    if text is None:
        return None
    sizes = flatten(parse_tuple(text))
    if len(sizes) != count:
        raise TilewrightError("layout/tiled", f"--tile has {count} sizes, such as (64,32,16); have {text}.")
    return sizes


def _threads(report: ThreadsReport, operands: Mapping[str, Operand], svg: Path | None, json: bool) -> int:
    from tilewright.layout.drawing import grid_of_operand
    from tilewright.layout.text import threads_text

    grids = [grid_of_operand(operand, f"{report.name}  {key}: {operand.layout}") for key, operand in operands.items()]
    finish(report, threads_text(report, grids), grids, svg, json)
    return EXIT_OK
