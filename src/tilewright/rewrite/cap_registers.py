"""``__launch_bounds__`` with a minimum of blocks per SM: the compiler then keeps to the registers that let them fit.

Nothing else of the file changes. Where the kernel has bounds already their first argument stays, and so does a third.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright.kloop.kernel import Refusal
from tilewright.source import lexical
from tilewright.source.edits import Edit, finish
from tilewright.source.reader import KernelFunction, KernelSource

_BOUNDS = re.compile(rb"\b__launch_bounds__\s*\(")
_GLOBAL = re.compile(rb"\b__global__\b")
_OTHER_LIMITS = re.compile(rb"\b(__maxnreg__|__block_size__)\b")

Evaluate = Callable[[str], int | None]


def bounded(
    source: KernelSource, function: KernelFunction, threads: int, blocks: int, evaluate: Evaluate
) -> str | Refusal:
    """The file's text with at least ``blocks`` blocks of ``threads`` threads per SM asked for.

    Args:
        blocks: where the kernel's own bound is larger than ``threads``, what is written asks for as many warps.
        evaluate: what an argument of the bounds is worth; None where that is not known.
    """
    start, end = function.span.start, function.body.start
    bare = lexical.without_comments(source.text)
    head = bare[start:end]
    refused = _unclear(source, function, head, _in_front(bare, start))
    if refused is not None:
        return refused
    found = _BOUNDS.search(head)
    if found is None:
        word = _GLOBAL.search(head)
        assert word is not None
        at = start + word.end()
        return finish(source.text, [Edit(at, at, f" __launch_bounds__({threads}, {blocks})")])
    spans = _arguments(head, found.end())
    if spans is None:
        return _not_understood(function, "the arguments of `__launch_bounds__` are not understood")
    arguments = [head[a:b].decode() for a, b in spans]
    most = evaluate(arguments[0])
    if most is None or most < threads:
        return _not_understood(function, f"what `__launch_bounds__({arguments[0]})` allows is not known")
    if threads * blocks % most:
        what = f"the bound of {most} threads is no divisor of {blocks} blocks of {threads} threads"
        return _not_understood(function, what, "bound the threads by the number that is launched")
    wanted = threads * blocks // most
    if len(spans) == 1:
        at = start + spans[0][1]
        return finish(source.text, [Edit(at, at, f", {wanted}")])
    least = evaluate(arguments[1])
    if least is None or least >= wanted:
        what = f"the kernel asks for `{arguments[1]}` blocks per SM already"
        return _not_understood(function, what)
    return finish(source.text, [Edit(start + spans[1][0], start + spans[1][1], str(wanted))])


def _not_understood(function: KernelFunction, what: str, hint: str = "") -> Refusal:
    return Refusal("not_understood", what, function.line, hint)


def _in_front(bare: bytes, start: int) -> bytes:
    """What stands between the kernel and what ends before it, directives apart: a macro there may belong to it."""
    above = bare[max(bare.rfind(c, 0, start) for c in (b";", b"}", b"{")) + 1 : start]
    return b"\n".join(line for line in above.split(b"\n") if not line.lstrip().startswith(b"#"))


def _unclear(source: KernelSource, function: KernelFunction, head: bytes, in_front: bytes) -> Refusal | None:
    """What makes a kernel's head unsafe to edit."""
    if b"#" in head:
        return _not_understood(function, "the preprocessor cuts through the kernel's head")
    if len(_BOUNDS.findall(in_front + head)) > 1 or _BOUNDS.search(in_front) or len(_GLOBAL.findall(head)) != 1:
        return _not_understood(function, "the kernel's head does not name `__global__` once, with bounds once at most")
    if _OTHER_LIMITS.search(head):
        return _not_understood(function, "the kernel limits its registers by other means")
    for name in sorted(lexical.identifiers(in_front + head)):
        macro = source.macros.get(name)
        if macro is not None and re.search(r"\b(__launch_bounds__|__maxnreg__|__global__)\b", macro.body):
            return _not_understood(function, f"the macro `{name}` holds the kernel's bounds")
    return None


def _arguments(head: bytes, at: int) -> list[tuple[int, int]] | None:
    """The spans of the arguments behind an opening parenthesis, white space around them left out."""
    out: list[tuple[int, int]] = []
    depth, begin = 0, at
    for i in range(at, len(head)):
        c = head[i : i + 1]
        if depth == 0 and c in (b",", b")"):
            out.append(_trimmed(head, begin, i))
            begin = i + 1
            if c == b")":
                return out if all(a < b for a, b in out) and len(out) <= 3 else None
        depth += (c in (b"(", b"[", b"{")) - (c in (b")", b"]", b"}"))
        if c in (b"<", b">"):  # a template's argument list may hold a comma that separates nothing here
            return None
    return None


def _trimmed(head: bytes, start: int, end: int) -> tuple[int, int]:
    inner = head[start:end]
    return start + len(inner) - len(inner.lstrip()), start + len(inner.rstrip())
