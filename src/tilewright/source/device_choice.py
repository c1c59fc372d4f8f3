"""Which declarations of a file device code needs, and why the others go.

What is a kernel or device function stays, always. A host function goes. Types, aliases, constants and constexpr
functions stay where something that stays mentions them, or where nothing in them speaks of the host; so template
arguments that only a launch names stay too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.source.device_split import Item, Token, words

DEVICE_WORDS = words("__global__ __device__ __constant__ __shared__ __managed__ __tile_global__ __grid_constant__")
# A macro with one of these is part of a declaration: it must not be cut off as a statement of its own.
ATTRIBUTE_WORDS = DEVICE_WORDS | words(
    """__host__ __launch_bounds__ __cluster_dims__ __forceinline__ __noinline__ __align__ alignas inline static extern
    template constexpr namespace struct class"""
)
_CONSTANT_WORDS = frozenset(("constexpr", "consteval", "constinit"))
_KNOWN_SCOPES = words("std cuda nvcuda wmma cooperative_groups cg nv experimental")
_STD_DEVICE = words(
    """size_t ptrdiff_t nullptr_t min max clamp swap move forward pair array numeric_limits integral_constant
    bool_constant true_type false_type enable_if enable_if_t conditional conditional_t void_t declval decay_t
    initializer_list abs sqrt exp exp2 log log2 pow fma fabs floor ceil round isnan isinf fmax fmin tanh"""
)
_STD_HOST = words(
    """vector string string_view map unordered_map set unordered_set list deque queue stack ostream istream iostream
    ofstream ifstream fstream stringstream ostringstream cout cerr clog endl thread mutex lock_guard unique_lock
    condition_variable future promise async function unique_ptr shared_ptr make_unique make_shared chrono random_device
    mt19937 exception runtime_error logic_error invalid_argument filesystem to_string regex locale"""
)
# Type names ending in _t that need no declaration of the user's; any other one may come from a header that is missing.
_KNOWN_TYPES = re.compile(
    r"(?:u?int(?:_least|_fast)?(?:8|16|32|64|max|ptr)|size|ptrdiff|wchar|char\d+|cuda\w+|\w+_\w+)_t"
)
_HOST_WORD = re.compile(r"FILE|throw|try|catch|(?:cublas|cudnn|cusparse|cusolver|cufft|nccl|nvml|MPI_)\w*")


@dataclass(frozen=True)
class Source:
    """One file, cut: its tokens and its declarations."""

    found: Sequence[Token]
    items: tuple[Item, ...]


@dataclass
class Choice:
    """The decision over all files at once.

    Attributes:
        dropped: per file, the declarations to blank, with the reason.
        mentioned: every word that what stays uses.
    """

    dropped: dict[int, list[tuple[Item, str]]] = field(default_factory=dict)
    mentioned: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Candidate:
    """A declaration that may stay: its words (host members left out) and whether they speak of the host."""

    file: int
    item: Item
    words: frozenset[str]
    host_only: bool
    clean: bool


def macro_words(found: Sequence[Token]) -> dict[str, frozenset[str]]:
    """Each ``#define``'s name and the words of its body and parameters."""
    macros: dict[str, frozenset[str]] = {}
    for token in found:
        if token.directive == "define":
            said = re.findall(r"[A-Za-z_]\w*", token.text)
            if len(said) > 1:
                macros[said[1]] = macros.get(said[1], frozenset()) | frozenset(said[2:])
    return macros


