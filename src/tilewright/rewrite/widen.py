"""The baseline with its cooperative loads widened to 16 bytes: one buffer still, and every tile waited for."""

from __future__ import annotations

from tilewright.rewrite.context import Context, flat
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.vectors import VectorLoop
from tilewright.source.edits import Edit, finish, indent_at, indented, unified_diff
from tilewright.source.kernel import Copy, CopyLoop, Fetch, Refusal, TiledKernel, Widening
from tilewright.source.widen import VECTOR_BYTES

_NO_RING = 1 << 30  # one buffer stays where it is, whatever its size


def rewrite(kernel: TiledKernel) -> RewrittenSource | Refusal:
    """The kernel with every copy loop that can be widened as a loop over 16-byte vectors."""
    loops = [i for i in kernel.loads if isinstance(i, CopyLoop) and isinstance(i.widening, Widening)]
    if not loops:
        return _refusal(kernel)
    context = Context(kernel, 1, Remedy(), _NO_RING)
    for array in kernel.staged:
        refused = context.misaligned(array, ring=False)
        if refused is not None:
            return refused
    first, number = context.names.fresh("first"), context.names.fresh("pass")
    edits = context.declarations(ring=False)
    for loop in loops:
        assert isinstance(loop.widening, Widening)
        text = _widened_loop(context, VectorLoop(context, loop, loop.widening), first, number)
        edits.append(Edit(loop.stmt.span.start, loop.stmt.span.end, text))
    text = finish(kernel.text, edits)
    diff = unified_diff(kernel.handed_in, text, kernel.file, f"{kernel.file} (widen)")
    return RewrittenSource("widen", 1, text, diff, 2, kernel.launch_shared_bytes)


def _refusal(kernel: TiledKernel) -> Refusal:
    """Why no copy is widened: they are wide, or what stands in the way of the first loop, where there is one."""
    copies = [i for i in flat(kernel.loads) if isinstance(i, Copy | Fetch)]
    if copies and all(i.width_bytes >= VECTOR_BYTES for i in copies):
        line = kernel.line_of(copies[0].stmt.span.start)
        return Refusal("not_contiguous", f"the copies move {VECTOR_BYTES} bytes each already", line)
    loops = [i for i in kernel.loads if isinstance(i, CopyLoop)]
    reason = next((i.widening for i in loops if isinstance(i.widening, Refusal)), None)
    if reason is not None:
        return Refusal(reason.code, f"no copy can be widened: {reason.message}", reason.line, reason.hint)
    line = kernel.line_of(kernel.load_span.start)
    return Refusal("not_contiguous", "no copy loop can be widened: the copies are one each per thread", line)


def _widened_loop(context: Context, v: VectorLoop, first: str, number: str) -> str:
    unit = context.unit
    pairs = [(context.address(x.target), context.address(x.source)) for x in v.copies]
    lines = [
        *v.open(number, first),
        *(unit * 2 + x for x in v.indices(first)),
        unit * 2 + f"if ({v.whole()}) {{",
        *(f"{unit * 3}*reinterpret_cast<uint4 *>({t}) = *reinterpret_cast<const uint4 *>({s});" for t, s in pairs),
        unit * 2 + "} else {",
        *(unit * 3 + x if x else x for x in v.element_loop(first)),
        unit * 2 + "}",
        *v.close(),
    ]
    return "\n".join(indented(lines, indent_at(context.kernel.text, v.loop.stmt.span.start))).lstrip()
