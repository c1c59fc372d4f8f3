"""A ``.cu`` file → its kernels, constants and device functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.source import file_names, ir, lexical
from tilewright.source.conditionals import Conditionals, conditionals
from tilewright.source.constants import Constants, Evaluable
from tilewright.source.definitions import (
    Definition,
    TemplateParameter,
    definitions,
    function_declarator,
    functions_of,
    has_qualifier,
    name_of,
    reachable,
    scope_of,
    template_parameters,
)
from tilewright.source.device_functions import device_functions
from tilewright.source.effects import DeviceFunction
from tilewright.source.headers import Header
from tilewright.source.intrinsics import is_known
from tilewright.source.parse import KernelConverter, ParsedKernel, make_parser, text

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class KernelFunction:
    """One ``__global__`` function with a body.

    Attributes:
        params: (name, type text) in order.
        launch_bounds: the text of its arguments, or "".
        scope: the namespaces around it, outermost first.
    """

    name: str
    line: int
    template: tuple[TemplateParameter, ...]
    params: tuple[tuple[str, str], ...]
    launch_bounds: str
    span: ir.Span
    body: ir.Span
    scope: tuple[str, ...] = ()

    @property
    def qualified(self) -> str:
        """The name as other code calls it: ``ns::gemm``."""
        return "::".join((*self.scope, self.name))


@dataclass(frozen=True)
class KernelSource:
    """A file, read: its text and kernels; the macros and type aliases of it and of the user's headers.

    Attributes:
        headers: the user's own, which spans never point into.
        root: the file's tree. seen: which parts of the file the compiler takes.
    """

    file: str
    text: bytes
    kernels: tuple[KernelFunction, ...]
    macros: dict[str, lexical.Macro]
    aliases: dict[str, str]
    alignments: tuple[tuple[int, str], ...]
    pragmas: tuple[tuple[int, str], ...]
    headers: tuple[Header, ...] = ()
    root: Node | None = field(default=None, compare=False, repr=False)
    seen: Conditionals = field(default=Conditionals(), compare=False, repr=False)

    def line(self, offset: int) -> int:
        return lexical.line_of(self.text, offset)

    def namesakes(self, function: KernelFunction) -> frozenset[str]:
        """The kernels of the file that are called like one, in whatever namespace: itself, and any other."""
        return frozenset(k.qualified for k in self.kernels if k.name == function.name)

    def kernel(self, name: str | None) -> KernelFunction:
        """The kernel of that name, or the only one.

        Raises:
            TilewrightError: ``source/no_kernel``, ``source/unknown_kernel``, ``source/several_kernels``.
        """
        bare = {k.name for k in self.kernels}
        names = [k.name if len(bare) == len(self.kernels) else k.qualified for k in self.kernels]
        if not names:
            raise TilewrightError(
                "source/no_kernel",
                "The file holds no __global__ function with a body.",
                {"file": self.file},
                "Name the .cu file that defines the kernel.",
            )
        if name is None:
            if len(names) > 1:
                raise TilewrightError(
                    "source/several_kernels",
                    f"The file holds {len(names)} kernels: {', '.join(names)}.",
                    {"file": self.file},
                    f"Name one: --kernel {names[0]}.",
                )
            return self.kernels[0]
        found = [k for k in self.kernels if k.qualified == name] or [k for k in self.kernels if k.name == name]
        if len({k.qualified for k in found}) > 1:
            raise TilewrightError(
                "source/several_kernels",
                f"{name} may be {' or '.join(f'{k.qualified} (line {k.line})' for k in found)}.",
                {"file": self.file},
                f"Name one with its namespace: --kernel {found[0].qualified}, or in the sidecar.",
            )
        if len(found) > 1:
            lines = ", ".join(str(k.line) for k in found)
            raise TilewrightError(
                "source/kernel_twice",
                f"The file defines {name} {len(found)} times, at lines {lines}.",
                {"file": self.file},
                "Keep one: which of them the preprocessor takes is not known here.",
            )
        if found:
            return found[0]
        raise TilewrightError(
            "source/unknown_kernel",
            f"The file holds no kernel {name!r}; it holds {', '.join(names)}.",
            {"file": self.file},
            "Check --kernel and the sidecar's `kernel`.",
        )


def read_source(
    raw: bytes, file: str, headers: Sequence[Header] = (), defines: Mapping[str, str] | None = None
) -> KernelSource:
    """Find the kernels of a file.

    Args:
        headers: the user's own headers, from :func:`tilewright.source.headers.own_headers`.
        defines: ``-D`` names and what they stand for; nothing in the file overrules them.

    Raises:
        TilewrightError: ``source/not_text`` for binary files.
    """
    if b"\0" in raw[:65536]:
        raise TilewrightError(
            "source/not_text",
            "The file is binary, not CUDA C++ text.",
            {"file": file},
            "Name a .cu file; a .cubin goes to `tilewright prove`.",
        )
    try:
        raw.decode()
    except UnicodeDecodeError as e:
        raise TilewrightError(
            "source/not_text", f"The file is not UTF-8 text (byte {e.start}).", {"file": file}, "Save it as UTF-8."
        ) from None
    masked = lexical.mask(raw)
    root = make_parser().parse(masked.text).root_node
    seen = conditionals(lexical.without_comments(raw))
    kernels = [
        _kernel(node, raw)
        for node in functions_of(root)
        if has_qualifier(node, "__global__") and seen.at(node.start_byte) != "skipped"
    ]
    unique = {k.span.start: k for k in kernels}
    macros = lexical.macros(*(h.text for h in headers), raw)
    macros |= {name: lexical.Macro(name, None, value, -1) for name, value in (defines or {}).items() if name in macros}
    return KernelSource(
        file,
        raw,
        tuple(unique.values()),
        macros,
        file_names.aliases(root, *(h.root for h in headers)),
        masked.alignments,
        masked.pragmas,
        tuple(headers),
        root,
        seen,
    )


@dataclass(frozen=True)
class OpenKernel:
    """A kernel's body as a tree, with what is needed to reason about it.

    Attributes:
        functions: what the functions do that the kernel may call, by name.
        definitions: every definition of those functions, in the file and its headers.
        given: template arguments and ``-D`` definitions that are integers.
        worth: those of the functions that have one definition; what a call is worth may follow from its arguments.
    """

    source: KernelSource
    function: KernelFunction
    params: tuple[ir.Symbol, ...]
    body: ir.Block
    symbols: dict[int, ir.Symbol]
    constants: Constants
    functions: dict[str, DeviceFunction]
    errors: tuple[tuple[str, ir.Span], ...]
    given: dict[str, int]
    definitions: dict[str, tuple[Definition, ...]] = field(default_factory=dict)
    worth: dict[str, Evaluable] = field(default_factory=dict)


def open_kernel(source: KernelSource, function: KernelFunction, values: Mapping[str, int]) -> OpenKernel:
    """Parse a kernel's body. ``values``: template arguments and ``-D`` definitions that are integers."""
    parser = make_parser()
    root = source.root or parser.parse(lexical.mask(source.text).text).root_node
    roots = [*(h.root for h in source.headers), root]
    found = definitions(root, source.text, source.seen, source.headers, source.macros)
    source = replace(source, macros=_macros_at(source, function))
    macros = {
        n: replace(m, settled=False) if m.conditional and (n in found or is_known(n)) else m
        for n, m in source.macros.items()
        if n not in values
    }
    node = next(n for n in functions_of(root) if n.start_byte == function.span.start)
    parsed = KernelConverter(parser, macros).convert(node)
    wanted = reachable(source.text[function.span.start : function.span.end], found, macros)
    converted = {name: [KernelConverter(parser, macros).convert(d.node) for d in some] for name, some in wanted.items()}
    named: dict[str, file_names.Constant] = {}
    for one in roots:
        named.update(file_names.constants(one, parser, macros))
    worth = _evaluable(wanted, converted)
    constexpr = {n: f for n, f in worth.items() if has_qualifier(wanted[n][0].node, "constexpr")}
    constants = Constants(values, named, parsed.symbols, source.aliases, constexpr)
    constants.used |= parsed.macros_used
    return OpenKernel(
        source,
        function,
        parsed.params,
        parsed.body,
        parsed.symbols,
        constants,
        device_functions(converted, source.aliases),
        parsed.errors,
        dict(values),
        wanted,
        worth,
    )


