"""cp.async with S stages: copies of tile t+S−1 are issued before the compute phase of tile t."""

from __future__ import annotations

from tilewright.kloop.kernel import Copy, CopyLoop, LaneStore, LoadItem, Refusal, RefusalCode, TiledKernel, Widening
from tilewright.rewrite import stream_copies
from tilewright.rewrite.context import LAST_BARRIER, Context
from tilewright.rewrite.cp_async_copies import ASYNC_WIDTHS, HEADER, AsyncCopies
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.stream_copies import StreamCopies
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit, behind_includes, finish, indented, unified_diff


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
    diff = unified_diff(kernel.handed_in, text, kernel.file, f"{kernel.file} (cp_async, {stages} stages)")
    return RewrittenSource("cp_async", stages, text, diff, 1, context.launch_bytes, context.remedy)


# -- refusals ------------------------------------------------------------------------------------------


def _refusal(c: Context) -> Refusal | None:
    refused = c.unusable(ring=True)
    if refused is not None:
        return refused
    if c.kernel.stream is not None:
        return stream_copies.refusal(c, c.kernel.stream) or c.kernel.stream.unring or c.kernel.unordered
    found = next((r for i in c.kernel.loads if (r := _item_refusal(c.kernel, i)) is not None), None)
    return found or c.kernel.unordered


def _line(kernel: TiledKernel, node: ir.Stmt) -> int:
    return kernel.line_of(node.span.start)


def _item_refusal(kernel: TiledKernel, item: LoadItem) -> Refusal | None:
    match item:
        case CopyLoop(widening=Widening()):
            return None
        case CopyLoop():
            return next((r for i in item.body if (r := _narrow(kernel, item, i) or _item_refusal(kernel, i))), None)
        case Copy(converts=True):
            return _converts(kernel, item)
        case Copy(width_bytes=w) | LaneStore(width_bytes=w) if w not in ASYNC_WIDTHS:
            what = f"cp.async moves 4, 8 or 16 bytes, this copy {w}"
            return Refusal("unsupported_width", what, _line(kernel, item.stmt), "the ldg variant moves any width")
    return None


def _narrow(kernel: TiledKernel, loop: CopyLoop, item: LoadItem) -> Refusal | None:
    """Why a loop over narrow elements could not be widened."""
    reason = loop.widening
    if not isinstance(item, Copy) or item.width_bytes >= min(ASYNC_WIDTHS) or not isinstance(reason, Refusal):
        return None
    if item.converts:
        return _converts(kernel, item)
    what = f"cp.async moves 4, 8 or 16 bytes, this copy {item.width_bytes}; it cannot be widened: {reason.message}"
    code: RefusalCode = "not_contiguous" if reason.code == "not_contiguous" else "unsupported_width"
    return Refusal(code, what, reason.line, reason.hint or "the ldg variant moves any width")


def _converts(kernel: TiledKernel, item: Copy) -> Refusal:
    what = "the copy converts or computes its elements on the way; cp.async moves bytes as they are"
    return Refusal("converts_type", what, _line(kernel, item.stmt), "the ldg variant computes on the way")


# -- writing -------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, context: Context) -> None:
        self.c = context
        n = context.names
        self.copy_tile = n.fresh("copy_tile")
        self.stage = n.fresh("stage")
        self.read_stage = n.fresh("read_stage")
        self.write_stage = n.fresh("write_stage")
        self.next_k = n.fresh(f"{context.kernel.loop.var.name}_ahead")
        text = context.stream_text
        self.copies = AsyncCopies(context) if text is None else StreamCopies(context, text.stream, text)

    def file(self) -> str:
        c, kernel = self.c, self.c.kernel
        edits = c.declarations(ring=True)
        last = f"({self.read_stage} == 0 ? {c.stages_name} : {self.read_stage}) - 1"
        edits += c.loop_edit(self._loop(), [LAST_BARRIER, *c.last_views(last)])
        if b"cuda_pipeline.h" not in lexical.without_comments(kernel.text):
            at = behind_includes(kernel.text, kernel.loop.insert_at)
            edits.append(Edit(at, at, f"{HEADER}\n"))
        return finish(kernel.text, edits)

    def _loop(self) -> list[str]:
        c = self.c
        i1, i2 = c.outer, c.inner
        ahead = f"{c.stages_name} - 1"
        return [
            f"{i1}// Software pipeline: while a tile is computed, the copies of the next {ahead} tiles are in flight.",
            *indented(self.copies.outside(), i1),
            *self._copy_tile(),
            "",
            *self._prologue(ahead),
            "",
            f"{i1}int {self.read_stage} = 0;",
            f"{i1}int {self.write_stage} = {ahead};",
            c.loop_header(),
            f"{i2}__pipeline_wait_prior({c.stages_name} - 2);  // this tile has landed",
            f"{i2}__syncthreads();  // for every thread; and nobody still reads the stage that is filled next",
            *indented(self._copy_next(ahead), i2),
            f"{i2}__pipeline_commit();",
            *indented(c.fence(), i2),
            "",
            *indented(c.views(self.read_stage), i2),
            *c.compute_lines(),
            "",
            f"{i2}{self.read_stage} = {self.read_stage} + 1 == {c.stages_name} ? 0 : {self.read_stage} + 1;",
            f"{i2}{self.write_stage} = {self.write_stage} + 1 == {c.stages_name} ? 0 : {self.write_stage} + 1;",
            f"{i1}}}",
        ]

    def _call(self, k: str, stage: str) -> str:
        return f"{self.copy_tile}({f'{k}, ' if self.c.loads_use_var() else ''}{stage});"

    def _copy_tile(self) -> list[str]:
        c = self.c
        k = f"{c.var_type} {c.kernel.loop.var.name}, " if c.loads_use_var() else ""
        return [
            f"{c.outer}auto {self.copy_tile} = [&]({k}int {self.stage}) {{",
            *indented(c.views(self.stage), c.inner),
            *self.copies.lines(),
            f"{c.outer}}};",
        ]

    def _prologue(self, ahead: str) -> list[str]:
        c, var = self.c, self.c.kernel.loop.var.name
        i1, i2 = c.outer, c.inner
        return [
            *c.first_barrier(),
            f"{i1}// Prologue: fill all stages but one. Each commits, even with no tile left: the wait counts groups.",
            f"{i1}#pragma unroll",
            f"{i1}for (int {self.stage} = 0; {self.stage} < {ahead}; ++{self.stage}) {{",
            *indented([f"{c.var_type} {var} = {c.tile_index(self.stage)};"], i2),
            *indented([f"if ({c.in_range(var)}) {self._call(var, self.stage)}"], i2),
            f"{i2}__pipeline_commit();",
            f"{i1}}}",
        ]

    def _copy_next(self, ahead: str) -> list[str]:
        c = self.c
        return [
            f"const {c.var_type} {self.next_k} = {c.kernel.loop.var.name} + {c.times(ahead)};",
            f"if ({c.in_range(self.next_k)}) {self._call(self.next_k, self.write_stage)}",
        ]
