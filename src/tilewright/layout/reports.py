"""What `tilewright layout` prints, as one record; its text and its pictures are drawn from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.layout.atoms import Atom, Operand
from tilewright.layout.banks import passes, requests_of
from tilewright.layout.layout import AnyLayout, ComposedLayout
from tilewright.layout.patterns import Pattern, Place
from tilewright.layout.solve import Proof, Solution
from tilewright.layout.tiled import TiledCopy, TiledMma

# Offsets of larger layouts are left out of the record.
MOST_OFFSETS = 65536


@dataclass(frozen=True)
class LayoutReport:
    """One layout.

    Attributes:
        operation: what made it, with its arguments, as text.
        layout: in CuTe's notation.
        shape, stride: of a composed layout those of the inner one; swizzle "" without one.
        cosize: one more than the largest offset; None of a composed layout with more than 65,536 offsets.
        offsets: by index, the first mode fastest; None of a layout with more than 65,536.
    """

    operation: str
    layout: str
    shape: Any
    stride: Any
    size: int
    cosize: int | None
    rank: int
    depth: int
    swizzle: str = ""
    offset: int = 0
    offsets: tuple[int, ...] | None = None


def layout_report(operation: str, layout: AnyLayout) -> LayoutReport:
    inner = layout.layout if isinstance(layout, ComposedLayout) else layout
    small = inner.size <= MOST_OFFSETS
    return LayoutReport(
        operation=operation,
        layout=str(layout),
        shape=inner.shape,
        stride=inner.stride,
        size=inner.size,
        # A swizzle's largest offset is found by looking at all of them.
        cosize=layout.cosize if small or layout is inner else None,
        rank=inner.rank,
        depth=inner.depth,
        swizzle=str(layout.swizzle) if isinstance(layout, ComposedLayout) else "",
        offset=layout.offset if isinstance(layout, ComposedLayout) else 0,
        offsets=tuple(layout.offsets()) if small else None,
    )


@dataclass(frozen=True)
class OperandReport:
    """A thread-value layout: (thread, value) to element of a tile, counted down the columns.

    Attributes:
        places: of each thread, of each of its values: [row, column].
    """

    name: str
    layout: str
    rows: int
    cols: int
    row_name: str
    col_name: str
    element_bits: int
    places: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class ThreadsReport:
    """An atom, a tiled copy or a tiled mma."""

    name: str
    threads: int
    operands: tuple[OperandReport, ...]
    source: str = ""
    notes: tuple[str, ...] = field(default=())


def operand_report(name: str, operand: Operand) -> OperandReport:
    threads, places = operand.layout[0].size, operand.layout.offsets()
    return OperandReport(
        name, str(operand.layout), operand.rows, operand.cols, operand.row_name, operand.col_name, operand.bits,
        tuple(
            tuple((place % operand.rows, place // operand.rows) for place in places[thread::threads])
            for thread in range(threads)
        ),
    )  # fmt: skip


def atom_report(atom: Atom) -> ThreadsReport:
    operands = tuple(operand_report(name, operand) for name, operand in atom.operands.items())
    return ThreadsReport(atom.name, atom.threads, operands, atom.source, atom.notes)


def tiled_mma_report(name: str, tiled: TiledMma) -> ThreadsReport:
    operands = tuple(operand_report(key, operand) for key, operand in tiled.operands.items())
    return ThreadsReport(f"{name}, tile {'x'.join(map(str, tiled.tile))}", tiled.threads, operands)


def copy_operand(tiled: TiledCopy, element_bits: int) -> Operand:
    """A tiled copy's one tile as an operand."""
    return Operand(tiled.layout, tiled.rows, tiled.cols, "row", "col", element_bits)


@dataclass(frozen=True)
class RequestReport:
    """One request of a warp: passes of each phase, and the byte addresses of its lanes (null: takes no part)."""

    phases: tuple[int, ...]
    busiest_bank: int
    addresses: tuple[int | None, ...]


@dataclass(frozen=True)
class BanksReport:
    """Passes of an access pattern.

    Attributes:
        passes, ideal: of all requests, as it is and without conflicts.
        worst: the request with the most passes of a phase; null where there is no request.
    """

    shared: str
    access: str
    width_bytes: int
    requests: int
    passes: int
    ideal: int
    worst_phase: int
    conflict_free: bool
    worst: RequestReport | None