def _macros_at(source: KernelSource, function: KernelFunction) -> dict[str, lexical.Macro]:
    """The macros as one kernel sees them: those that are defined for it and undefined behind it have one meaning."""
    out = dict(source.macros)
    text = source.text[function.span.start : function.span.end]
    for name, macro in source.macros.items():
        word = name.encode()
        if macro.settled or word not in text or any(word in h.text for h in source.headers):
            continue
        now = lexical.in_effect(source.text, name, function.span.start, function.span.end)
        if now is None:
            del out[name]
        elif now != "unknown":
            out[name] = now
    return out


def _evaluable(
    wanted: Mapping[str, Sequence[Definition]], converted: Mapping[str, Sequence[ParsedKernel]]
) -> dict[str, Evaluable]:
    """The functions whose name has one definition: what calls of them are worth can be worked out."""
    out = {}
    for name, some in wanted.items():
        if len(some) == 1 and some[0].settled:
            returns = some[0].node.child_by_field_name("type")
            stars = some[0].node.child_by_field_name("declarator") != function_declarator(some[0].node)
            if returns is not None and not stars:
                out[name] = Evaluable(some[0].template, text(returns), converted[name][0])
    return out


def reopen(kernel: OpenKernel, text: bytes) -> OpenKernel:
    """The same kernel of an edited file, with the same headers, template arguments and ``-D`` definitions."""
    before = kernel.source
    source = read_source(text, before.file, before.headers)
    source = replace(source, macros=source.macros | _defined(before), aliases={**source.aliases, **before.aliases})
    after = open_kernel(source, source.kernel(kernel.function.qualified), kernel.given)
    after.constants.used |= kernel.constants.used  # what a pass relied on is confirmed as well
    return after


