"""cp.async with S stages: copies of tile t+S−1 are issued before the compute phase of tile t."""

from __future__ import annotations

from tilewright.rewrite.context import Context
from tilewright.rewrite.edits import Edit, apply, indent_at, line_start, reindent, unified_diff
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.vectors import VectorLoop
from tilewright.source import ir
from tilewright.source.copies import is_zero
from tilewright.source.kernel import Copy, CopyLoop, Fetch, LaneStore, LoadItem, Refusal, TiledKernel, Widening
from tilewright.source.reader_constants import constants_of

ASYNC_WIDTHS = (4, 8, 16)  # PTX ISA, cp.async: cp-size is 4, 8 or 16 bytes
HEADER = "#include <cuda_pipeline.h>"


def rewrite(
    kernel: TiledKernel, stages: int, static_limit_bytes: int, remedy: Remedy | None = None
) -> RewrittenSource | Refusal:
    """The kernel with a ring of ``stages`` buffers (2 or more), filled by cp.async.

    ``static_limit_bytes``: what a block may declare statically (48 KiB); a larger ring becomes dynamic.
    """
    context = Context(kernel, stages, remedy or Remedy(), static_limit_bytes)
    refused = _refusal(context)
    if refused is not None:
        return refused
    text = _Writer(context).file()
    before = kernel.text.decode()
    diff = unified_diff(before, text, kernel.file, f"{kernel.file} (cp_async, {stages} stages)")
    return RewrittenSource("cp_async", stages, text, diff, 1, context.dynamic_bytes, context.remedy)


def _refusal(c: Context) -> Refusal | None:
    kernel = c.kernel
    if kernel.elsewhere is not None:
        return Refusal(
            "loop_carried_shared",
            "a tile's array is also used outside the K-loop",
            kernel.elsewhere,
            "the ldg_single variant keeps the arrays in place",
        )
    for array in kernel.staged:
        refused = c.misaligned(array, ring=True)
        if refused is not None:
            return refused
    refused = c.undividable()
    if refused is not None:
        return refused
    return next((r for i in kernel.loads if (r := _item_refusal(kernel, i)) is not None), None)


def _line(kernel: TiledKernel, node: ir.Stmt) -> int:
    return kernel.text.count(b"\n", 0, node.span.start) + 1


def _item_refusal(kernel: TiledKernel, item: LoadItem) -> Refusal | None:
    match item:
        case CopyLoop(widening=Widening()):
            return None
        case CopyLoop():
            reason = item.widening if isinstance(item.widening, Refusal) else None
            for inner in item.body:
                if isinstance(inner, Copy) and inner.width_bytes < min(ASYNC_WIDTHS) and reason is not None:
                    if inner.converts:
                        return _converts(kernel, inner)
                    return Refusal(
                        "unsupported_width" if reason.code != "not_contiguous" else "not_contiguous",
                        f"cp.async moves 4, 8 or 16 bytes, this copy {inner.width_bytes}; it cannot be widened: "
                        f"{reason.message}",
                        reason.line,
                        reason.hint or "the ldg variant moves any width",
                    )
                refused = _item_refusal(kernel, inner)
                if refused is not None:
                    return refused
            return None
        case Copy(converts=True):
            return _converts(kernel, item)
        case Copy(width_bytes=w) | LaneStore(width_bytes=w) if w not in ASYNC_WIDTHS:
            return Refusal(
                "unsupported_width",
                f"cp.async moves 4, 8 or 16 bytes, this copy {w}",
                _line(kernel, item.stmt),
                "the ldg variant moves any width",
            )
        case LaneStore(lane=None):
            return None
    return None


def _converts(kernel: TiledKernel, item: Copy) -> Refusal:
    return Refusal(
        "converts_type",
        "the copy changes the type of its elements; cp.async moves bytes as they are",
        _line(kernel, item.stmt),
        "the ldg variant converts on the way",
    )


