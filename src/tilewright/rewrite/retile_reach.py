"""What else of a file hangs on a constant that is halved: other kernels, and how they are launched."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewright.launch.host_code import bare, closing, definitions, launch_sites
from tilewright.source.reader import OpenKernel

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_CALLED = re.compile(r"\b(\w+)\s*\(")
_BODY = re.compile(r"\)\s*(?:const\b|noexcept\b)?\s*(?:->\s*[\w:<>*& ]+)?\{")
_NO_FUNCTIONS = frozenset(("if", "for", "while", "switch"))


def shared_with(opened: OpenKernel, changed: frozenset[str]) -> str | None:
    """Another kernel of the file that works, or is launched, otherwise when constants change; None where there is none.

    Args:
        changed: the names of the constants. Macros and functions that use them stand for them.
    """
    source, own = opened.source, opened.function
    text = source.text.decode()
    code = bare(text)
    tainted = set(changed)
    named = [(name, macro.body) for name, macro in source.macros.items()]
    named += [(name, body) for name, body in _functions(code) if name != own.name]
    grown = True
    while grown:
        more = {name for name, body in named if name not in tainted and tainted & set(_WORD.findall(body))}
        tainted |= more
        grown = bool(more)
    for other in (k for k in source.kernels if k.span != own.span):
        body = source.text[other.span.start : other.span.end].decode()
        if tainted & set(_WORD.findall(bare(body))) or (
            other.name != own.name and _launched_by(text, other.name, tainted)
        ):
            return other.name
    return None


def _functions(code: str) -> Iterator[tuple[str, str]]:
    """(name, body) of the functions of a file."""
    for match in _CALLED.finditer(code):
        body = _BODY.match(code, max(closing(code, match.end() - 1), 0))
        end = closing(code, body.end() - 1) if body is not None else -1
        if body is not None and end > 0 and match[1] not in _NO_FUNCTIONS:
            yield match[1], code[body.end() : end]


def _launched_by(text: str, kernel: str, names: set[str]) -> bool:
    """Whether the grid, the block or the bytes of a kernel's launches come from some names."""
    for site in launch_sites(text, kernel):
        local = definitions(text, site)
        used = set(_WORD.findall(" ".join(site.config)))
        grown = True
        while grown:
            more = {w for n in used if n in local for w in _WORD.findall(local[n])} - used
            used |= more
            grown = bool(more)
        if used & names:
            return True
    return False
