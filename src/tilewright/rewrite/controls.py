"""Controls: twins that differ from a variant, or from the baseline, in one thing, so that a gain can be attributed.

``widened``: the baseline with 16-byte loads, still waited for, one buffer. ``waited``: a variant whose wait (or whose
stores to shared memory) stands before the compute phase: buffers, width and copies stay, only the overlap goes.
"""

from __future__ import annotations

import re

from tilewright.rewrite.context import Context
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.vectors import VectorLoop
from tilewright.source.edits import Edit, finish, indent_at, indented
from tilewright.source.kernel import CopyLoop, Refusal, TiledKernel, Widening

_COMMIT = re.compile(r"^(?P<indent>[ \t]*)__pipeline_commit\(\);[^\n]*\n", re.MULTILINE)
_FETCH = re.compile(r"^[ \t]*if \(\w*has_next\w*\) \w*fetch_tile\w*\([^\n]*\);\n", re.MULTILINE)
_STORE = re.compile(r"^[ \t]*if \(\w*has_next\w*\) \w*store_tile\w*\([^\n]*\);\n", re.MULTILINE)


def widened(kernel: TiledKernel) -> str | Refusal:
    """The baseline's source with its copy loops widened to 16 bytes and nothing else changed."""
    loops = [i for i in kernel.loads if isinstance(i, CopyLoop) and isinstance(i.widening, Widening)]
    if not loops:
        return Refusal("not_contiguous", "no copy loop can be widened")
    context = Context(kernel, 1, Remedy(), 1 << 30)
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
    return finish(kernel.text, edits)


def _widened_loop(context: Context, v: VectorLoop, first: str, number: str) -> str:
    unit = context.unit
    target, source = context.address(v.copy.target), context.address(v.copy.source)
    lines = [
        *v.open(number, first),
        *(unit * 2 + x for x in v.indices(first)),
        unit * 2 + f"if ({v.whole()}) {{",
        unit * 3 + f"*reinterpret_cast<uint4 *>({target}) = *reinterpret_cast<const uint4 *>({source});",
        unit * 2 + "} else {",
        *(unit * 3 + x if x else x for x in v.element_loop(first)),
        unit * 2 + "}",
        *v.close(),
    ]
    return "\n".join(indented(lines, indent_at(context.kernel.text, v.loop.stmt.span.start))).lstrip()


def waited(variant: RewrittenSource) -> str | None:
    """The variant's source with its wait before the compute phase; None where one buffer leaves no room for that."""
    text = variant.text
    if variant.variant == "cp_async":
        wait = text.index("__pipeline_wait_prior(")
        commit = _COMMIT.search(text, wait)
        assert commit is not None
        indent = commit["indent"]
        return (
            text[: commit.end()]
            + f"{indent}__pipeline_wait_prior(0);\n{indent}__syncthreads();\n"
            + text[commit.end() :]
        )
    if variant.variant == "ldg":
        fetch, store = _FETCH.search(text), _STORE.search(text)
        assert fetch is not None
        assert store is not None
        return text[: fetch.end()] + store[0] + text[fetch.end() : store.start()] + text[store.end() :]
    return None
