"""What a kernel template is instantiated with, where the sidecar does not say: read from the file's launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import Refusal
from tilewright.launch.expressions import Number
from tilewright.launch.host_code import (
    LaunchSite,
    bare,
    closing,
    definitions,
    instantiations_of,
    split_spans,
)
from tilewright.launch.host_expressions import read_host_expression
from tilewright.launch.kernel_names import launches_of
from tilewright.launch.spec import LaunchSpec
from tilewright.source.lexical import Macro
from tilewright.source.reader import KernelFunction, KernelSource, open_kernel

_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_MAX_ROUNDS = 8


@dataclass(frozen=True)
class TemplateArguments:
    """Parameter → argument text, in order.

    Attributes:
        note: where the arguments were chosen among several launches: which, and which not; else "".
    """

    values: dict[str, str]
    note: str = ""


def template_arguments(source: KernelSource, function: KernelFunction, spec: LaunchSpec | None) -> TemplateArguments:
    """The sidecar's arguments, else those of the file's first launch or explicit instantiation, else the defaults.

    A name that only the host function around a launch knows (``const int BM = 128;``) is replaced by what it means.

    Raises:
        TilewrightError: ``source/template_arguments`` where one is missing, or is known only when the host code runs.
    """
    given: list[str | None] = list(spec.template) if spec is not None else []
    note, unknown = "", ""
    if not given and function.template:
        given, note, unknown = _in_the_file(source, function)
    if len(given) > len(function.template):
        message = f"{function.name} takes {len(function.template)} template arguments, the sidecar names {len(given)}."
        if spec is not None and spec.template:
            raise spec.error(("template",), "template_arguments", message)
    out: dict[str, str] = {}
    for i, parameter in enumerate(function.template):
        text_ = (given[i] if i < len(given) else None) or parameter.default
        if not text_:
            raise _missing(source, function, i, unknown)
        out[parameter.name] = text_
    return TemplateArguments(out, note)


def _in_the_file(source: KernelSource, function: KernelFunction) -> tuple[list[str | None], str, str]:
    """(arguments, which others there are, what only the running host code knows) of the file's launches.

    Where nothing launches the template, or a launch passes what is not known, an explicit instantiation says it.
    """
    text = source.text.decode()
    sites = [s for s in launches_of(text, function.qualified, source.namesakes(function))[0] if s.template]
    read: list[tuple[int, list[str | None]]] = [(s.line, _resolved(text, s, source, function)) for s in sites]
    kind, does = "launch", "launches"
    made = [i for i in instantiations_of(text, function.qualified) if i.template and not i.in_macro]
    first = zip(sites[0].template, read[0][1], strict=False) if read else ()
    unknown = next((said for said, known in first if known is None), "")
    if made and (not read or None in read[0][1]):
        read, unknown = [(i.line, list(i.template)) for i in made], ""
        kind, does = "instantiation", "instantiates"
    if not read:
        return [], "", ""
    line, given = read[0]
    others = [f"<{', '.join(map(str, r))}>" for r in dict.fromkeys(tuple(r) for _, r in read[1:]) if r != tuple(given)]
    if not others:
        return given, "", unknown
    note = (
        f"template arguments <{', '.join(map(str, given))}> are those of the {kind} at line {line}; "
        f"the file also {does} {', '.join(others)}"
    )
    return given, note, unknown


def instantiations(source: KernelSource, function: KernelFunction) -> list[tuple[int, tuple[str | None, ...]]]:
    """(line, arguments) of every launch in the file: constants evaluated, defaults filled in, None where not known."""
    text = source.text.decode()
    names = open_kernel(source, function, {}).constants.names()
    out: list[tuple[int, tuple[str | None, ...]]] = []
    for site in launches_of(text, function.qualified, source.namesakes(function))[0]:
        given = _resolved(text, site, source, function)
        defaults = [p.default or None for p in function.template[len(given) :]]
        out.append((site.line, tuple(evaluated(a, names) for a in (*given, *defaults))))
    return out


def other_instantiation(source: KernelSource, function: KernelFunction, template: tuple[str, ...]) -> Refusal | None:
    """Refuses where the file itself makes the template with other arguments: a variant is made for its own alone."""
    names = open_kernel(source, function, {}).constants.names()
    own = [evaluated(a, names) for a in template]
    for made in instantiations_of(source.text.decode(), function.qualified) if template else ():
        given = (*made.template, *(p.default for p in function.template[len(made.template) :]))
        if not made.in_macro and [evaluated(a, names) for a in given] != own:
            what = f"the file also instantiates {function.name}<{', '.join(made.template)}>"
            why = f"{what}: a variant is made for <{', '.join(template)}> alone, and would have to be right for both"
            return Refusal("not_understood", why, made.line, "put the other instantiation into a file of its own")
    return None


def evaluated(argument: str | None, names: Mapping[str, int]) -> str | None:
    """A template argument as a number, where the file's constants make it one; types stay as they are."""
    if argument is None or argument in ("true", "false"):
        return {"true": "1", "false": "0"}.get(argument or "")
    tree = read_host_expression(argument, lambda name: Number(names[name]) if name in names else None)
    return str(tree.value) if isinstance(tree, Number) else " ".join(argument.split())


