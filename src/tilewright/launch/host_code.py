"""The host side of a ``.cu`` file: where its kernels are launched, and what the names there stand for.

Host code is read as text, not as a tree: it is full of what no CUDA grammar knows (macros of test frameworks, torch),
and all that matters of it are calls ``kernel<…><<<grid, block, bytes>>>(…)`` and the locals that their arguments name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT_OR_STRING = re.compile(r'\\(?=\r?\n)|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_OPENERS, _CLOSERS = "([{", ")]}"
_LAUNCH = re.compile(r"<<<")
_LOCAL = re.compile(
    r"\b(?:(?:const|constexpr|static|unsigned|signed|long|short|int|auto|bool|size_t|u?int\d+_t|uint|Index|dim3|[A-Z]\w*)"
    r"\s+)+(\w+)\s*(=|\(|\{)"
)
_NEXT_DECLARATOR = re.compile(r"\s*,\s*(\w+)\s*=\s*")
_NEXT_DIM3 = re.compile(r"\s*,\s*(\w+)\s*[({]")
_ASSIGNED = re.compile(r"\b(\w+(?:(?:\.|->)\w+)*)\s*=(?!=)\s*")
_NO_FUNCTION = re.compile(r"\b(?:namespace|extern|struct|class|union|enum)\b[^;()]*$|=\s*$")


@dataclass(frozen=True)
class LaunchSite:
    """One ``kernel<…><<<grid, block, bytes, stream>>>(…)``.

    Attributes:
        start, end: of the whole call in the text, from the kernel's name to its closing parenthesis.
        template, config, arguments: the texts between the brackets.
        config_spans: where each of ``config`` stands.
        statement: where the statement begins that holds the call.
        function: where the host function begins that holds it (its name and parameters included).
        in_macro: it stands in a ``#define``.
    """

    start: int
    end: int
    line: int
    template: tuple[str, ...]
    config: tuple[str, ...]
    config_spans: tuple[tuple[int, int], ...]
    arguments: tuple[str, ...]
    statement: int
    function: int
    in_macro: bool


def bare(text: str) -> str:
    """Comments, strings and the marks of continued lines blanked; every offset and line stays."""
    return _COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def launch_sites(text: str, kernel: str) -> tuple[LaunchSite, ...]:
    """Every launch of a kernel (its unqualified name) in a file, in order."""
    code = bare(text)
    found: list[LaunchSite] = []
    for match in _LAUNCH.finditer(code):
        named = _named(code, match.start())
        if named is None or named[1] != kernel:
            continue
        start, _, template = named
        close = _launch_end(code, match.end())
        opened = re.compile(r"\s*\(").match(code, close + 3) if close >= 0 else None
        end = closing(code, opened.end() - 1) if opened is not None else -1
        if opened is None or end < 0:
            continue
        spans = tuple(split_spans(code, match.end(), close))
        found.append(
            LaunchSite(
                start,
                end + 1,
                code.count("\n", 0, start) + 1,
                template,
                tuple(code[a:b] for a, b in spans),
                spans,
                tuple(code[a:b] for a, b in split_spans(code, opened.end(), end)),
                statement_start(code, start),
                _function(code, start),
                _in_macro(text, start),
            )
        )
    return tuple(found)


def definitions(text: str, site: LaunchSite) -> dict[str, str]:
    """What the host function says, before the launch, that its locals are: name → text, the nearest one counting.

    ``dim3 grid(a, b);`` gives ``grid`` the text ``dim3(a, b)``; ``grid.x = a;`` gives ``grid.x``. What is assigned
    later than it is declared keeps the last text before the launch.
    """
    code = bare(text)[site.function : site.statement]
    found: dict[str, str] = {}
    for match in _LOCAL.finditer(code):
        _one_local(code, match, found)
    for match in _ASSIGNED.finditer(code):
        found.setdefault(match[1], "")
        end = _expression_end(code, match.end())
        found[match[1]] = code[match.end() : end].strip()
    return {name: value for name, value in found.items() if value}


def _one_local(code: str, match: re.Match[str], found: dict[str, str]) -> None:
    is_dim3 = re.search(r"\bdim3\b", code[match.start() : match.start(1)]) is not None
    if match[2] == "=":
        end = _expression_end(code, match.end())
        found[match[1]] = code[match.end() : end].strip()
        while (more := _NEXT_DECLARATOR.match(code, end)) is not None:
            end = _expression_end(code, more.end())
            found[more[1]] = code[more.end() : end].strip()
        return
    close = closing(code, match.end() - 1)
    if close < 0:
        return
    inside = code[match.end() : close].strip()
    if is_dim3:
        found[match[1]] = f"dim3({inside})"
        while (next_one := _NEXT_DIM3.match(code, close + 1)) is not None:  # dim3 block(T, T), grid(n, m);
            close = closing(code, next_one.end() - 1)
            if close < 0:
                return
            found[next_one[1]] = f"dim3({code[next_one.end() : close].strip()})"
    elif match[2] == "{":
        found[match[1]] = inside


def closing(code: str, at: int) -> int:
    """The bracket that closes the one at ``at``; -1 where none does. ``code`` without comments and strings."""
    depth = 0
    for index in range(at, len(code)):
        if code[index] in _OPENERS:
            depth += 1
        elif code[index] in _CLOSERS:
            depth -= 1
            if depth == 0:
                return index
    return -1


def split_spans(code: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The pieces between top-level commas, without the space around them; none where there is only space."""
    depth, begin = 0, start
    for index in range(start, end + 1):
        here = code[index] if index < end else ","
        if here in _OPENERS:
            depth += 1
        elif here in _CLOSERS:
            depth -= 1
        elif here == "<" and re.compile(r"\w\s*$").search(code, begin, index) and _is_template(code, index, end):
            depth += 1
        elif here == ">" and depth and index and code[index - 1] != "-":
            depth -= 1
        if here == "," and (depth == 0 or index == end):
            a, b = begin, index
            while a < b and code[a].isspace():
                a += 1
            while b > a and code[b - 1].isspace():
                b -= 1
            if a < b:
                yield a, b
            begin = index + 1