def closed_over(seeds: frozenset[str], macros: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Macros whose bodies hold one of the words, directly or through other macros."""
    hits: frozenset[str] = frozenset()
    while True:
        more = frozenset(name for name, body in macros.items() if body & (seeds | hits)) - hits
        if not more:
            return hits
        hits |= more


class Chooser:
    """Sorts every declaration of the files into stays, goes and may stay."""

    def __init__(
        self, sources: Mapping[int, Source], macros: Mapping[str, frozenset[str]], keep: frozenset[str]
    ) -> None:
        self.sources, self.macros = sources, macros
        self.device_words = DEVICE_WORDS | closed_over(DEVICE_WORDS, macros)
        self.constant_words = _CONSTANT_WORDS | closed_over(_CONSTANT_WORDS, macros)
        self.choice = Choice(mentioned=set(keep))
        self.candidates: list[_Candidate] = []
        self.pending = set(keep)
        self.scopes = set(_KNOWN_SCOPES)
        self.opened_std = False
        self.own_names: set[str] = set()

    def choose(self) -> Choice:
        """Run over all files."""
        for source in self.sources.values():
            for item in _all_items(source.items):
                self.own_names.update(item.names)
                self.scopes.update(item.names if item.kind in ("scope", "type", "alias") else ())
                said = [t.text for t in source.found[item.first : item.last]]
                self.opened_std |= said == ["using", "namespace", "std"]
        for file, source in self.sources.items():
            for item in source.items:
                self._sort(file, item)
        self._follow_mentions()
        self._settle_the_rest()
        return self.choice

    # --- one declaration ---

    def _sort(self, file: int, item: Item) -> None:
        if item.kind == "scope":
            for child in item.children:
                self._sort(file, child)
            return
        if item.kind == "directive":
            return
        head = self._words(file, item.first, item.head)
        name = item.names[0] if item.names else ""
        if item.kind == "unknown":
            self._stay(file, item)
        elif item.kind == "using_namespace":
            path = head[2:]
            if not path or path[0] not in self.scopes or (path[0] == "std" and len(path) > 1):
                self._drop(file, item, f"using namespace {'::'.join(path)}: not known here")
        elif item.kind == "type":
            self._sort_class(file, item, head)
        elif self.device_words.intersection(head):
            self._stay(file, item)
        elif item.kind in ("function", "prototype"):
            if self.constant_words.intersection(head) and "__host__" not in head:
                self._maybe(file, item)
            else:
                self._drop(file, item, f"host function {name}")
        elif item.kind == "macro_call":
            self._drop(file, item, f"host macro {self.sources[file].found[item.first].text}")
        elif item.kind == "variable" and not ({"const"} | self.constant_words).intersection(head):
            self._drop(file, item, f"host variable {name}")
        else:
            self._maybe(file, item)

    def _sort_class(self, file: int, item: Item, head: Sequence[str]) -> None:
        said = self._words(file, item.first, item.last)
        for member in () if "virtual" in said else self._host_members(file, item):
            self._drop(file, member, f"host member {item.names[0] if item.names else ''}::{''.join(member.names[:1])}")
        if self.device_words.intersection(said) and not self.device_words.intersection(head):
            self._stay(file, item)
        else:
            self._maybe(file, item)

    def _host_members(self, file: int, item: Item) -> Iterator[Item]:
        """Member functions that device code cannot call; data members stay, for they make the layout."""
        for member in item.children:
            head = self._words(file, member.first, member.head)
            if member.kind == "type":
                yield from self._host_members(file, member)
                continue
            if self.device_words.intersection(head) or self.constant_words.intersection(head):
                continue
            prototype = member.kind == "prototype" and self._host_only(file, member.first, member.last)
            if prototype or member.kind in ("function", "macro_call"):
                yield member

    def _stay(self, file: int, item: Item) -> None:
        self.pending.update(self._kept_words(file, item))

    def _maybe(self, file: int, item: Item) -> None:
        ranges = list(self._kept_ranges(file, item))
        host_only = any(self._host_only(file, low, high) for low, high in ranges)
        strange = any(self._strange(file, low, high) for low, high in ranges)
        said = frozenset(self._kept_words(file, item))
        self.candidates.append(_Candidate(file, item, said, host_only, not (host_only or strange)))

    def _drop(self, file: int, item: Item, why: str) -> None:
        self.choice.dropped.setdefault(file, []).append((item, why))

    # --- words ---

    def _words(self, file: int, first: int, last: int) -> list[str]:
        return [t.text for t in self.sources[file].found[first : last + 1] if t.kind == "word"]

    def _kept_ranges(self, file: int, item: Item) -> Iterator[tuple[int, int]]:
        """Token ranges of an item, without the members that were dropped from it."""
        low = item.first
        for member, _ in sorted(self.choice.dropped.get(file, []), key=lambda pair: pair[0].first):
            if item.first < member.first and member.last < item.last:
                yield low, member.first - 1
                low = member.last + 1
        yield low, item.last

    def _kept_words(self, file: int, item: Item) -> Iterator[str]:
        for low, high in self._kept_ranges(file, item):
            yield from self._words(file, low, high)

    def _host_only(self, file: int, first: int, last: int) -> bool:
        """Whether a stretch uses what only host code can: containers, streams, library handles, exceptions."""
        found = self.sources[file].found
        for index in range(first, last + 1):
            token = found[index]
            if token.kind != "word":
                continue
            if token.text == "std" and found[min(index + 1, last)].text == "::":
                if found[min(index + 2, last)].text in _STD_HOST:
                    return True
                continue
            bare = self.opened_std and token.text in _STD_HOST and found[index - 1].text not in (".", "->", "::")
            if bare or _HOST_WORD.fullmatch(token.text):
                return True
        return False

    def _strange(self, file: int, first: int, last: int) -> bool:
        """Whether a stretch leans on a name that none of the files declares: ``nlohmann::json``, ``pid_t``."""
        found = self.sources[file].found
        for index in range(first, last):
            text, before, after = found[index].text, found[index - 1].text, found[index + 1].text
            if found[index].kind != "word" or before in ("::", "typename", "class"):
                continue
            if after == "::":
                if text not in self.scopes or (text == "std" and found[min(index + 2, last)].text not in _STD_DEVICE):
                    return True
            elif text not in self.own_names and (
                before == "struct" or (text.endswith("_t") and not _KNOWN_TYPES.fullmatch(text))
            ):
                return True
        return False

    # --- all declarations together ---

    def _follow_mentions(self) -> None:
        """Take every candidate that something which stays mentions, until nothing more is mentioned."""
        waiting = [c for c in self.candidates if not c.host_only]
        mentioned = self.choice.mentioned
        while self.pending:
            for word in list(self.pending):
                self.pending |= self.macros.get(word, frozenset()) - mentioned
            fresh = self.pending - mentioned
            mentioned |= self.pending
            self.pending = {w for word in fresh for w in self.macros.get(word, ()) if w not in mentioned}
            for candidate in [c for c in waiting if mentioned.intersection(c.item.names)]:
                waiting.remove(candidate)
                self.pending |= candidate.words - mentioned
        self.candidates = waiting + [c for c in self.candidates if c.host_only]

    def _settle_the_rest(self) -> None:
        """Of what nothing mentions, keep what is clean and leans on nothing that goes."""
        kept_names = set(self.choice.mentioned)
        left = [c for c in self.candidates if c.clean]
        lost = {name for c in self.candidates if not c.clean for name in c.item.names}
        lost |= {name for drops in self.choice.dropped.values() for item, _ in drops for name in item.names}
        while True:
            leaning = [c for c in left if (c.words - frozenset(c.item.names)) & (lost - kept_names)]
            if not leaning:
                break
            left = [c for c in left if c not in leaning]
            lost |= {name for c in leaning for name in c.item.names}
        for candidate in self.candidates:
            if candidate in left:
                self.choice.mentioned |= candidate.words
            else:
                kind = candidate.item.kind
                self._drop(candidate.file, candidate.item, f"host {kind} {''.join(candidate.item.names[:1])}".rstrip())


def _all_items(items: Sequence[Item]) -> Iterator[Item]:
    for item in items:
        yield item
        yield from _all_items(item.children)
