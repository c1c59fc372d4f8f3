"""The baseline with its cooperative loads widened to 16 bytes: one buffer still, and every tile waited for."""

from __future__ import annotations

from tilewright.kloop.kernel import Copy, CopyLoop, Fetch, Refusal, TiledKernel, Widening
from tilewright.kloop.widen import VECTOR_BYTES
from tilewright.rewrite.context import Context, flat
from tilewright.rewrite.converted import ConvertedVectors
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.vectors import VectorLoop
from tilewright.source.edits import Edit, finish, indent_at, indented, unified_diff

_NO_RING = 1 << 30  # one buffer stays where it is, whatever its size


def rewrite(kernel: TiledKernel) -> RewrittenSource | Refusal:
    """The kernel with every copy loop that can be widened as a loop over 16-byte vectors."""
    loops = [w for i in kernel.loads if isinstance(i, CopyLoop) and (w := _widened(i)) is not None]
    if not loops:
        return _refusal(kernel)
    context = Context(kernel, 1, Remedy(), _NO_RING)
    for array in kernel.staged:
        refused = context.misaligned(array, ring=False)
        if refused is not None:
            return refused
    first, number, lane = (context.names.fresh(n) for n in ("first", "pass", "lane"))
    edits = context.declarations(ring=False)
    for loop in loops:
        assert isinstance(loop.widening, Widening)
        text = _widened_loop(context, VectorLoop(context, loop, loop.widening), first, number, lane)
        edits.append(Edit(loop.stmt.span.start, loop.stmt.span.end, text))
    text = finish(kernel.text, edits)
    diff = unified_diff(kernel.handed_in, text, kernel.file, f"{kernel.file} (widen)")
    return RewrittenSource("widen", 1, text, diff, 2, kernel.launch_shared_bytes)


def _widened(loop: CopyLoop) -> CopyLoop | None:
    """The loop in the form that can be widened: what it loads, where it converts; None where it cannot."""
    form = loop.converting if isinstance(loop.converting, CopyLoop) else loop
    return form if isinstance(form.widening, Widening) else None


def _refusal(kernel: TiledKernel) -> Refusal:
    """Why no copy is widened: they are wide, or what stands in the way of the first loop, where there is one."""
    copies = [i for i in flat(kernel.loads) if isinstance(i, Copy | Fetch)]
    if copies and all(i.width_bytes >= VECTOR_BYTES for i in copies):
        line = kernel.line_of(copies[0].stmt.span.start)
        return Refusal("not_contiguous", f"the copies move {VECTOR_BYTES} bytes each already", line)
    loops = [i for i in kernel.loads if isinstance(i, CopyLoop)]
    reasons = [i.converting if isinstance(i.converting, Refusal) else i.widening for i in loops]
    reason = next((r for r in reasons if isinstance(r, Refusal)), None)
    if reason is not None:
        return Refusal(reason.code, f"no copy can be widened: {reason.message}", reason.line, reason.hint)
    line = kernel.line_of(kernel.load_span.start)
    return Refusal("not_contiguous", "no copy loop can be widened: the copies are one each per thread", line)


def _widened_loop(context: Context, v: VectorLoop, first: str, number: str, lane: str) -> str:
    unit = context.unit
    pairs = [(context.address(x.target), context.address(x.source)) for x in v.copies if x.element is None]
    converted = ConvertedVectors(context, v.copies, v.lanes, lane)
    by_element = [*converted.load_lines(), *converted.store_lines()]
    opened = v.open(number, first)
    lines = [
        *(opened[1:] if context.pragma_above(v.loop.stmt) else opened),
        *(unit * 2 + x for x in v.indices(first)),
        unit * 2 + f"if ({v.whole()}) {{",
        *(unit * 3 + x for x in by_element),
        *(f"{unit * 3}*reinterpret_cast<uint4 *>({t}) = *reinterpret_cast<const uint4 *>({s});" for t, s in pairs),
        unit * 2 + "} else {",
        *([f"{unit * 3}// The ragged edge, or a row that is not 16-byte aligned."] if by_element else []),
        *(unit * 3 + x if x else x for x in v.element_loop(first)),
        unit * 2 + "}",
        *v.close(),
    ]
    return "\n".join(indented(lines, indent_at(context.kernel.text, v.loop.stmt.span.start))).lstrip()
