"""A ``.cu`` file → its kernels, constants and device functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.source import file_names, ir, lexical
from tilewright.source.constants import Constants
from tilewright.source.device_functions import device_functions
from tilewright.source.effects import DeviceFunction
from tilewright.source.parse import KernelConverter, ParsedKernel, make_parser, text

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@dataclass(frozen=True)
class TemplateParameter:
    """``int BM`` (kind ``value``) or ``typename T`` (kind ``type``), with the text of its default or ""."""

    name: str
    kind: str
    default: str


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
    """A file, read: its text, kernels, macros and type aliases."""

    file: str
    text: bytes
    kernels: tuple[KernelFunction, ...]
    macros: dict[str, lexical.Macro]
    aliases: dict[str, str]
    alignments: tuple[tuple[int, str], ...]
    pragmas: tuple[tuple[int, str], ...]

    def line(self, offset: int) -> int:
        return lexical.line_of(self.text, offset)

    def kernel(self, name: str | None) -> KernelFunction:
        """The kernel of that name, or the only one.

        Raises:
            TilewrightError: ``source/no_kernel``, ``source/unknown_kernel``, ``source/several_kernels``.
        """
        names = [k.name for k in self.kernels]
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
        found = [k for k in self.kernels if name in (k.name, k.qualified)]
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


def read_source(raw: bytes, file: str) -> KernelSource:
    """Find the kernels of a file.

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
    kernels: list[KernelFunction] = []
    for node in _functions(root):
        if _is(node, "__global__"):
            kernels.append(_kernel(node, raw))
    unique = {k.span.start: k for k in kernels}
    return KernelSource(
        file,
        raw,
        tuple(unique.values()),
        lexical.macros(raw),
        file_names.aliases(root),
        masked.alignments,
        masked.pragmas,
    )


@dataclass(frozen=True)
class OpenKernel:
    """A kernel's body as a tree, with what is needed to reason about it."""

    source: KernelSource
    function: KernelFunction
    params: tuple[ir.Symbol, ...]
    body: ir.Block
    symbols: dict[int, ir.Symbol]
    constants: Constants
    functions: dict[str, DeviceFunction]
    errors: tuple[tuple[str, ir.Span], ...]
    given: dict[str, int]


def open_kernel(source: KernelSource, function: KernelFunction, values: Mapping[str, int]) -> OpenKernel:
    """Parse a kernel's body. ``values``: template arguments and ``-D`` definitions that are integers."""
    parser = make_parser()
    macros = {n: m for n, m in source.macros.items() if n not in values}
    root = parser.parse(lexical.mask(source.text).text).root_node
    nodes = {n.start_byte: n for n in _functions(root)}
    converter = KernelConverter(parser, macros)
    parsed = converter.convert(nodes[function.span.start])
    constants = Constants(values, file_names.constants(root, parser, macros), parsed.symbols, source.aliases)
    constants.used |= parsed.macros_used
    functions = device_functions(_definitions(list(nodes.values()), parser, macros), source.aliases)
    return OpenKernel(
        source,
        function,
        parsed.params,
        parsed.body,
        parsed.symbols,
        constants,
        functions,
        parsed.errors,
        dict(values),
    )


def reopen(kernel: OpenKernel, text: bytes) -> OpenKernel:
    """The same kernel of an edited file, with the same template arguments and ``-D`` definitions."""
    source = read_source(text, kernel.source.file)
    source = replace(source, aliases={**source.aliases, **kernel.source.aliases})
    return open_kernel(source, source.kernel(kernel.function.qualified), kernel.given)


# -- walking the file's tree ---------------------------------------------------------------------------


def _functions(root: Node) -> list[Node]:
    """Every function definition with a body, at any nesting outside other functions."""
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "function_definition" and node.child_by_field_name("body") is not None:
            found.append(node)
        else:
            stack.extend(reversed(node.children))
    return sorted(found, key=lambda n: n.start_byte)


def _is(node: Node, qualifier: str) -> bool:
    body = node.child_by_field_name("body")
    head = (node.text or b"")[: (body.start_byte if body is not None else node.end_byte) - node.start_byte]
    return qualifier.encode() in head


def _declarator(node: Node) -> Node | None:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    return declarator


def _name(node: Node) -> str:
    declarator = _declarator(node)
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return text(name).split("::")[-1] if name is not None else "?"


def _kernel(node: Node, raw: bytes) -> KernelFunction:
    body = node.child_by_field_name("body")
    assert body is not None
    template: tuple[TemplateParameter, ...] = ()
    if node.parent is not None and node.parent.type == "template_declaration":
        plist = node.parent.child_by_field_name("parameters")
        template = tuple(_template_parameter(p) for p in plist.named_children if p.type != "comment") if plist else ()
    params: list[tuple[str, str]] = []
    declarator = _declarator(node)
    plist = declarator.child_by_field_name("parameters") if declarator is not None else None
    for p in plist.named_children if plist is not None else ():
        if p.type in ("parameter_declaration", "optional_parameter_declaration"):
            params.append(_parameter(p))
    bounds = next((c for c in node.children if c.type == "launch_bounds"), None)
    inside = re.search(r"\((.*)\)", text(bounds), re.DOTALL) if bounds is not None else None
    return KernelFunction(
        _name(node),
        lexical.line_of(raw, node.start_byte),
        template,
        tuple(params),
        inside[1].strip() if inside else "",
        ir.Span(node.start_byte, node.end_byte),
        ir.Span(body.start_byte, body.end_byte),
        _scope(node),
    )


def _scope(node: Node) -> tuple[str, ...]:
    """The named namespaces around a definition; an unnamed one adds nothing to the name."""
    out: list[str] = []
    at = node.parent
    while at is not None:
        if at.type == "namespace_definition" and (name := at.child_by_field_name("name")) is not None:
            out[:0] = [part for part in text(name).split("::") if part]
        at = at.parent
    return tuple(out)


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


def _template_parameter(node: Node) -> TemplateParameter:
    default = node.child_by_field_name("default_value") or node.child_by_field_name("default_type")
    kind = "type" if "type_parameter" in node.type else "value"
    declarator = node.child_by_field_name("declarator") or node.child_by_field_name("name")
    if declarator is None:
        declarator = next((c for c in node.named_children if "identifier" in c.type), None)
    return TemplateParameter(
        text(declarator) if declarator is not None else "?", kind, text(default) if default is not None else ""
    )


def _definitions(nodes: list[Node], parser: Parser, macros: dict[str, lexical.Macro]) -> dict[str, list[ParsedKernel]]:
    """Every definition of the functions that device code may call, by name."""
    out: dict[str, list[ParsedKernel]] = {}
    for node in nodes:
        if _is(node, "__device__") or _is(node, "constexpr"):
            out.setdefault(_name(node), []).append(KernelConverter(parser, macros).convert(node))
    return out
