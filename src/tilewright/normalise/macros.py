"""Macros that hide what the analysis has to see, expanded in place: the compiler gets the same tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.normalise.inline_callee import macro_closure
from tilewright.normalise.inline_sites import CallSites
from tilewright.normalise.inline_text import replaced, tokens, words
from tilewright.normalise.macro_uses import Use, body_words, uses, written
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit, indent_at, line_end
from tilewright.source.nodes import make_parser
from tilewright.source.parse import KernelConverter
from tilewright.source.reader import OpenKernel

_HEADERS = frozenset({"for", "while", "if"})
_JOINED = frozenset("+-&|<>=*/")


def macros(situation: Situation, sites: CallSites) -> Change | None:
    """Expand barriers, loop headers, shared declarations and whole statements of the load phase; one step a round."""
    kernel = situation.kernel
    used = list(uses(kernel))
    found = [u for u in used if _hides(kernel, u)] + list(_needed(kernel, used, sites))
    chosen: dict[int, Use] = {}
    for use in sorted(found, key=lambda u: (u.start, -u.end)):
        if all(use.start >= other.end for other in chosen.values()):
            chosen[use.start] = use
    if not chosen:
        return None
    span = kernel.function.span
    given = set(lexical.identifiers(kernel.source.text[span.start : span.end])) | set(kernel.source.macros)
    edits = [_edit(kernel, use, given) for use in chosen.values()]
    names = list(dict.fromkeys(u.macro.name for u in chosen.values()))
    listed = ", ".join(f"`{n}`" for n in names)
    what = f"the macro{'s' if len(names) > 1 else ''} {listed} {'are' if len(names) > 1 else 'is'} expanded"
    return Change(tuple(edits), what, kernel.source.line(min(chosen)))


# -- which ones ------------------------------------------------------------------------------------------


def _hides(kernel: OpenKernel, use: Use) -> bool:
    """A statement that hides a barrier, a shared array or the head of a loop."""
    if not use.statement:
        return False
    known = kernel.source.macros
    bodies = [use.macro, *(known[n] for n in macro_closure(body_words(use.macro), known))]
    inside = {w for m in bodies for kind, w, _, _ in tokens(m.body) if kind == "word"}
    first = next((w for _, w, _, _ in tokens(use.text)), "")
    headed = first in _HEADERS and use.behind not in (";", "}") and "}" not in use.text
    return "__syncthreads" in inside or "__shared__" in inside or headed


def _needed(kernel: OpenKernel, used: list[Use], sites: CallSites) -> Iterable[Use]:
    """Where the kernel cannot be read: the macros there. Else those of the load phase that stand for statements, or
    that rest on names of the kernel."""
    if kernel.errors:
        spots = [span for _, span in kernel.errors]
        near = [u for u in used if any(s.start <= u.end + 1 and s.end >= u.start - 1 for s in spots)]
        return [u for u in near if u.statement or _is_syntax(kernel, u)]
    if not any(u.statement or _is_syntax(kernel, u) for u in used):
        return []
    phases = [s for segment in sites.segments() for s in segment]
    inside = [u for u in used if any(s.span.start <= u.start < s.span.end for s in phases)]
    return [u for u in inside if (u.statement and _stands_alone(u)) or _is_syntax(kernel, u)]


def _is_syntax(kernel: OpenKernel, use: Use) -> bool:
    """Whether the macro rests on a variable of the kernel that is none of its arguments."""
    own = {s.name for s in kernel.symbols.values()}
    known = kernel.source.macros
    bodies = [use.macro, *(known[n] for n in macro_closure(body_words(use.macro), known))]
    return any(body_words(m) & own for m in bodies)


def _stands_alone(use: Use) -> bool:
    return use.semicolon or (use.macro.params is not None and use.behind not in ("=", "[", ".", "->", "+="))


# -- text ------------------------------------------------------------------------------------------------


def _edit(kernel: OpenKernel, use: Use, given: set[str]) -> Edit:
    text = kernel.source.text
    if not use.statement or not _stands_alone(use) or use.text.count(";") + use.text.count("{") == 0:
        return Edit(use.start, use.end, _apart(text, use))
    body, block = _unwrapped(use)
    names, clash = _declared(kernel, body)
    renamed: dict[str, str] = {}
    if block and not clash:
        inside = words(text[use.start : use.end].decode(errors="replace"))
        for name in sorted(names & given):
            if name in inside:
                clash = True
            n = 1
            while f"{name}_{n}" in given:
                n += 1
            renamed[name] = f"{name}_{n}"
        given |= {renamed.get(n, n) for n in names}
    indent = indent_at(text, use.start)
    end = use.end_semicolon if use.semicolon and (block or body.rstrip().endswith(("}", ";"))) else use.end
    if block and not clash and _in_block(use):
        lines = written(replaced(body, renamed))
    elif block:
        lines = ["{", *("    " + line for line in written(body)), "}"]
    else:
        lines = written(body)
    rest = text[end : line_end(text, end)].strip()
    new = ("\n" + indent).join(lines)
    return Edit(use.start, end, new + ("\n" + indent if rest and not rest.startswith((b"}", b";")) else ""))


def _apart(text: bytes, use: Use) -> str:
    """The expansion, kept apart from operators that it must not join."""
    new = use.text or " "
    before, behind = text[use.start - 1 : use.start].decode("latin-1"), text[use.end : use.end + 1].decode("latin-1")
    front = " " if before in _JOINED and new[:1] in _JOINED else ""
    back = " " if behind in _JOINED and new[-1:] in _JOINED else ""
    return front + new + back


def _unwrapped(use: Use) -> tuple[str, bool]:
    """The statements of an expansion, and whether they were a block of their own."""
    found = list(tokens(use.text))
    texts = [t for _, t, _, _ in found]
    if "break" in texts or "continue" in texts:  # they leave the macro's own loop
        return use.text, False
    if texts[:2] == ["do", "{"] and texts[-5:-1] == ["}", "while", "(", "0"] and texts[-1] == ")" and use.semicolon:
        return use.text[found[1][2] + 1 : found[-5][2]], True
    if texts[:1] == ["{"] and texts[-1:] == ["}"] and _one_block(texts):
        return use.text[found[0][2] + 1 : found[-1][2]], True
    return use.text, False


def _one_block(texts: list[str]) -> bool:
    depth = 0
    for i, t in enumerate(texts):
        depth += (t == "{") - (t == "}")
        if depth == 0 and i < len(texts) - 1:
            return False
    return True


def _declared(kernel: OpenKernel, body: str) -> tuple[set[str], bool]:
    """Names that statements declare at their top; True where that cannot be told."""
    parser = make_parser()
    root = parser.parse(f"void f() {{ {body}\n; }}".encode()).root_node
    function = next((c for c in root.named_children if c.type == "function_definition"), None)
    if function is None or root.has_error:
        return set(), True
    parsed = KernelConverter(parser, kernel.source.macros).convert(function)
    odd = any(isinstance(s, ir.Alias | ir.OpaqueStmt) for s in parsed.body.body)
    return {s.name for st in parsed.body.body if isinstance(st, ir.Declare) for s in st.symbols}, odd


def _in_block(use: Use) -> bool:
    """Whether a use stands where several statements may: not as the body of an ``if`` or a loop."""
    return use.before in ("{", "}", ";")
