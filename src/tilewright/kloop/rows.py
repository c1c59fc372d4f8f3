"""The rows of a staged tile: runs of bytes that lie one behind the other in global and in shared memory.

Proven by going through every element that the load phase copies (:mod:`tilewright.kloop.lattice`): each is written
once; sorted by their places in shared memory they fall into runs in which the place in global memory moves along byte
by byte; all runs are equally long, and from one to the next both places move by the same distance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.kloop.boxes import Comparison, Steady, box_of
from tilewright.kloop.copy_sites import Site, Unplaced, sites_of, sites_of_stream
from tilewright.kloop.forms import Form
from tilewright.kloop.kernel import Bump, KLoop, LoadItem, Pure, Refusal, SharedArray
from tilewright.kloop.lattice import Lattice
from tilewright.kloop.load_stream import LoadStream
from tilewright.kloop.row_map import RowMap
from tilewright.kloop.row_text import RowText
from tilewright.kloop.uniform import Uniformity
from tilewright.source import ir
from tilewright.source.expr_types import Types
from tilewright.source.reader import OpenKernel

if TYPE_CHECKING:
    import numpy as np

ALIGNMENT_BYTES = 16  # PTX ISA, cp.async.bulk: both addresses and the size are multiples of 16
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class _Runs:
    """The rows of one site: for each the point that it begins at, and the places there (bytes)."""

    base: ir.Name
    points: np.ndarray
    shared: np.ndarray
    source: Form
    row_bytes: int


class RowReader:
    """Judges the load phase of one kernel.

    Args:
        text: the source.
        arrays: the shared arrays by symbol.
        line: line of a byte offset.
        enter: a fresh lattice at a copy.
        steady: what is known of the K-loop's variable.
    """

    def __init__(
        self,
        text: bytes,
        arrays: dict[int, SharedArray],
        line: Callable[[int], int],
        lattice: Callable[[], Lattice],
        steady: Steady,
    ) -> None:
        self._text = text
        self._arrays = arrays
        self._line = line
        self._lattice = lattice
        self._steady = steady

    def read(self, sites: Sequence[Site | Unplaced]) -> dict[int, tuple[RowMap, ...] | Refusal]:
        """The rows of every staged array, or why it has none."""
        arrays = dict.fromkeys(s.array for s in sites)
        return {a: self._array([s for s in sites if s.array == a]) for a in arrays}

    def _array(self, sites: list[Site | Unplaced]) -> tuple[RowMap, ...] | Refusal:
        maps: list[RowMap] = []
        for site in sites:
            if isinstance(site, Unplaced):
                return self._no(site.stmt, site.why)
            found = self._site(site)
            if isinstance(found, Refusal):
                return found
            maps.append(found)
        maps.sort(key=lambda m: m.first_bytes)
        for a, b in itertools.pairwise(maps):
            if b.first_bytes < a.end_bytes:
                return self._no(sites[0].stmt, f"the copies of `{a.name}` interleave in shared memory")
        return tuple(maps)

    def _no(self, stmt: ir.Stmt, what: str, hint: str = "") -> Refusal:
        return Refusal("not_contiguous", what, self._line(stmt.span.start), hint)

    def _site(self, site: Site) -> RowMap | Refusal:
        if site.converts:
            what = "the copy converts or computes its elements on the way; bulk copies move bytes as they are"
            return Refusal("converts_type", what, self._line(site.stmt.span.start))
        lattice = self._lattice()
        problem = next((p for loop in site.loops if (p := lattice.enter(loop))), "")
        problem = problem or next((p for test in site.tests if (p := lattice.restrict(*test))), "")
        if problem:
            return self._no(site.stmt, problem)
        runs = self._runs(site, lattice)
        if isinstance(runs, str):
            return self._no(site.stmt, runs)
        compared = comparisons(site.guard, not site.inverted, lattice)
        inside = self._inside(site, lattice, compared)
        if isinstance(inside, str):
            return self._no(site.stmt, inside)
        quotes = RowText(lattice, self._text, runs.points)
        target, source = quotes.address(site.stores[0][0]), quotes.address(site.source)
        if target is None or source is None:
            return self._no(site.stmt, "the address of a row is no plain function of its number")
        array = self._arrays[site.array]
        first, pitch = int(runs.shared[0]), _step(runs.shared) or runs.row_bytes
        line = self._line(site.stmt.span.start)
        boxed = box_of(
            site, array, lattice, runs, compared, lambda what: self._no(site.stmt, what), self._text,
            self._steady,
        )  # fmt: skip
        return RowMap(
            site.array, array.name, line, len(runs.points), runs.row_bytes, first, pitch, target, source, inside, boxed
        )

    # -- the proof ------------------------------------------------------------------------------------
    def _runs(self, site: Site, lattice: Lattice) -> _Runs | str:
        import numpy as np

        source = lattice.place(site.source)
        if source is None:
            return "the place in global memory is no plain index of a pointer"
        if source.base.symbol in self._arrays:
            return "the copy reads shared memory"
        places: list[np.ndarray] = []
        for target, _, _ in site.stores:
            place = lattice.place(target)
            numbers = place.offset.numbers if place is not None else None
            if place is None or numbers is None or place.base.symbol != site.array:
                return "the place in shared memory is no plain index of the array"
            places.append(numbers)
        widths = {width for _, _, width in site.stores}
        if len(widths) != 1:
            return "lanes of different sizes are stored"
        (width,) = widths
        shared = np.concatenate(places)
        lanes = np.repeat(np.array([at for _, at, _ in site.stores], np.int64), lattice.points)
        points = np.tile(np.arange(lattice.points), len(site.stores))
        order = np.argsort(shared, kind="stable")
        shared, lanes, points = shared[order], lanes[order], points[order]
        if shared[0] < 0 or shared[-1] + width > self._arrays[site.array].total_bytes:
            return "the copy leaves the array"
        if (np.diff(shared) < width).any():
            return "elements of the tile are written more than once"
        offset = source.offset.at(points).plus(Form({(): lanes}))
        return _cut(source.base, shared, points, lanes, offset, width)

    def _inside(self, site: Site, lattice: Lattice, compared: list[Comparison] | str) -> tuple[str, ...] | str:
        """Conditions that hold where every element is copied: the guard at the elements that fail it first."""
        import numpy as np

        if site.guard is None:
            return ()
        if isinstance(compared, str):
            return compared
        last = first = np.ones(lattice.points, bool)
        for c in compared:
            numbers = c.distance.number_part()
            if Form(c.distance.symbols() or {(): 0 * numbers}).varies():
                return "the guard's bound differs from element to element"
            last = last & (numbers == numbers.max())
            first = first & (numbers == numbers.min())
        if not last.any() or not first.any():
            return "no element is the last one for all bounds of the guard"
        wraps = any(not c.signed for c in compared)
        out: list[str] = []
        # In unsigned arithmetic the last element may have wrapped around: the first one tells.
        for choice in (first, last) if wraps else (last,):
            text = RowText(lattice, self._text, np.flatnonzero(choice)[-1:]).quote(site.guard)
            if text is None:
                return "the guard cannot be written for a single element"
            out.append(f"!({text})" if site.inverted else text)
        return tuple(dict.fromkeys(out))


def bumped_early(loads: Iterable[LoadItem]) -> ir.Stmt | None:
    """A pointer or index that is advanced in front of a copy."""
    bump: ir.Stmt | None = None
    for item in loads:
        if isinstance(item, Bump):
            bump = bump or item.stmt
        elif not isinstance(item, Pure) and bump is not None:
            return bump
    return None


def _cut(
    base: ir.Name, shared: np.ndarray, points: np.ndarray, lanes: np.ndarray, offset: Form, width: int
) -> _Runs | str:
    """Cuts sorted elements into rows; what stands against it."""
    import numpy as np

    breaks = np.diff(shared) != width
    for monomial, factors in offset.terms.items():
        breaks |= np.diff(factors) != (0 if monomial else width)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    lengths = np.diff(np.concatenate((starts, [len(shared)]))) * width
    row = int(lengths[0])
    if (lengths != row).any():
        return "the rows of the tile are of different lengths"
    if row < ALIGNMENT_BYTES or row % ALIGNMENT_BYTES:
        return f"only {row} bytes lie together in shared and in global memory; bulk copies move 16 or more"
    if (lanes[starts] != 0).any():
        return "a row begins inside a loaded register"
    at = offset.at(starts)
    for numbers in (shared[starts], *at.terms.values()):
        if len(np.unique(np.diff(numbers))) > 1:
            return "the rows of the tile do not follow each other at equal distances"
    if shared[0] % ALIGNMENT_BYTES or _step(shared[starts]) % ALIGNMENT_BYTES:
        return "rows are not aligned to 16 bytes in shared memory: pad them to a multiple of 16 bytes"
    return _Runs(base, points[starts], shared[starts], at, row)


def _step(numbers: np.ndarray) -> int:
    return int(numbers[1] - numbers[0]) if len(numbers) > 1 else 0


def comparisons(guard: ir.Expr | None, wanted: bool, lattice: Lattice) -> list[Comparison] | str:
    """A guard that has to be ``wanted``, as comparisons that all have to hold; what stands against it."""
    match guard:
        case None:
            return []
        case ir.Binary(op="&&" | "||" as op, left=a, right=b) if (op == "&&") == wanted:
            left, right = comparisons(a, wanted, lattice), comparisons(b, wanted, lattice)
            return left if isinstance(left, str) else right if isinstance(right, str) else left + right
        case ir.Unary(op="!", operand=x):
            return comparisons(x, not wanted, lattice)
        case ir.Binary(op=op, left=a, right=b) if op in _OPPOSITE:
            op = op if wanted else _OPPOSITE[op]
            small, large = (a, b) if op in ("<", "<=") else (b, a)
            low, high = lattice.form(small), lattice.form(large)
            if low is None or high is None:
                return "a bound of the guard is no plain index"
            kinds = [lattice.kind(small), lattice.kind(large)]
            signed = all(k is not None and not k.unsigned for k in kinds)
            return [Comparison(small, large, op in ("<", ">"), low.plus(high, -1), signed)]
    return "the guard is no conjunction of comparisons"


def rows_of_kernel(
    kernel: OpenKernel,
    types: Types,
    uniformity: Uniformity,
    arrays: dict[int, SharedArray],
    loop: KLoop,
    loads: Sequence[LoadItem],
    stream: LoadStream | None,
    block: tuple[int, int, int] | None,
    threads: int | None,
) -> dict[int, tuple[RowMap, ...] | Refusal]:
    """The rows of every staged array, by its symbol, or why it has none.

    Args:
        loads, stream: the load phase, statement by statement or as a whole.
        block: threads per dimension, where a sidecar says so; else ``threads`` in one dimension.
    """
    text, line = kernel.source.text, kernel.source.line
    sites: list[Site | Unplaced] = [*sites_of(loads), *(sites_of_stream(stream) if stream is not None else ())]
    threads_used = {n.field for n in ir.walk(kernel.body) if isinstance(n, ir.Member) and _is_thread_index(n)}
    if block is None and threads is not None and threads_used <= {"x"}:
        block = (threads, 1, 1)
    if block is None:
        hint = "a sidecar says how many"
        unknown = Refusal("not_contiguous", "the threads of a block are not known", line(loop.stmt.span.start), hint)
        return {site.array: unknown for site in sites}
    early = bumped_early(loads)
    if early is not None:
        what = Refusal("not_contiguous", "an index is advanced in front of a copy", line(early.span.start))
        return {site.array: what for site in sites}
    inside = {s.id for n in ir.walk(loop.stmt) if isinstance(n, ir.Declare) for s in n.symbols}
    outside = frozenset(kernel.symbols) - inside | {loop.var.id}
    known = block

    def lattice() -> Lattice:
        return Lattice(kernel.constants, types, kernel.symbols, uniformity, arrays, known, loop.var.id, outside)

    steady = Steady(kernel.constants.evaluate(loop.first), loop.step_value)
    return RowReader(text, arrays, line, lattice, steady).read(sites)


def _is_thread_index(node: ir.Member) -> bool:
    return isinstance(node.base, ir.Name) and node.base.id == "threadIdx"
