"""Tiled copies and tiled mmas: an atom, repeated over threads and values."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.layout.algebra import compose, right_inverse
from tilewright.layout.atoms import Atom, Operand
from tilewright.layout.layout import Layout, bundle, compact
from tilewright.layout.tiling import product
from tilewright.layout.tuples import modes
from tilewright.layout.tuples import product as size_of

# More places than a tile of any block has; numberings are checked place by place.
_MOST_PLACES = 1 << 18


@dataclass(frozen=True)
class TiledCopy:
    """Attributes:

    layout: (thread, value) to element of the tile, counted down the columns.
    rows, cols: of the tile.
    """

    layout: Layout
    rows: int
    cols: int


def tiled_copy(threads: Layout, values: Layout) -> TiledCopy:
    """Threads laid out over a tile, each with a block of values (CuTe's ``make_tiled_copy``).

    Args:
        threads: (row, column) to thread, such as ``(16,4):(4,1)``; values: (row, column) to value, such as ``(1,8)``.

    Raises:
        TilewrightError: ``layout/tiled``, where either does not number its threads or values without gaps, or has other
            modes than rows and columns.
    """
    for what, layout in (("threads", threads), ("values", values)):
        if layout.rank > 2 or not _numbers_each_once(layout):
            raise TilewrightError(
                "layout/tiled",
                f"The {what} {layout} must be of rows and columns, and number each place once, from 0 to "
                f"{layout.size - 1}.",
            )
    if threads.size * values.size > _MOST_PLACES:
        raise TilewrightError("layout/tiled", f"A tile has at most {_MOST_PLACES} places.")
    threads, values = _of_rank_two(threads), _of_rank_two(values)
    # Of a place of the tile: thread + threads.size · value; its inverse, of thread and value: the place.
    placed = product(threads, values, "raked")
    layout = compose(right_inverse(placed), compact((threads.size, values.size)))
    rows, cols = (size_of(mode) for mode in modes(placed.shape))
    return TiledCopy(layout, rows, cols)


def tiled_atom(atom: Atom, warps: Layout, tile: tuple[int, ...] | None = None) -> Operand:
    """A matrix move (ldmatrix, stmatrix) over several warps, each of which repeats it over a tile.

    Args:
        warps: (row, column) to warp, such as ``(2,2)``.
        tile: (rows, columns); a multiple of the atom's own times ``warps``; None: one atom for each warp.

    Raises:
        TilewrightError: ``layout/tiled``, as of ``tiled_mma``.
    """
    if set(atom.operands) != {"d"}:
        raise TilewrightError("layout/tiled", f"{atom.name} moves no matrix: take ldmatrix or stmatrix.")
    own = atom.operands["d"]
    if warps.rank > 2 or not _numbers_each_once(warps):
        raise TilewrightError("layout/tiled", f"{warps} must number the warps of (rows, columns), each once from 0 on.")
    numbers = bundle(*(warps[i] for i in range(warps.rank)), *(Layout(1, 0),) * (3 - warps.rank))
    counts = [size_of(mode) for mode in modes(numbers.shape)]
    whole = _tile((own.rows * counts[0], own.cols * counts[1]), tile)
    return _spread(own, (0, 1), counts, (whole[0], whole[1]), numbers)


def _numbers_each_once(layout: Layout) -> bool:
    return layout.size <= _MOST_PLACES and sorted(layout.offsets()) == list(range(layout.size))


def _tile(least: tuple[int, ...], asked: tuple[int, ...] | None) -> tuple[int, ...]:
    whole = least if asked is None else asked
    if len(whole) != len(least) or any(have < 1 or have % need for have, need in zip(whole, least, strict=True)):
        raise TilewrightError("layout/tiled", f"The tile {whole} is no multiple of {least}: atom times atoms.")
    return whole


def _of_rank_two(layout: Layout) -> Layout:
    """A layout of one mode is one column."""
    return layout if layout.rank == 2 else bundle(layout, Layout(1, 0))


@dataclass(frozen=True)
class TiledMma:
    """Attributes:

    threads: of the whole.
    tile: (M, N, K).
    operands: by name, for the whole tile.
    """

    threads: int
    tile: tuple[int, int, int]
    operands: dict[str, Operand]


def tiled_mma(atom: Atom, atoms: Layout, tile: tuple[int, ...] | None = None) -> TiledMma:
    """An mma over several warps (or warpgroups), each of which repeats it (CuTe's ``make_tiled_mma``).

    Args:
        atoms: (m, n, k) to the number of the warp that does that atom, such as ``(2,2,1)``.
        tile: (M, N, K) elements; multiples of atom times ``atoms``; None: one atom for each warp. A warp takes atoms
            that stand ``atoms`` apart.

    Raises:
        TilewrightError: ``layout/tiled``, where the atom is no mma, ``atoms`` is no numbering, or the tile no multiple.
    """
    if not {"a", "c"} <= set(atom.operands):
        raise TilewrightError("layout/tiled", f"{atom.name} is no matrix multiply-add.")
    if atoms.rank > 3 or not _numbers_each_once(atoms):
        raise TilewrightError("layout/tiled", f"{atoms} must number the atoms of (m, n, k), each once from 0 on.")
    counts = [size_of(mode) for mode in modes(atoms.shape)] + [1] * (3 - atoms.rank)
    sizes = (atom.operands["c"].rows, atom.operands["c"].cols, atom.operands["a"].cols)
    whole = _tile(tuple(count * size for count, size in zip(counts, sizes, strict=True)), tile)
    numbers = bundle(*(atoms[i] for i in range(atoms.rank)), *(Layout(1, 0),) * (3 - atoms.rank))
    axes = {"a": (0, 2), "b": (1, 2), "c": (0, 1)}
    operands = {
        name: _spread(operand, axes[name], counts, (whole[axes[name][0]], whole[axes[name][1]]), numbers)
        for name, operand in atom.operands.items()
    }
    return TiledMma(atom.threads * atoms.size, (whole[0], whole[1], whole[2]), operands)


def _spread(atom: Operand, axes: tuple[int, int], counts: list[int], tile: tuple[int, int], numbers: Layout) -> Operand:
    """One operand: the atom's own threads and values, then warps, then repetitions."""
    rows, cols = tile
    own = compose(Layout((atom.rows, atom.cols), (1, rows)), atom.layout)
    apart = {axes[0]: atom.rows, axes[1]: atom.cols * rows}
    by_warp = Layout(tuple(counts), tuple(apart.get(axis, 0) for axis in range(3)))
    warps = compose(by_warp, right_inverse(numbers))
    down, across = atom.rows * counts[axes[0]], atom.cols * counts[axes[1]]
    repeats = [Layout(rows // down, down), Layout(cols // across, across * rows)]
    repeats = [part for part in repeats if part.size > 1]
    threads = bundle(own[0], warps) if numbers.size > 1 else own[0]
    values = bundle(own[1], *repeats) if repeats else own[1]
    return Operand(bundle(threads, values), rows, cols, atom.row_name, atom.col_name, atom.bits)