def _missing(source: KernelSource, function: KernelFunction, index: int, unknown: str) -> TilewrightError:
    missing = ", ".join(p.name for p in function.template[index:])
    why = f"{function.name} is a template; nothing says what {missing} are."
    if unknown:
        why = f"{function.name} is a template; its launch says '{unknown}', known only when the host code runs."
    return TilewrightError(
        "source/template_arguments",
        why,
        {"file": source.file, "line": function.line},
        'Name them in the sidecar, in order: template = ["128", "8"].',
    )


def _resolved(text: str, site: LaunchSite, source: KernelSource, function: KernelFunction) -> list[str | None]:
    """The launch's arguments in names that mean the same at file scope; None where one cannot be put so."""
    local = definitions(text, site)
    head = bare(text)[site.function : site.statement]
    header = head[: head.find("{")] if "{" in head else ""
    passed = {**_host_template(bare(text), header), **_macro_arguments(text, site, source.macros)}
    out: list[str | None] = []
    for argument in site.template[: len(function.template)]:
        known = argument
        for _ in range(_MAX_ROUNDS):
            names = [n for n in _NAME.findall(known) if n in local or n in passed]
            if not names:
                break
            known = _NAME.sub(lambda m: _operand(passed.get(m[0]) or local.get(m[0], m[0])), known)
        # What the host function gets when it is called has no value here.
        asked = any(re.search(rf"\b{name}\b", header) and name not in source.macros for name in _NAME.findall(known))
        value = read_host_expression(known, lambda _: None)
        if isinstance(value, Number):
            known = str(value.value)
        out.append(None if asked and not _is_type(known) else known)
    return out


def _host_template(code: str, header: str) -> dict[str, str]:
    """The host function's own template parameters, as an instantiation or a call of it in the file gives them."""
    found = re.search(r"\btemplate\s*<", header)
    named = re.search(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:noexcept\s*)?$", header)
    if found is None or named is None or ">" not in header[found.end() :]:
        return {}
    close = header.index(">", found.end())
    parameters = [p.split("=")[0].split() for p in header[found.end() : close].split(",")]
    for use in re.finditer(rf"\b{named[1]}\s*<([^<>;]*)>\s*\(", code):
        arguments = [a.strip() for a in use[1].split(",")]
        if len(arguments) <= len(parameters) and all(arguments):
            return {p[-1]: a for p, a in zip(parameters, arguments, strict=False) if p and p[-1] != a}
    return {}


def _is_type(text: str) -> bool:
    """``float`` stands in the header of many a function, and is no parameter of it."""
    words = _NAME.findall(text)
    plain = "bool char short int long unsigned signed float double half const void __half nv_bfloat16 __nv_bfloat16"
    return all(word in plain.split() or re.fullmatch(r"u?int\d+_t|size_t|float\d|half2|std", word) for word in words)


def _operand(text: str) -> str:
    return text if re.fullmatch(r"[\w.:]+", text) else f"({text})"


def _macro_arguments(text: str, site: LaunchSite, macros: dict[str, Macro]) -> dict[str, str]:
    """Where the launch stands in a macro's body: its parameters as the first use of the macro passes them."""
    if not site.in_macro:
        return {}
    inside = [m for m in macros.values() if m.params and m.start <= site.start]
    macro = max(inside, key=lambda m: m.start, default=None)
    if macro is None or macro.params is None:
        return {}
    code = bare(text)
    for use in re.finditer(rf"\b{macro.name}\s*\(", code):
        line = code[code.rfind("\n", 0, use.start()) + 1 : use.start()]
        end = closing(code, use.end() - 1)
        if "#" in line or end < 0:
            continue
        arguments = [code[a:b] for a, b in split_spans(code, use.end(), end)]
        if len(arguments) == len(macro.params):
            return dict(zip(macro.params, arguments, strict=True))
    return {}