class _Writer:
    def __init__(self, context: Context) -> None:
        self.c = context
        n = context.names
        self.copy_tile = n.fresh("copy_tile")
        self.stage = n.fresh("stage")
        self.read_stage = n.fresh("read_stage")
        self.write_stage = n.fresh("write_stage")
        self.next_k = n.fresh(f"{context.kernel.loop.var.name}_ahead")
        self.first = n.fresh("first")
        self.pass_name = n.fresh("pass")
        self.constants = constants_of(context.kernel)
        self.fetches = {i.symbol.id: i for i in context.kernel.loads if isinstance(i, Fetch)}

    def file(self) -> str:
        kernel = self.c.kernel
        loop = kernel.loop
        edits = self.c.declarations(ring=True)
        edits.append(Edit(loop.insert_at, loop.stmt.span.end, self._loop()))
        if b"cuda_pipeline.h" not in kernel.text:
            edits.append(self._include())
        return apply(kernel.text, ir.Span(0, len(kernel.text)), edits)

    def _include(self) -> Edit:
        """Behind the last #include in front of the kernel; at the top of the file where there is none."""
        text = self.c.kernel.text
        at = -1
        limit = self.c.kernel.loop.insert_at
        start = 0
        for line in text.split(b"\n"):
            if start >= limit:
                break
            if line.lstrip().startswith(b"#include"):
                at = start + len(line) + 1
            start += len(line) + 1
        return Edit(max(at, 0), max(at, 0), f"{HEADER}\n")

    # -- the load phase -----------------------------------------------------------------------------
    def _load_text(self) -> str:
        kernel = self.c.kernel
        edits = [e for item in kernel.loads for e in self._item(item)]
        body = apply(kernel.text, kernel.load_span, edits).lstrip("\n").rstrip()
        return "\n".join([body, *self.c.bumps()]) + "\n"

    def _item(self, item: LoadItem) -> list[Edit]:
        c = self.c
        match item:
            case Fetch():
                span = item.stmt.span
                kind = " ".join(w for w in item.symbol.type_text.split() if w != "const")
                return [Edit(span.start, span.end, f"const {kind} &{item.symbol.name} = {c.lvalue(item.source)};")]
            case LaneStore():
                fetch = self.fetches[item.fetched]
                lane = f".{item.lane}" if item.lane else ""
                source = f"&{fetch.symbol.name}{lane}"
                return [
                    self._copy_edit(item.stmt, item.target, source, item.width_bytes, fetch.guard, fetch.fill, False)
                ]
            case Copy():
                return [
                    self._copy_edit(
                        item.stmt,
                        item.target,
                        c.address(item.source),
                        item.width_bytes,
                        item.guard,
                        item.fill,
                        item.inverted,
                    )
                ]
            case CopyLoop(widening=Widening() as w):
                return [Edit(item.stmt.span.start, item.stmt.span.end, self._widened(item, w))]
            case CopyLoop():
                return [*self._header(item), *(e for inner in item.body for e in self._item(inner))]
        return []

    def _copy_edit(
        self,
        stmt: ir.Stmt,
        target: ir.Expr,
        source: str,
        width: int,
        guard: ir.Expr | None,
        fill: ir.Expr | None,
        inverted: bool,
    ) -> Edit:
        c = self.c
        indent = indent_at(c.kernel.text, stmt.span.start)
        to = c.address(target)
        if guard is None or fill is None:
            line = f"__pipeline_memcpy_async({to}, {source}, {width});"
            if len(indent) + len(line) > 120:
                line = f"__pipeline_memcpy_async({to},\n{indent}{c.unit}{source},\n{indent}{c.unit}{width});"
            return Edit(stmt.span.start, stmt.span.end, line)
        condition = c.operand(guard)
        if is_zero(fill, self.constants):
            # src-size 0 fills with zeros and reads nothing.
            zeros = f"{condition} ? {width} : 0" if inverted else f"{condition} ? 0 : {width}"
            lines = [f"__pipeline_memcpy_async({to},", f"{c.unit}{source},", f"{c.unit}{width}, {zeros});"]
            return Edit(stmt.span.start, stmt.span.end, f"\n{indent}".join(lines))
        test = f"!({c.source(guard)})" if inverted else c.source(guard)
        lines = [
            f"if ({test}) {{",
            f"{c.unit}__pipeline_memcpy_async({to}, {source}, {width});",
            "} else {",
            f"{c.unit}{c.source(target)} = {c.source(fill)};",
            "}",
        ]
        return Edit(stmt.span.start, stmt.span.end, f"\n{indent}".join(lines))

    def _header(self, item: CopyLoop) -> list[Edit]:
        """A loop that starts at the thread's index becomes one of constant trip count, so that it unrolls."""
        c = self.c
        if item.first_value is not None or item.trips is None:
            return []
        text, stmt = c.kernel.text, item.stmt
        indent = indent_at(text, stmt.span.start)
        above = text[line_start(text, max(0, line_start(text, stmt.span.start) - 1)) : stmt.span.start].strip()
        pragma = "" if above.startswith(b"#pragma") else f"#pragma unroll\n{indent}"
        bound, stride = c.operand(item.bound), c.operand(item.stride)
        assert item.bound_value is not None
        assert item.stride_value is not None
        exact = item.bound_value % item.stride_value == 0
        trips = f"{bound} / {stride}" if exact else f"({bound} + {stride} - 1) / {stride}"
        kind = " ".join(w for w in item.var.type_text.split() if w != "const")
        head = (
            f"{pragma}for (int {self.pass_name} = 0; {self.pass_name} < {trips}; ++{self.pass_name}) {{\n"
            f"{indent}{c.unit}{kind} {item.var.name} = {c.source(item.first)} + {self.pass_name} * {stride};\n"
            f"{indent}{c.unit}if ({item.var.name} < {c.compared(item.bound)})"
        )
        return [Edit(stmt.span.start, stmt.header.end, head), Edit(stmt.span.end, stmt.span.end, f"\n{indent}}}")]

    def _widened(self, item: CopyLoop, widening: Widening) -> str:
        c = self.c
        v = VectorLoop(c, item, widening)
        u = c.unit
        lines = v.open(self.pass_name, self.first)
        lines += [u * 2 + x for x in v.indices(self.first)]
        lines += [
            u * 2 + f"if ({v.whole()}) {{",
            u * 3 + f"__pipeline_memcpy_async({c.address(v.copy.target)}, {c.address(v.copy.source)}, 16);",
            u * 2 + "} else {  // the ragged edge, or a row that is not 16-byte aligned",
        ]
        lines += [u * 3 + x if x else x for x in v.element_loop(self.first)]
        lines += [u * 2 + "}", *v.close()]
        indent = indent_at(c.kernel.text, item.stmt.span.start)
        return reindent("\n".join(lines), indent).lstrip()

    # -- the loop -----------------------------------------------------------------------------------
    def _loop(self) -> str:
        c = self.c
        loop = c.kernel.loop
        var, kind = loop.var.name, c.var_type
        i1, i2 = c.outer, c.inner
        ahead = f"{c.stages_name} - 1"
        used = c.uses_var(c.reads([x.stmt for x in c.kernel.loads] + [b.stmt for b in loop.bumps_after]))
        params = f"{kind} {var}, int {self.stage}" if used else f"int {self.stage}"

        def call(k: str, stage: str) -> str:
            return f"{self.copy_tile}({k}, {stage});" if used else f"{self.copy_tile}({stage});"

        step = c.times(ahead, loop.step) if loop.step_value != 1 else f"({ahead})"
        out = [
            f"{i1}// Software pipeline: while a tile is computed, the copies of the next {ahead} tiles are in flight.",
            f"{i1}auto {self.copy_tile} = [&]({params}) {{",
            *(i2 + v for v in c.views(self.stage)),
            self._load_text().rstrip("\n"),
            f"{i1}}};",
            "",
            f"{i1}// Prologue: fill all stages but one. Each commits, even with no tile left: the wait counts groups.",
            f"{i1}#pragma unroll",
            f"{i1}for (int {self.stage} = 0; {self.stage} < {ahead}; ++{self.stage}) {{",
            f"{i2}{kind} {var} = {c.tile_index(self.stage)};",
            f"{i2}if ({c.in_range(var)}) {call(var, self.stage)}",
            f"{i2}__pipeline_commit();",
            f"{i1}}}",
            "",
            f"{i1}int {self.read_stage} = 0;",
            f"{i1}int {self.write_stage} = {ahead};",
            f"{c.loop_header()} {{",
            f"{i2}__pipeline_wait_prior({c.stages_name} - 2);  // this tile has landed",
            f"{i2}__syncthreads();  // for every thread; and nobody still reads the stage that is filled next",
            f"{i2}{kind} {self.next_k} = {var} + {step};",
            f"{i2}if ({c.in_range(self.next_k)}) {call(self.next_k, self.write_stage)}",
            f"{i2}__pipeline_commit();",
            *(i2 + f for f in c.fence()),
            "",
            *(i2 + v for v in c.views(self.read_stage)),
            c.compute().rstrip("\n"),
            "",
            f"{i2}{self.read_stage} = {self.read_stage} + 1 == {c.stages_name} ? 0 : {self.read_stage} + 1;",
            f"{i2}{self.write_stage} = {self.write_stage} + 1 == {c.stages_name} ? 0 : {self.write_stage} + 1;",
            f"{i1}}}",
        ]
        return "\n".join(out)
