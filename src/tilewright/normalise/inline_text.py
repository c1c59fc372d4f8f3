"""Text of functions that are written out: names replaced token by token, lines moved to another indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_TOKEN = re.compile(
    r"""(?xs)
    (?P<skip> //[^\n]* | /\*.*?\*/ | R"\(.*?\)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \s+ )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<number> \.?\d (?: [eEpP][+-] | '(?=\w) | [\w.] )* )
  | (?P<other> ->\*? | :: | . )
    """
)
KEYWORDS = frozenset(
    """alignas alignof asm auto bool break case catch char class const constexpr const_cast continue decltype default do
    double dynamic_cast else enum explicit extern false float for if inline int long namespace new noexcept nullptr
    operator register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this true typedef typename union unsigned using void volatile while pragma unroll""".split()
)


def tokens(text: str) -> Iterator[tuple[str, str, int, bool]]:
    """(kind, text, offset, whether it names a member or something in a given scope) of each token but white space."""
    before = ""
    for m in _TOKEN.finditer(text):
        kind = m.lastgroup or "other"
        if kind == "skip":
            continue
        yield kind, m[0], m.start(), before in (".", "->", "::")
        before = m[0]


def words(text: str) -> frozenset[str]:
    """The names that a text uses by themselves: no keywords, members or names with a scope in front."""
    return frozenset(t for kind, t, _, inner in tokens(text) if kind == "word" and not inner and t not in KEYWORDS)


def count(text: str, name: str) -> int:
    """How often a text uses a name by itself."""
    return sum(kind == "word" and t == name and not inner for kind, t, _, inner in tokens(text))


def replaced(text: str, names: Mapping[str, str]) -> str:
    """The text with names replaced, wherever they stand by themselves."""
    out: list[str] = []
    at = 0
    for kind, t, start, inner in tokens(text):
        if kind == "word" and not inner and t in names:
            out += [text[at:start], names[t]]
            at = start + len(t)
    return "".join([*out, text[at:]])


def one_line(text: str) -> str:
    """A piece of code without comments and line breaks."""
    plain = "".join(" " if m[0].startswith(("//", "/*")) else m[0] for m in _TOKEN.finditer(text))
    return " ".join(plain.split())


def operand(text: str) -> str:
    """A piece of code as one operand of whatever stands around it."""
    return text if is_tight(text) else f"({text})"


def is_tight(text: str) -> bool:
    """Whether nothing around a piece of code can get between its parts: a name, a number, a call, an element."""
    depth, last = 0, ""
    for kind, t, start, _ in tokens(text):
        if depth == 0:
            follows = t in ("(", "[") and (last == "name" or last in (")", "]"))
            opens = start == 0 and (kind in ("word", "number") or t == "(")
            joined = t in (".", "->", "::") or last in (".", "->", "::")
            if not (opens or follows or joined) or (t == "[" and start == 0):
                return False
        depth += (t in "([") - (t in ")]")
        last = "name" if kind in ("word", "number") else t
    # `(a) b` would have been cut at `b`; a cast `(int)x` too.
    return bool(text)


def split_arguments(text: str) -> list[str] | None:
    """``int, 4, (a < b)`` → its parts; None where brackets do not match."""
    parts, depth, start = [], 0, 0
    for _, t, at, _ in tokens(text):
        if t in ("(", "[", "{", "<"):
            depth += 1
        elif t in (")", "]", "}", ">"):
            depth -= 1
            if depth < 0:
                return None
        elif t == "," and depth == 0:
            parts.append(one_line(text[start:at]))
            start = at + 1
    if depth:
        return None
    rest = one_line(text[start:])
    return [*parts, rest] if rest or parts else []


def moved(body: str, indent: str) -> list[str]:
    """The lines of a body at another indentation; what lies deeper stays deeper, blank lines at its ends go."""
    lines = [line.rstrip() for line in body.replace("\r\n", "\n").expandtabs(4).split("\n")]
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "//"))]
    # The first line may have stood behind the brace.
    depths = [len(line) - len(line.lstrip()) for line in code]
    base = min(depths, default=0)
    out = []
    for line in lines:
        own = len(line) - len(line.lstrip())
        out.append(indent + " " * max(own - base, 0) + line.lstrip() if line.strip() else "")
    return out