def _is_template(code: str, at: int, end: int) -> bool:
    """``name<…>(`` or ``name<…>`` before a comma: a template's arguments and no comparison."""
    found = re.compile(r"<[\w:,\s*]*>\s*(?:[(,{]|::)").match(code, at, end)
    return found is not None


def angle_list(code: str, at: int) -> tuple[tuple[str, ...], int]:
    """The arguments of the template list that opens at ``at``, and where it closes; -1 where it does not."""
    found: list[str] = []
    depth, begin, index = 0, at + 1, at
    while 0 <= index < len(code) and code[index] not in ";{}":
        if code[index] in "([":
            index = closing(code, index)  # (a > b) is one argument
            if index < 0:
                break
        elif code[index] == "<":
            depth += 1
        elif code[index] == ">" and code[index - 1] != "-":
            depth -= 1
        if depth == 0 or (depth == 1 and code[index] == ","):
            found.append(code[begin:index].strip())
            begin = index + 1
        if depth == 0:
            return tuple(a for a in found if a), index
        index += 1
    return (), -1


@dataclass(frozen=True)
class Instantiation:
    """``template __global__ void gemm<128>(…);``: an explicit instantiation of a kernel template.

    Attributes:
        start: where it begins. template: the texts of its arguments.
        end: where the parenthesis stands that closes its parameters; None where it has none (``template decltype(…)``).
        in_macro: it stands in a ``#define``.
    """

    start: int
    line: int
    template: tuple[str, ...]
    end: int | None
    in_macro: bool


