"""Cutting CUDA C++ into the declarations of its namespaces and classes.

A scanner of tokens and brackets, not a parser: it never looks inside a function body, so that what grammars trip
over there (bare ``#pragma unroll``, statement macros without ``;``, inline assembly) cannot cost a kernel. It knows
comments, raw strings, line continuations, ``#if 0``, and brackets that differ between the branches of a conditional.

Offsets are byte offsets: the text is bytes decoded as Latin-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<gap>(?:\s+|//(?:\\\r?\n|[^\n])*|/\*.*?\*/|\\\r?\n)+)
  | (?P<text>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
           | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_$]\w*)
  | (?P<directive>\#(?:\\\r?\n|/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|[^\n\\]|\\.)*)
  | (?P<number>\.?\d(?:'\w|[eEpP][+-]|[\w.])*)
  | (?P<mark>::|->|.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_DEAD = re.compile(r"#\s*if\s+(?:0|false)\s*(?://[^\n]*|/\*.*?\*/\s*)?$", re.DOTALL)
_CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|elifdef|elifndef|endif)\b", re.MULTILINE)
_KEYWORD = re.compile(r"#\s*(\w+)")
_CLOSERS = {")": "(", "]": "[", "}": "{"}


def words(text: str) -> frozenset[str]:
    """A set of words, written as one text."""
    return frozenset(text.split())


# Words whose parentheses are no parameter list.
ATTRIBUTES = words(
    """__launch_bounds__ __cluster_dims__ __block_size__ __maxnreg__ __align__ alignas __attribute__ __declspec
    decltype noexcept explicit requires"""
)
_CLASS_KEYS = frozenset(("class", "struct", "union", "enum"))


@dataclass(frozen=True)
class Token:
    """One token; ``kind`` is word, directive, number, text or mark."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def directive(self) -> str:
        """``include``, ``define``, ``if`` … of a directive; empty for any other token."""
        match = _KEYWORD.match(self.text) if self.kind == "directive" else None
        return match[1] if match else ""


@dataclass(frozen=True)
class Item:
    """One declaration.

    Attributes:
        kind: function, prototype, type, alias, variable, macro_call, using_namespace, static_assert, scope (a
            namespace or ``extern "C"`` block), directive, or unknown (left alone).
        first, last: token indices, both included.
        head: one past the last token before the body; for anything without a body, ``last``.
        names: what it declares, as far as a scanner can tell.
        children: the declarations in a scope or class.
    """

    kind: str
    first: int
    last: int
    head: int
    names: tuple[str, ...] = ()
    children: tuple[Item, ...] = ()


def tokens(text: str) -> list[Token]:
    """The tokens of a text; comments, white space and ``#if 0`` regions are left out."""
    found: list[Token] = []
    position, size, scan = 0, len(text), _TOKEN.match
    while position < size:
        match = scan(text, position)
        if match is None:  # cannot happen: the last alternative takes any character
            break
        kind = match.lastgroup or "mark"
        if match["fence"] is not None:
            kind = "text"
        position = match.end()
        if kind == "gap":
            continue
        found.append(Token(kind, match[0], match.start(), position))
        if kind == "directive" and _DEAD.match(match[0]):
            position = _end_of_dead_region(text, position)
    return found


def _end_of_dead_region(text: str, position: int) -> int:
    depth = 0
    for match in _CONDITIONAL.finditer(text, position):
        word = match[1]
        if word.startswith("if"):
            depth += 1
        elif depth == 0:
            return match.start()
        elif word == "endif":
            depth -= 1
    return len(text)


def _pairs(found: list[Token]) -> dict[int, int]:
    """Opening bracket → its closing one. An opener that only one branch of a conditional has, has no partner."""
    pairs: dict[int, int] = {}
    stack: list[int] = []
    saved: list[list[int]] = []
    for index, token in enumerate(found):
        if token.kind == "directive":
            word = token.directive
            if word.startswith("if"):
                saved.append(list(stack))
            elif word.startswith("el") and saved:
                stack = list(saved[-1])
            elif word == "endif" and saved:
                saved.pop()
        elif token.kind != "mark":
            continue
        elif token.text in "([{":
            stack.append(index)
        elif (opener := _CLOSERS.get(token.text)) and any(found[i].text == opener for i in stack):
            while found[top := stack.pop()].text != opener:
                pass
            pairs[top] = index
    return pairs


@dataclass(frozen=True)
class Splitter:
    """Cuts one file's tokens; ``loose_macros`` are macros that may stand before a declaration without a ``;``."""

    found: list[Token]
    pairs: dict[int, int]
    loose_macros: frozenset[str]

    def items(self, low: int, high: int, in_class: bool = False) -> Iterator[Item]:
        """The declarations between two token indices."""
        index = low
        while index < high:
            token = self.found[index]
            if token.kind == "directive":
                yield Item("directive", index, index, index)
                index += 1
            elif token.text in ";}":
                index += 1
            elif in_class and token.text in ("public", "private", "protected") and self._text(index + 1) == ":":
                index += 2
            else:
                item = self._macro_call(index, high) or _Declaration(self, index, high, in_class).read()
                yield item
                index = max(item.last, index) + 1

    def _text(self, index: int) -> str:
        return self.found[index].text if index < len(self.found) else ""

    def _macro_call(self, index: int, high: int) -> Item | None:
        """``CHECKED(x)`` on a line of its own, which would else be read as the start of the next declaration."""
        if self.found[index].text not in self.loose_macros or self._text(index + 1) != "(":
            return None
        last = self.pairs.get(index + 1)
        if last is None or last + 1 >= high or self._text(last + 1) in ("{", ";", "(", "->"):
            return None
        return Item("macro_call", index, last, last, (self.found[index].text,))


