"""How a kernel is launched, as far as the file says: grid, block, shared bytes and scalars in the sidecar's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.launch.dtypes import DTYPES, DType, read_c_type
from tilewright.launch.expressions import Binary, Name, Node, Number
from tilewright.launch.host_code import LaunchSite, bare, closing, definitions, split_spans
from tilewright.launch.host_expressions import read_host_expression, shown
from tilewright.launch.kernel_names import launches_of
from tilewright.source.lexical import Macro, expand
from tilewright.source.reader import OpenKernel

ONE = "1"
UNKNOWN_BYTES = "?"
_VECTOR = re.compile(
    r"\b(float|double|int|uint|char|uchar|short|ushort|half|__half|nv_bfloat16|__nv_bfloat16)([1234])\b"
)
# Integer parameters that are no extents, and a value that leaves them out of play.
_SWITCHES = re.compile(
    r"(?i)(is|use|has|do|apply|enable)_?\w*|causal|trans_?[ab]?|u|v|(stride|dilation|groups?|step)(_?[hwxyd])?"
)
_NOUGHTS = re.compile(r"(?i)(pad(ding)?|offset|seed)(_?[hwxyd])?")
_FLOATS = (
    (re.compile(r"(?i)beta"), "0.5"),
    (re.compile(r"(?i)alpha"), "1.5"),
    (re.compile(r"(?i)\w*(scale|temp)\w*"), "0.125"),
)
_LEADING = re.compile(r"(?i)(?:ld|stride_?)([abc])")
_LEADING_IS = {"a": "k", "b": "n", "c": "n"}
_RETURN = re.compile(r"\s*\{\s*return\s+([^;{}]+);\s*\}")


@dataclass(frozen=True)
class Parameter:
    """One parameter of the signature: ``is_const`` where its pointer is to const."""

    name: str
    kind: str
    dtype: DType
    is_pointer: bool
    is_const: bool


@dataclass(frozen=True)
class Plan:
    """One way to launch a kernel.

    Attributes:
        grid, block, shared: expressions over the sizes and the file's constants. ``shared`` is UNKNOWN_BYTES where the
            host code computes it in a way that cannot be read.
        scalars: value of each scalar parameter.
        sizes: the names that are free, in order.
        natural: what the host code gives a size, where that is a number.
        guesses: what was taken for granted, one clause each.
        launch_line: of the launch in the file that it was read from; None where it is a guess.
        is_told: the launch in the file says all of it, the block too.
    """

    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    shared: str
    scalars: Mapping[str, str]
    sizes: tuple[str, ...]
    natural: Mapping[str, int] = field(default_factory=dict)
    guesses: tuple[str, ...] = ()
    launch_line: int | None = None
    is_told: bool = False


@dataclass(frozen=True)
class Unclear:
    """Why there is no plan."""

    reason: str


def parameters_of(kernel: OpenKernel) -> tuple[Parameter, ...] | Unclear:
    """The signature in the sidecar's types; a vector pointer counts as one to its elements."""
    out: list[Parameter] = []
    for name, kind in kernel.function.params:
        plain = _element(kind, kernel.source.aliases)
        c_type = read_c_type(plain)
        if not name:
            return Unclear(f"a parameter of {kernel.function.name} has no name")
        if c_type.dtype is None:
            return Unclear(f"the parameter '{name}' is '{' '.join(kind.split())}', which is no type known here")
        is_const = re.search(r"\bconst\b", plain.split("*")[0]) is not None
        out.append(Parameter(name, kind, DTYPES[c_type.dtype], c_type.is_pointer, is_const))
    return tuple(out)


def _element(kind: str, aliases: Mapping[str, str]) -> str:
    for _ in range(4):
        kind = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: aliases.get(m[0], m[0]), kind)
    return _VECTOR.sub(r"\1", kind)


def scalar_guess(parameter: Parameter) -> str | None:
    """The value of a scalar that is no extent; None where it may be one."""
    if parameter.dtype.kind == "float":
        return next((value for pattern, value in _FLOATS if re.fullmatch(pattern, parameter.name)), "0.5")
    if parameter.dtype.kind == "bool" or _SWITCHES.fullmatch(parameter.name):
        return "1"
    return "0" if _NOUGHTS.fullmatch(parameter.name) else None


def leading_extent(name: str, parameters: tuple[Parameter, ...]) -> str | None:
    """What a leading dimension is where matrices are packed: ``lda`` is K, ``ldb`` and ``ldc`` are N."""
    found = _LEADING.fullmatch(name)
    letter = _LEADING_IS[found[1].lower()] if found is not None else ""
    return next((p.name for p in parameters if p.name.lower() == letter and not p.is_pointer), None)


