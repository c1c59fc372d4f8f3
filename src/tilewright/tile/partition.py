"""How the chosen tile shares out the work: the grid, the order, and the reduction where parts have to be joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.tile.candidate import Candidate
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Convolution, Elementwise, Gemm, Op, RowReduction

Kind = Literal["1D", "2D", "3D", "split_k", "streaming"]
# A last wave emptier than this is a tail worth saying something about.
TAIL_EMPTY = 0.5


@dataclass(frozen=True)
class Partition:
    """Who computes what.

    Attributes:
        kind: ``1D`` (rows, elements), ``2D`` (matrix products), ``3D`` (batches, attention), ``split_k`` and
            ``streaming`` (parts of K or of a row, and their reduction).
        grid: blocks in x, y and z, as expressions of the dims.
        order: which block does which tile.
        reduction: how parts are joined; "" where each output has one block.
        persistent: whether a persistent launch (as many blocks as are resident walk the work) would help, and what it
            takes; the skeleton is none.
    """

    kind: Kind
    grid: tuple[str, str, str]
    order: str
    reduction: str
    persistent: str


def partition(op: Op, chosen: Candidate, machine: Machine) -> Partition:
    """The partition of an op under its chosen candidate."""
    if isinstance(op, Convolution):
        op = op.as_gemm()
    if isinstance(op, Gemm):
        return _gemm(op, chosen, machine)
    if isinstance(op, Attention):
        return Partition(
            "3D",
            (f"ceil_div({op.n}, {chosen.parameters['bm']})", str(op.b * op.h), "1"),
            "One block per tile of queries and head of a batch; it streams the keys and values once, in tiles.",
            "Running maximum and sum per row, rescaled with every tile of keys: nothing is joined between blocks.",
            _persistent(chosen, machine, "causal blocks take unequal time" if op.causal else ""),
        )
    if isinstance(op, RowReduction):
        return _rows(op, chosen, machine)
    return _elementwise(op, chosen)


def _gemm(op: Gemm, chosen: Candidate, machine: Machine) -> Partition:
    tile = chosen.parameters
    tiles = f"ceil_div({op.m}, {tile['bm']}) * ceil_div({op.n}, {tile['bn']})"
    group = tile["group_m"]
    order = (
        f"Groups of {group} rows of tiles, column by column, so that neighbours in time share rows of A and columns of "
        "B in L2."
        if group > 1
        else "Row by row of tiles: at any time the blocks share few rows of A and many columns of B."
    )
    split = tile["split_k"]
    if split > 1:
        return Partition(
            "split_k",
            (tiles, "1", str(op.batch * split)),
            order,
            f"Each of {split} blocks sums its part of K into its own workspace ({split} x {op.batch * op.m * op.n} "
            "sums); a second kernel adds them in a fixed order, so the bits do not depend on timing.",
            "",
        )
    kind: Kind = "3D" if op.batch > 1 else "2D"
    return Partition(kind, (tiles, "1", str(op.batch)), order, "", _persistent(chosen, machine, ""))


def _rows(op: RowReduction, chosen: Candidate, machine: Machine) -> Partition:
    split, rows = chosen.parameters["split"], chosen.parameters["rows"]
    if split == 1:
        what = f"{rows} rows per block, one per warp" if rows > 1 else "One row per block"
        return Partition("1D", (f"ceil_div({op.r}, {rows})", "1", "1"), f"{what}, in order.", "", "")
    if op.writes_rows:
        return Partition(
            "streaming",
            (f"ceil_div({op.r}, {rows})", str(split), "1"),
            f"{split} blocks stream parts of each row, twice: a second kernel of the same grid writes.",
            "Reduction, then broadcast: one partial per block; the second kernel's blocks merge their row's in a fixed "
            "order before they write.",
            f"One launch would do with {machine.device.sms} blocks, one per SM, that walk the parts in index order, "
            "the uneven rest to the first: all must be resident (a cooperative launch), for the broadcast waits.",
        )
    return Partition(
        "streaming",
        (f"ceil_div({op.r}, {rows})", str(split), "1"),
        f"{split} blocks stream parts of each row.",
        "One partial per block, joined by a second kernel in a fixed order.",
        "",
    )


def _elementwise(op: Elementwise, chosen: Candidate) -> Partition:
    per_block = f"{chosen.parameters['threads']} * {chosen.parameters['loads']} * vector"
    return Partition("1D", (f"ceil_div({op.n}, {per_block})", "1", "1"), "Consecutive vectors, in order.", "", "")


def _persistent(chosen: Candidate, machine: Machine, uneven: str) -> str:
    """Whether one block per place, walking the tiles, would do better than one block per tile."""
    if chosen.waves <= 1:
        return "" if not uneven else f"One wave: a persistent launch has nothing to even out, though {uneven}."
    blocks = chosen.blocks_per_sm * machine.device.sms
    text = f"Persistent: {blocks} blocks that walk {chosen.blocks} tiles in index order start once instead of "
    text += f"{chosen.waves:.1f} times"
    if chosen.tail < TAIL_EMPTY:
        text += f"; the last wave stays {chosen.tail:.0%} full, unless the rest is split along K"
    return text + (f"; it also evens out that {uneven}." if uneven else ".")