def instantiations_of(text: str, kernel: str) -> tuple[Instantiation, ...]:
    """Every explicit instantiation of a kernel template in a file, in order; its namespaces may be left out."""
    code = bare(text)
    found: list[Instantiation] = []
    name = kernel.split("::")[-1]
    for match in re.finditer(
        rf"(?<![\w.:>])template\b(?!\s*<)[^;{{}}<]*?((?:\b\w+\s*::\s*)*\b{re.escape(name)})\s*<", code
    ):
        called = "".join(match[1].split())
        if not f"::{kernel}".endswith(f"::{called}") and not called.endswith(f"::{kernel}"):
            continue
        arguments, close = angle_list(code, match.end() - 1)
        if close < 0:
            continue
        opened = re.compile(r"\s*\(").match(code, close + 1)
        end = closing(code, opened.end() - 1) if opened is not None else -1
        line = code.count("\n", 0, match.start()) + 1
        in_macro = _in_macro(text, match.start())
        found.append(Instantiation(match.start(), line, arguments, end if end >= 0 else None, in_macro))
    return tuple(found)


def _named(code: str, at: int) -> tuple[int, str, tuple[str, ...]] | None:
    """(start, name, template arguments) of the kernel whose ``<<<`` stands at ``at``."""
    end = at
    while end and code[end - 1].isspace():
        end -= 1
    template: tuple[str, ...] = ()
    if end and code[end - 1] == ">":
        depth, index = 0, end - 1
        while index >= 0:
            if code[index] == ">" and code[index - 1] != "-":
                depth += 1
            elif code[index] == "<":
                depth -= 1
                if depth == 0:
                    break
            elif code[index] in ";{}":
                return None
            index -= 1
        if index < 0:
            return None
        template = tuple(code[a:b] for a, b in split_spans(code, index + 1, end - 1))
        end = index
        while end and code[end - 1].isspace():
            end -= 1
    match = re.search(r"(?:::)?(?:\w+\s*::\s*)*(\w+)$", code[max(0, end - 200) : end])
    return (max(0, end - 200) + match.start(), match[1], template) if match is not None else None


def _launch_end(code: str, at: int) -> int:
    """Where ``>>>`` stands that ends the configuration which begins at ``at``; -1 where none does."""
    depth = 0
    for index in range(at, len(code)):
        if code[index] in _OPENERS:
            depth += 1
        elif code[index] in _CLOSERS:
            depth -= 1
            if depth < 0:
                return -1
        elif depth == 0 and code.startswith(">>>", index):
            # `x<y>>>>`: the last three are the launch's.
            while code.startswith(">>>", index + 1):
                index += 1
            return index
        elif code[index] == ";":
            return -1
    return -1


def statement_start(code: str, at: int) -> int:
    """Where the statement begins that holds ``at``."""
    depth = 0
    for index in range(at - 1, -1, -1):
        here = code[index]
        if here in ")]":
            depth += 1
        elif here in "([":
            depth = max(0, depth - 1)
        elif depth == 0 and here in ";{}":
            begin = index + 1
            return _after_directives(code, begin, at)
    return _after_directives(code, 0, at)


def _after_directives(code: str, begin: int, at: int) -> int:
    for directive in re.compile(r"^[ \t]*#.*\n", re.MULTILINE).finditer(code, begin, at):
        begin = directive.end()
    while begin < at and code[begin].isspace():
        begin += 1
    return begin


def _in_macro(text: str, at: int) -> bool:
    line = text.rfind("\n", 0, at) + 1
    while line > 1 and text[:line].rstrip("\r\n").endswith("\\"):
        line = text.rfind("\n", 0, line - 1) + 1
    return text[line:at].lstrip().startswith("#")


def _function(code: str, at: int) -> int:
    """Where the outermost function begins around ``at``; 0 outside of one."""
    openers: list[int] = []
    for index, here in enumerate(code[:at]):
        if here == "{":
            openers.append(index)
        elif here == "}" and openers:
            openers.pop()
    for brace in openers:
        head_start = max(code.rfind(mark, 0, brace) for mark in (";", "}", "{")) + 1
        if not _NO_FUNCTION.search(code[head_start:brace].rstrip()):
            return head_start
    return 0


def _expression_end(code: str, at: int) -> int:
    """Where the expression ends that begins at ``at``: before its comma or semicolon."""
    depth = 0
    for index in range(at, len(code)):
        here = code[index]
        if here in _OPENERS:
            depth += 1
        elif here in _CLOSERS:
            depth -= 1
            if depth < 0:
                return index
        elif depth == 0 and here in ",;":
            return index
    return len(code)