def planned(kernel: OpenKernel, parameters: tuple[Parameter, ...]) -> Plan | Unclear | None:
    """The plan of the file's first launch; None where the file has none."""
    text = kernel.source.text.decode()
    sites, _ = launches_of(text, kernel.function.qualified, kernel.source.namesakes(kernel.function))
    if not sites:
        return None
    site = next((s for s in sites if not s.in_macro and len(s.arguments) == len(parameters)), None)
    if site is None:
        return Unclear(f"the launch at line {sites[0].line} cannot be read")
    return _Host(kernel, text, site, parameters).plan(len(sites))


def _with_numbers(
    fixed: Mapping[str, int],
    grid: tuple[str, str, str],
    block: tuple[str, str, str],
    shared: str,
    scalars: Mapping[str, str],
) -> tuple[tuple[str, str, str], tuple[str, str, str], str, dict[str, str]]:
    """The launch with numbers for those names."""

    def put(text: str) -> str:
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(fixed.get(m[0], m[0])), text)

    (a, b, c), (x, y, z) = grid, block
    return (put(a), put(b), put(c)), (put(x), put(y), put(z)), put(shared), {n: put(v) for n, v in scalars.items()}


class _Host:
    """Names of one launch's host function in the sidecar's words."""

    def __init__(self, kernel: OpenKernel, text: str, site: LaunchSite, parameters: tuple[Parameter, ...]) -> None:
        self.kernel, self.text, self.site, self.parameters = kernel, text, site, parameters
        self.local = definitions(text, site)
        self.constants = kernel.constants.names()
        self.leaves: dict[str, str] = {}  # host name → size
        self.natural: dict[str, int] = {}
        self.guesses: list[str] = []
        self.busy: set[str] = set()
        self.passed = {
            re.sub(r"\s", "", actual): p.name
            for p, actual in zip(reversed(parameters), reversed(site.arguments), strict=True)
            if not p.is_pointer and p.dtype.kind in ("int", "uint") and re.fullmatch(r"[A-Za-z_][\w.>-]*", actual)
        }

    def plan(self, launches: int) -> Plan | Unclear:
        scalars = {p.name: self._scalar(p, a) for p, a in self._pairs() if not p.is_pointer}
        dims = [self._triple(text) for text in self.site.config[:2]]
        for what, text, triple in zip(("grid", "block"), self.site.config, dims, strict=False):
            if triple is None:
                return Unclear(f"the {what} '{text}' of the launch at line {self.site.line} cannot be read")
        if len(dims) < 2 or dims[0] is None or dims[1] is None:
            return Unclear(f"the launch at line {self.site.line} has no grid and block")
        shared = self._shared()
        fixed = self._fixed([*dims[1], shared], [*dims[0], *scalars.values()])
        grid, block, shared, scalars = _with_numbers(fixed, dims[0], dims[1], shared, scalars)
        self.guesses += [f"{name} = {value}, as the host code says" for name, value in fixed.items()]
        if launches > 1:
            self.guesses.append(f"the launch is the one at line {self.site.line}, of {launches} in the file")
        return Plan(
            grid,
            block,
            shared,
            scalars,
            tuple(n for n in dict.fromkeys(self.leaves.values()) if n not in fixed),
            self.natural,
            tuple(self.guesses),
            self.site.line,
            True,
        )

    def _fixed(self, whole: list[str], divided: list[str]) -> dict[str, int]:
        """Numbers of the host code that are no extents: the block, shared bytes or a divisor follow from them."""
        out: dict[str, int] = {}
        for name, value in self.natural.items():
            word = rf"\b{re.escape(name)}\b"
            divides = rf"(?://|%)\s*{word}|ceil_div\([^()]*,\s*{word}"
            if any(re.search(word, text) for text in whole) or any(re.search(divides, text) for text in divided):
                out[name] = value
        return out

    def _shared(self) -> str:
        """Bytes over sizes that the launch already has; a further name is no size, but a computation of the host's."""
        if len(self.site.config) < 3:
            return "0"
        before = dict(self.leaves)
        node = self._read(self.site.config[2])
        if node is not None and self.leaves == before:
            return shown(node)
        self.leaves = before
        return UNKNOWN_BYTES

    def _pairs(self) -> list[tuple[Parameter, str]]:
        return list(zip(self.parameters, self.site.arguments, strict=True))

    def _scalar(self, parameter: Parameter, actual: str) -> str:
        number = re.fullmatch(r"(-?\d+\.?\d*(?:[eE][+-]?\d+)?)[fFuUlL]*", actual)
        if number is not None:
            return number[1]
        if actual in ("true", "false"):
            return str(int(actual == "true"))
        if parameter.dtype.kind not in ("int", "uint"):
            value = scalar_guess(parameter) or "1"
            self.guesses.append(f"{parameter.name} = {value}")
            return value
        node = self._read(actual)
        if node is not None:
            return shown(node)
        self.guesses.append(f"{parameter.name} is a size of its own: '{actual}' cannot be read")
        self.leaves[f"<{parameter.name}>"] = parameter.name
        return parameter.name

    def _triple(self, text: str) -> tuple[str, str, str] | None:
        """``grid`` → three expressions: through its definition, ``dim3(…)`` and assigned members."""
        text = text.strip()
        if re.fullmatch(r"\w+", text) and text not in self.passed:
            members = [self.local.get(f"{text}.{axis}") for axis in "xyz"]
            base = self.local.get(text, "")
            if any(members):
                known = self._triple(base) if base.startswith("dim3") else (ONE, ONE, ONE)
                nodes = [self._read(m) if m else None for m in members]
                if known is None or any(m and n is None for m, n in zip(members, nodes, strict=True)):
                    return None
                x, y, z = (shown(n) if n is not None else k for n, k in zip(nodes, known, strict=True))
                return x, y, z
            if base and base != text and (base.startswith("dim3") or re.fullmatch(r"\{.*\}", base, re.DOTALL)):
                return self._triple(base)
            if (
                re.search(rf"\bdim3\s+(?:const\s+)?{text}\b", self.text[self.site.function : self.site.start])
                and not base
            ):
                return None
        inside = re.fullmatch(r"(?:dim3\s*)?([({].*[)}])", text, re.DOTALL)
        parts = [text]
        if inside is not None and text.startswith(("dim3", "{")) and self._is_whole(inside[1]):
            parts = [inside[1][a:b] for a, b in split_spans(inside[1], 1, len(inside[1]) - 1)]
        read = [self._read(part) for part in parts]
        if len(read) > 3 or not read or any(node is None for node in read):
            return None
        x, y, z = (*(shown(node) for node in read if node is not None), ONE, ONE, ONE)[:3]
        return x, y, z

    @staticmethod
    def _is_whole(text: str) -> bool:
        return closing(text, 0) == len(text) - 1

    def _read(self, text: str) -> Node | None:
        return read_host_expression(text, self._name, self._call, is_real=self._is_real)

    def _is_real(self, name: str) -> bool:
        """Whether the host function declares a name as ``float`` or ``double``, or by ``auto`` from such a value."""
        code = bare(self.text)[self.site.function : self.site.statement]
        before = r"\b(float|double|auto)\s+(?:\w+\s*=[^;]*,\s*)?"
        declared = re.search(rf"{before}{re.escape(name)}\b(?:\s*=([^;]*))?", code)
        if declared is None:
            return False
        return declared[1] != "auto" or re.search(r"\b(?:float|double|ceil)|\d\.|\.\d", declared[2] or "") is not None

    def _name(self, name: str) -> Node | None:
        name = re.sub(r"\s", "", name)
        if re.fullmatch(r"\w+\.[xyz]", name) and name not in self.passed:
            owner, axis = name.split(".")
            if (
                re.search(rf"\bdim3\s+(?:const\s+)?(?:\w+\s*[({{][^;]*,\s*)?{owner}\b", self.text)
                and owner in self.local
            ):
                triple = self._triple(owner)
                index = "xyz".index(axis)
                return read_host_expression(triple[index], lambda n: Name(n)) if triple is not None else None
        if name in self.busy:
            return None
        self.busy.add(name)
        try:
            text = self.local.get(name, "")
            node = self._read(text) if text else None
        finally:
            self.busy.discard(name)
        if isinstance(node, Binary) and node.operator == "//" and self._is_real(name):
            return None  # the quotient may be whole or not: its text alone does not tell
        if node is not None and (not isinstance(node, Number) or name not in self.passed):
            return node
        if isinstance(node, Number) and isinstance(node.value, int):
            self.natural[self.passed[name]] = node.value
        if name not in self.passed and name not in self.local and name in self.constants:
            return Name(name)
        return Name(self._leaf(name))

    def _leaf(self, name: str) -> str:
        if name not in self.leaves:
            size = self.passed.get(name) or re.sub(r"\W+", "_", name.replace("->", "_"))
            if size in self.constants and name not in self.passed:
                size = f"{size}_"
            packed = leading_extent(size, self.parameters)
            if packed is not None:
                self.guesses.append(f"{size} = {packed}: rows lie next to one another")
            self.leaves[name] = packed or size
        return self.leaves[name]

    def _call(self, function: str, arguments: tuple[str, ...]) -> str | None:
        """The body of a macro or of a one-line host function, with the arguments in it."""
        macro = self.kernel.source.macros.get(function)
        if macro is None:
            macro = self._function(function.rpartition("::")[2])
        if macro is None or macro.params is None:
            return None
        return expand(macro, tuple(f"({a})" for a in arguments))

    def _function(self, name: str) -> Macro | None:
        code = bare(self.text)
        for match in re.finditer(rf"\b{re.escape(name)}\s*\(", code):
            end = closing(code, match.end() - 1)
            body = (
                _RETURN.match(code, end + 1 + len(code[end + 1 :]) - len(code[end + 1 :].lstrip())) if end > 0 else None
            )
            if body is None:
                continue
            params = tuple(re.sub(r".*\W", "", code[a:b]) for a, b in split_spans(code, match.end(), end))
            return Macro(name, params, f"({body[1].strip()})", match.start())
        return None