def _defined(source: KernelSource) -> dict[str, lexical.Macro]:
    """The macros that ``-D`` set."""
    return {n: m for n, m in source.macros.items() if m.start < 0}


# -- walking the file's tree ---------------------------------------------------------------------------


def _kernel(node: Node, raw: bytes) -> KernelFunction:
    body = node.child_by_field_name("body")
    assert body is not None
    params: list[tuple[str, str]] = []
    declarator = function_declarator(node)
    plist = declarator.child_by_field_name("parameters") if declarator is not None else None
    for p in plist.named_children if plist is not None else ():
        if p.type in ("parameter_declaration", "optional_parameter_declaration"):
            params.append(_parameter(p))
    bounds = next((c for c in node.children if c.type == "launch_bounds"), None)
    inside = re.search(r"\((.*)\)", text(bounds), re.DOTALL) if bounds is not None else None
    return KernelFunction(
        name_of(node),
        lexical.line_of(raw, node.start_byte),
        template_parameters(node),
        tuple(params),
        inside[1].strip() if inside else "",
        ir.Span(node.start_byte, node.end_byte),
        ir.Span(body.start_byte, body.end_byte),
        scope_of(node),
    )


def _parameter(node: Node) -> tuple[str, str]:
    """(name, type with its stars) of a parameter."""
    declarator = node.child_by_field_name("declarator")
    whole = text(node)
    if declarator is None:
        return "", whole
    inner: Node | None = declarator
    while inner is not None and inner.type != "identifier":
        nxt = inner.child_by_field_name("declarator")
        inner = nxt or next((c for c in inner.named_children if c.type == "identifier" or "declarator" in c.type), None)
    name = text(inner) if inner is not None else ""
    head = whole[: declarator.start_byte - node.start_byte] + text(declarator)
    kind = re.sub(rf"\b{re.escape(name)}\b(?=[^\w]*$|\[)", "", head) if name else head
    return name, " ".join(re.sub(r"\b__restrict__\b|\b__restrict\b", "", kind).split())
