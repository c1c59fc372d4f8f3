"""Divides and products: a layout taken apart into tiles, and a tile repeated over a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tilewright.errors import TilewrightError
from tilewright.layout.algebra import Tiler, coalesce, complement, compose
from tilewright.layout.layout import Layout, bundle

DivideForm = Literal["logical", "zipped", "tiled", "flat"]
ProductForm = Literal["logical", "zipped", "tiled", "flat", "blocked", "raked"]

Splitter = Callable[[Layout, Tiler], Layout]


def divide(layout: Layout, tiler: Tiler, form: DivideForm = "logical") -> Layout:
    """Split A by the tile B into (what a tile holds, which tile). B of several modes splits by mode.

    Args:
        form: logical: by mode, ((TileM, RestM), (TileN, RestN)); zipped: ((TileM, TileN), (RestM, RestN));
            tiled: ((TileM, TileN), RestM, RestN); flat: (TileM, TileN, RestM, RestN).

    Raises:
        TilewrightError: as ``complement`` and ``composition`` do, where the tile does not divide the layout. A tile
            whose *size* does not divide is rounded up, as CuTe does: the last tile then reaches past the layout.
    """
    if form == "logical":
        return logical_divide(layout, tiler)
    return _gathered(_unzipped(logical_divide, layout, tiler), form)


def product(layout: Layout, tiler: Tiler, form: ProductForm = "logical") -> Layout:
    """Repeat A as often as B has places, laid out as B: (A, which copy). B of several modes repeats by mode.

    Args:
        form: as of ``divide``; blocked: for each mode (A's mode, B's mode), so that tiles stand in blocks; raked: for
            each mode (B's, A's), so that tiles interleave. Both take one layout, and A and B get the same rank.

    Raises:
        TilewrightError: as ``complement`` and ``composition`` do.
    """
    if form == "logical":
        return logical_product(layout, tiler)
    if form in ("blocked", "raked"):
        if isinstance(tiler, int):
            tiler = Layout(tiler, 1)
        if not isinstance(tiler, Layout):
            raise TilewrightError("layout/rank", f"A {form} product takes a layout, not one per mode.")
        return _interleaved(layout, tiler, raked=form == "raked")
    return _gathered(_unzipped(logical_product, layout, tiler), form)


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """A ∘ (B, complement of B in A's size); by mode where B is a tuple."""
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return _by_mode(logical_divide, layout, tiler)
    tile = Layout(tiler, 1) if isinstance(tiler, int) else tiler
    return compose(layout, bundle(tile, complement(tile, layout.size)))


def logical_product(layout: Layout, tiler: Tiler) -> Layout:
    """(A, A* ∘ B), where A* is A's complement in its size times B's cosize; by mode where B is a tuple."""
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return _by_mode(logical_product, layout, tiler)
    copies = Layout(tiler, 1) if isinstance(tiler, int) else tiler
    return bundle(layout, compose(complement(layout, layout.size * copies.cosize), copies))


def _by_mode(split: Splitter, layout: Layout, tiler: tuple[Tiler, ...]) -> Layout:
    _check(layout, tiler)
    kept = [layout[i] for i in range(len(tiler), layout.rank)]
    return bundle(*(split(layout[i], part) for i, part in enumerate(tiler)), *kept)


def _unzipped(split: Splitter, layout: Layout, tiler: Tiler) -> Layout:
    """((tiles), (rests)) of a split by mode; modes that the tiler does not reach are rests."""
    if tiler is None:
        return bundle(Layout(1, 0), layout)
    if not isinstance(tiler, tuple):
        return split(layout, tiler)
    _check(layout, tiler)
    pairs = [_unzipped(split, layout[i], part) for i, part in enumerate(tiler)]
    kept = [layout[i] for i in range(len(tiler), layout.rank)]
    return bundle(bundle(*(pair[0] for pair in pairs)), bundle(*(pair[1] for pair in pairs), *kept))


def _gathered(zipped: Layout, form: str) -> Layout:
    if form == "zipped":
        return zipped
    tile, rest = zipped[0], zipped[1]
    rests = [rest[i] for i in range(rest.rank)]
    if form == "tiled":
        return bundle(tile, *rests)
    return bundle(*(tile[i] for i in range(tile.rank)), *rests)


def _interleaved(block: Layout, copies: Layout, raked: bool) -> Layout:
    rank = max(block.rank, copies.rank)
    both = logical_product(_padded(block, rank), _padded(copies, rank))
    inner, outer = both[0], both[1]
    pairs = [(outer[i], inner[i]) if raked else (inner[i], outer[i]) for i in range(rank)]
    return coalesce(bundle(*(bundle(*pair) for pair in pairs)), (1,) * rank)


def _padded(layout: Layout, rank: int) -> Layout:
    """Modes 1:0 appended; one mode becomes a tuple of one, so that the result's modes are the layout's."""
    return bundle(*(layout[i] for i in range(layout.rank)), *(Layout(1, 0),) * (rank - layout.rank))


def _check(layout: Layout, tiler: tuple[Tiler, ...]) -> None:
    if len(tiler) > layout.rank:
        raise TilewrightError("layout/rank", f"The tiler has {len(tiler)} modes; {layout} has {layout.rank}.")
