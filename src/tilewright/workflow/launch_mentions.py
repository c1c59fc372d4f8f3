"""Where else a file may launch a kernel, or allow it its bytes: what a search for ``<<<`` alone does not see."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.launch.host_code import LaunchSite, bare, closing, statement_start

_ASKS_ONLY = re.compile(r"\b(?:cuda|hip)(?:FuncSetAttribute|FuncGetAttributes|FuncSetCacheConfig)\s*\($")
_PASTED_LAUNCH = re.compile(r"##\s*\w+\s*(?:<[^<>;{}]*>)?\s*<<<")
_IN_ANY_CASE = re.compile(r"(?:[\w:]+\s*\(\s*)*|(?:[\w:*&]+\s+)*[\w:*&.>\-]+\s*=\s*")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b", re.MULTILINE)


def unseen_launch(text: str, kernel: str, sites: Iterable[LaunchSite]) -> int | None:
    """The line of the first place, besides launches and declarations, that names the kernel; None where there is none.

    Its address may be taken there (``cudaLaunchKernel``, a pointer that is launched later), or a macro may launch it.
    """
    code = bare(text)
    launches = [(site.start, site.config_spans[0][0] if site.config_spans else site.end) for site in sites]
    for match in re.finditer(rf"(?<![.\w])(?<!->){re.escape(kernel)}\b", code):
        at = match.start()
        if any(start <= at < end for start, end in launches):
            continue
        lead = code[statement_start(code, at) : at]
        if "__global__" in lead or re.match(r"using\b", lead) or _is_asked_about(code, at):
            continue
        return code.count("\n", 0, at) + 1
    pasted = _PASTED_LAUNCH.search(code)
    return code.count("\n", 0, pasted.start()) + 1 if pasted is not None else None


def _is_asked_about(code: str, at: int) -> bool:
    """Whether a name is the first argument of a call that launches nothing: ``cudaFuncGetAttributes(&a, k)`` too."""
    depth = 0
    for index in range(at - 1, -1, -1):
        depth += (code[index] == ")") - (code[index] == "(")
        if depth < 0:
            if _ASKS_ONLY.search(code[: index + 1]):
                return True
            depth = 0  # a cast or a macro around it
        elif code[index] in ";{}":
            return False
    return False


def surely_before(text: str, call: int, site: LaunchSite) -> bool:
    """Whether a call at ``call`` is made, whatever happens, in front of a launch: no condition, no other function."""
    code = bare(text)
    if call >= site.start:
        return False
    begin = statement_start(code, call)
    if not _IN_ANY_CASE.fullmatch(code[begin:call].strip() + " " if code[begin:call].strip() else ""):
        return False
    opened = [i for i in range(begin) if code[i] == "{" and closing(code, i) >= begin]
    if any(closing(code, i) < site.start for i in opened) or not any(i >= site.function for i in opened):
        return False
    return _branches(code, call) == _branches(code, site.start)[: len(_branches(code, call))]


def _branches(code: str, at: int) -> list[int]:
    """The branches of the preprocessor that a place stands in, outermost first."""
    stack: list[int] = []
    for match in _CONDITION.finditer(code, 0, at):
        if match[1].startswith("if"):
            stack.append(match.start())
        elif stack and match[1] == "endif":
            stack.pop()
        elif stack:
            stack[-1] = match.start()
    return stack