class _Declaration:
    """One declaration, read token by token up to its ``;`` or the end of its body."""

    def __init__(self, splitter: Splitter, first: int, high: int, in_class: bool) -> None:
        self.splitter, self.first, self.high, self.in_class = splitter, first, high, in_class
        self.found, self.pairs = splitter.found, splitter.pairs
        self.words: list[str] = []  # the words outside brackets
        self.names: list[str] = []
        self.class_key = self.opened = self.assigned = self.colon = False
        self.children: tuple[Item, ...] = ()
        self.body_of_class: int | None = None

    def read(self) -> Item:
        index = self.first
        while index < self.high:
            token = self.found[index]
            text = token.text
            if text == ";" and token.kind == "mark":
                return self._simple(index)
            if text == "}" and token.kind == "mark":
                break
            if text == "{" and token.kind == "mark" and index in self.pairs:
                item = self._brace(index)
                if item is not None:
                    return item
                index = self.pairs[index] + 1
            elif text in "([" and token.kind == "mark":
                if not (self.words and self.words[-1] in ATTRIBUTES):
                    self._open(text)
                index = self.pairs.get(index, index) + 1
            elif token.kind == "word":
                index = self._word(index, text)
            elif text == "<" and not self.assigned:
                index = self._after_angles(index)
            else:
                if not self.opened and self.words and (text == "=" or (text in ",:" and not self.assigned)):
                    self._declare(self.words[-1])
                self.assigned |= text == "="
                self.colon |= text == ":" and self.opened
                index += 1
        return self._item("unknown", index - 1, index - 1)

    def _open(self, bracket: str) -> None:
        if not (self.opened or self.assigned) and self.words:
            self._declare(self.words[-1])
        self.opened |= bracket == "("

    def _declare(self, name: str) -> None:
        if name and name not in self.names:
            self.names.append(name)

    def _word(self, index: int, text: str) -> int:
        if text == "template" and self._text(index + 1) == "<":
            return self._after_angles(index + 1)
        self.words.append(text)
        if text in _CLASS_KEYS and not (self.opened or self.assigned):
            self.class_key = True
        if text == "operator":
            # operator=, operator(), operator bool: everything up to the parameter list is its name.
            index += 1
            if self._text(index) == "(" and self._text(index + 1) == ")":
                index += 1
            while index + 1 < self.high and self._text(index + 1) != "(":
                index += 1
        return index + 1

    def _text(self, index: int) -> str:
        return self.found[index].text if index < self.high else ""

    def _after_angles(self, index: int) -> int:
        depth = 0
        while index < self.high:
            text = self.found[index].text
            if text == "(":
                index = self.pairs.get(index, index)
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index + 1
            elif text in ";{":
                return index
            index += 1
        return index

    def _brace(self, index: int) -> Item | None:
        """What an opening brace begins; None where the declaration goes on behind the closing one."""
        close = self.pairs[index]
        if "namespace" in self.words or (self.words == ["extern"] and self.found[index - 1].kind == "text"):
            children = tuple(self.splitter.items(index + 1, close))
            return Item("scope", self.first, close, index, tuple(self.words[-1:]), children)
        if self.class_key and not (self.opened or self.assigned) and self.body_of_class is None:
            self.body_of_class = index
            self._declare(self._class_name())
            if "enum" in self.words:
                for token in self.found[index:close]:
                    self._declare(token.text if token.kind == "word" else "")
            else:
                self.children = tuple(self.splitter.items(index + 1, close, in_class=True))
            return None
        before = self.found[index - 1]
        member_initialiser = self.colon and (before.kind == "word" or before.text == ">")
        if self.opened and not self.assigned and self.body_of_class is None and not member_initialiser:
            macro = len(self.words) == 1 and not self.in_class
            return self._item("macro_call" if macro else "function", close, index)
        if not (self.opened or self.assigned) and self.words:
            self._declare(self.words[-1])
        return None

    def _class_name(self) -> str:
        plain = [w for w in self.words if w not in ATTRIBUTES and w != "final"]
        key = next(i for i, word in enumerate(plain) if word in _CLASS_KEYS)
        after = [w for w in plain[key + 1 :] if w not in _CLASS_KEYS]
        # `class EXPORTED Foo {`: the macro and the name are both taken as names.
        for word in after[1:2]:
            self._declare(word)
        return after[0] if after else ""

    def _simple(self, index: int) -> Item:
        """A declaration that ends with ``;``."""
        said = self.words
        if not said:
            return self._item("unknown", index, index)
        if not self.opened and (not self.assigned or self.found[index - 2].text == ","):
            self._declare(said[-1])
        if said[0] == "static_assert":
            kind = "static_assert"
        elif said[:2] == ["using", "namespace"]:
            kind = "using_namespace"
        elif said[0] in ("using", "typedef", "namespace"):
            kind = "alias"
            self.names += self._inner_names(index) if self.opened else []
        elif self.class_key and (self.body_of_class is not None or not (self.opened or self.assigned)):
            kind = "type"
            self._declare(self._class_name())
        elif self.opened and not self.assigned:
            kind = "macro_call" if len(said) == 1 and not self.in_class else "prototype"
        else:
            kind = "variable"
        return self._item(kind, index, index)

    def _inner_names(self, last: int) -> list[str]:
        """The name in ``typedef float (*Function)(int)``."""
        return [t.text for t in self.found[self.first : last] if t.kind == "word" and t.text not in self.words]

    def _item(self, kind: str, last: int, head: int) -> Item:
        return Item(kind, self.first, last, head, tuple(self.names), self.children)


def split(found: list[Token], loose_macros: frozenset[str] = frozenset()) -> tuple[Item, ...]:
    """A file's declarations, in order, from its tokens."""
    return tuple(Splitter(found, _pairs(found), loose_macros).items(0, len(found)))