def banks_by_threads(
    shared: AnyLayout, threads: AnyLayout, element_bytes: int, width_bytes: int, is_write: bool = False
) -> BanksReport:
    """Of a thread-value layout over a shared layout, which the threads load, or write."""
    found = requests_of(shared, threads, element_bytes, width_bytes)
    requests: list[tuple[int | None, ...]] = [tuple(request) for request in found]
    return _banks(str(shared), str(threads), width_bytes, requests, is_load=not is_write)


def banks_by_pattern(shared: AnyLayout, pattern: Pattern, element_bytes: int) -> BanksReport:
    """Of a named pattern over a shared layout of (rows, columns).

    Raises:
        TilewrightError: ``layout/not_contiguous``, ``layout/misaligned``: the layout takes a vector apart.
    """

    def address(place: Place | None) -> int | None:
        if place is None:
            return None
        row, byte = place
        element, rest = divmod(byte, element_bytes)
        first = shared(row, element)
        for more in range(1, pattern.width_bytes // element_bytes):
            if shared(row, element + more) != first + more:
                raise TilewrightError(
                    "layout/not_contiguous",
                    f"{pattern.name} accesses {pattern.width_bytes} bytes of row {row} at once, but in {shared} column "
                    f"{element + more} does not follow column {element}.",
                    {},
                    "Take a pattern of narrower accesses, or the transposed tile.",
                )
        return first * element_bytes + rest

    requests = [tuple(map(address, request)) for request in pattern.requests]
    return _banks(str(shared), pattern.name, pattern.width_bytes, requests, is_load=pattern.is_load)


def _banks(
    shared: str, access: str, width_bytes: int, requests: list[tuple[int | None, ...]], is_load: bool
) -> BanksReport:
    total = ideal = worst_phase = 0
    worst = None
    for addresses in requests:
        found = passes(addresses, width_bytes, is_load=is_load)
        total, ideal = total + found.total, ideal + found.ideal
        if found.phases and max(found.phases) > worst_phase:
            worst_phase = max(found.phases)
            worst = RequestReport(found.phases, found.busiest_bank, addresses)
    return BanksReport(shared, access, width_bytes, len(requests), total, ideal, worst_phase, total == ideal, worst)


@dataclass(frozen=True)
class SolveReport:
    """What the solver found.

    Attributes:
        verdict: plain (nothing to do), swizzle, padding (the better of them), or none.
        proofs: the tile as it is, and the best padding and swizzle.
    """

    rows: int
    cols: int
    element_bytes: int
    tile_bytes: int
    patterns: tuple[str, ...]
    verdict: str
    proofs: tuple[ProofReport, ...]
    paddings_tried: int
    swizzles_tried: int


@dataclass(frozen=True)
class ProofReport:
    """One arrangement: ``layout`` in elements, ``byte_swizzle`` on byte addresses from the start of the tile."""

    kind: str
    layout: str
    byte_swizzle: str
    pitch_bytes: int
    extent_bytes: int
    cost_bytes: int
    conflict_free: bool
    aligned: bool
    distinct: bool
    requests: int
    phases: int
    passes: int
    by_pattern: tuple[tuple[str, int, int, int], ...]


def solve_report(solution: Solution) -> SolveReport:
    tile, best = solution.tile, solution.best
    proofs = [proof for proof in (solution.plain, solution.swizzle, solution.padding) if proof is not None]
    return SolveReport(
        rows=tile.rows, cols=tile.cols, element_bytes=tile.element_bytes, tile_bytes=tile.bytes,
        patterns=tuple(count.pattern for count in solution.plain.counted),
        verdict=best.arrangement.kind if best is not None else "none",
        proofs=tuple(map(_proof_report, proofs)),
        paddings_tried=solution.paddings_tried, swizzles_tried=solution.swizzles_tried,
    )  # fmt: skip


def _proof_report(proof: Proof) -> ProofReport:
    arrangement = proof.arrangement
    return ProofReport(
        kind=arrangement.kind, layout=proof.layout, byte_swizzle=str(arrangement.swizzle or ""),
        pitch_bytes=arrangement.pitch_bytes, extent_bytes=arrangement.extent_bytes, cost_bytes=arrangement.cost_bytes,
        conflict_free=proof.conflict_free, aligned=proof.aligned, distinct=proof.distinct,
        requests=sum(count.requests for count in proof.counted), phases=sum(count.phases for count in proof.counted),
        passes=proof.passes,
        by_pattern=tuple((count.pattern, count.phases, count.passes, count.worst) for count in proof.counted),
    )  # fmt: skip
