"""cp.async.bulk with S stages: one warp copies whole rows, an mbarrier counts their bytes (sm_90 and later).

A tile that leaves the matrices, or whose rows are not 16-byte aligned at these sizes, is copied by all threads as the
original copies it: the question has one answer for the whole block, tile by tile.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.kloop.row_map import RowMap
from tilewright.kloop.row_text import ROW
from tilewright.rewrite.context import Context
from tilewright.rewrite.mbarrier import RESERVED_BYTES, WARP
from tilewright.rewrite.mbarrier_ring import RingWriter, refusal
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.source.edits import Edit, finish, unified_diff
from tilewright.source.line_map import original_line

MAX_EXPECTED_BYTES = (1 << 20) - 1  # PTX ISA, mbarrier: range of the tx-count


def rewrite(
    kernel: TiledKernel, stages: int, static_limit_bytes: int, remedy: Remedy | None = None
) -> RewrittenSource | Refusal:
    """The kernel with a ring of ``stages`` buffers (2 or more), filled by bulk copies of whole rows.

    ``static_limit_bytes``: what a block may declare statically (48 KiB); a larger ring becomes dynamic.
    """
    context = Context(kernel, stages, remedy or Remedy(), static_limit_bytes - RESERVED_BYTES)
    refused = refusal(context, "copies")
    if refused is not None:
        return refused
    rows = rows_of(kernel)
    if isinstance(rows, Refusal):
        return rows
    threads = kernel.tile.threads or 0
    if threads < WARP:
        what = f"a block has {threads} threads, no whole warp to issue the copies"
        return Refusal("not_understood", what, kernel.line)
    text = finish(kernel.text, _Writer(context, rows).edits())
    diff = unified_diff(kernel.handed_in, text, kernel.file, f"{kernel.file} (bulk, {stages} stages)")
    return RewrittenSource("bulk", stages, text, diff, 1, context.launch_bytes, context.remedy)


def rows_of(kernel: TiledKernel) -> tuple[RowMap, ...] | Refusal:
    """The rows of every staged array, or why one of them has none."""
    out: list[RowMap] = []
    for array in kernel.staged:
        found = kernel.rows.get(array.symbol)
        if found is None:
            what = f"the rows of `{array.name}` are not understood"
            return Refusal("not_contiguous", what, array.line, "the cp_async variant copies elements")
        if isinstance(found, Refusal):
            return led_back(kernel, found)
        out += found
    if sum(m.total_bytes for m in out) > MAX_EXPECTED_BYTES:
        return Refusal("budget_exceeded", "a tile has more bytes than an mbarrier counts", kernel.line)
    return tuple(out)


def led_back(kernel: TiledKernel, refusal: Refusal) -> Refusal:
    """A refusal of the analysis, with its line in the file as it was handed in."""
    return refusal if refusal.line is None else replace(refusal, line=original_line(kernel.maps, refusal.line))


class _Writer:
    def __init__(self, context: Context, rows: tuple[RowMap, ...]) -> None:
        self.c = context
        self.rows = rows
        self.ring = RingWriter(context, tensor=False)
        self.row = context.names.fresh("tile_row")
        self.first = context.names.fresh("first_row")
        self.sources = [context.names.fresh(f"{m.name}_source") for m in rows]

    def edits(self) -> list[Edit]:
        return self.ring.edits(self)

    def condition(self) -> list[str]:
        """Where rows begin in global memory, and whether this tile is copied by rows."""
        lines = ["// Where the rows of the tiles begin in global memory."]
        for m, name in zip(self.rows, self.sources, strict=True):
            lines.append(f"auto {name} = [&](int {self.row}) {{ return {m.source.replace(ROW, self.row)}; }};")
        tests = list(dict.fromkeys(f"({t})" if "||" in t or "?" in t else t for m in self.rows for t in m.inside))
        for m, name in zip(self.rows, self.sources, strict=True):
            # Rows lie at equal distances: where two of them are aligned, all are.
            tests += [f"reinterpret_cast<size_t>({name}({i})) % 16 == 0" for i in range(min(2, m.count))]
        lines.append("// Inside the matrices, and rows aligned as bulk copies want them: the same for all threads.")
        first, *more = tests
        lines.append(f"const bool {self.ring.whole} = {first}")
        lines += [f"{self.c.unit}&& {t}" for t in more]
        lines[-1] += ";"
        return lines

    def issue(self) -> list[str]:
        f, ring, u = self.ring.f, self.ring, self.c.unit
        barrier = f"&{ring.full}[{ring.stage}]"
        sizes = " + ".join(f"{m.count} * {m.row_bytes}" for m in self.rows)
        lines = [
            f"if ({ring.thread} < {WARP}) {{  // one warp, a row a lane",
            f"{u}{f['fence']}();",
            f"{u}if ({ring.thread} == 0) {f['expect']}({barrier}, {sizes});",
            f"{u}__syncwarp();  // the bytes are expected before the first of them lands",
        ]
        for m, name in zip(self.rows, self.sources, strict=True):
            lines += [u + line for line in self._rows(m, name, barrier)]
        return [*lines, "}"]

    def _rows(self, m: RowMap, source: str, barrier: str) -> list[str]:
        """The copies of one tile's rows, dealt to the lanes."""
        u, row, thread = self.c.unit, self.row, self.ring.thread

        def copy(number: str) -> str:
            target = m.target.replace(ROW, number)
            return f"{self.ring.f['copy']}({target}, {source}({number}), {m.row_bytes}, {barrier});"

        if m.count <= WARP:
            return [copy(thread)] if m.count == WARP else [f"if ({thread} < {m.count}) {copy(thread)}"]
        inside = "" if m.count % WARP == 0 else f"if ({row} < {m.count}) "
        return [
            "#pragma unroll",
            f"for (int {self.first} = 0; {self.first} < {m.count}; {self.first} += {WARP}) {{",
            f"{u}const int {row} = {self.first} + {thread};",
            f"{u}{inside}{copy(row)}",
            "}",
        ]
