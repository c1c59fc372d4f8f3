"""A source file, its kernel and its baseline build."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.errors import TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.expressions import Number
from tilewright.launch.host_expressions import read_host_expression
from tilewright.launch.sidecar import check_against
from tilewright.launch.spec import LaunchSpec
from tilewright.sass.listing import Function, disassemble
from tilewright.settings import Settings
from tilewright.source.c_types import size_of
from tilewright.source.device_view import device_view
from tilewright.source.headers import own_headers
from tilewright.source.parse import number
from tilewright.source.reader import KernelFunction, KernelSource, OpenKernel, open_kernel, read_source
from tilewright.verification.reference import load_reference
from tilewright.workflow.reading import includes_of
from tilewright.workflow.template_arguments import template_arguments
from tilewright.workflow.threads import bound_of

_KERNEL_NAME = re.compile(r"__global__[^;{}]*?\b(\w+)\s*\(")


@dataclass(frozen=True)
class Compiler:
    """How this file is compiled: the same for the baseline and for every variant.

    Attributes:
        expression: the kernel as NVRTC names it, ``sgemm<128, 8>``.
        include: folders with headers.
    """

    path: Path
    arch: str
    expression: str
    spec: LaunchSpec | None
    settings: Settings
    use_cache: bool
    include: tuple[Path, ...] = ()
    _functions: dict[str, Function | None] = field(default_factory=dict, repr=False, compare=False)  # copies share it

    def function(self, artifact: Artifact) -> Function | None:
        """A build's machine code, taken apart once; None where the disassembly does not hold the kernel."""
        key = hashlib.sha256(artifact.cubin).hexdigest()
        if key not in self._functions:
            self._functions[key] = disassemble(artifact.cubin, self.settings).function(artifact.kernel)
        return self._functions[key]

    def request(self, text: str) -> BuildRequest:
        spec = self.spec
        view = device_view(text, self.path, self.include)
        return BuildRequest(
            view.text,
            self.path.name,
            self.arch,
            self.expression,
            view.headers,
            tuple(sorted(spec.build.defines.items())) if spec is not None else (),
            (spec.build.std if spec is not None else None) or "c++17",
            spec.build.flags if spec is not None else (),
        )

    def build(self, text: str) -> Artifact | CompileFailure:
        """Compile a text that was written here: where it crashes the compiler, it does not compile."""
        try:
            return self.build_baseline(text)
        except TilewrightError as error:
            if error.code != "build/compiler_crashed":
                raise
            return CompileFailure(error.message, None, self.path.name, "")

    def build_baseline(self, text: str) -> Artifact | CompileFailure:
        """Compile the text that was handed in."""
        return build(self.request(text), self.settings, use_cache=self.use_cache)


@dataclass(frozen=True)
class Opened:
    """What the analysis starts from.

    Attributes:
        block: threads of a block. shared_bytes: dynamic shared memory. Each where no size decides about it.
        notes: what was chosen where the file leaves a choice. template: the template arguments, in order.
    """

    source: KernelSource
    function: KernelFunction
    kernel: OpenKernel
    compiler: Compiler
    baseline: Artifact
    block: tuple[int, int, int] | None
    shared_bytes: int | None = None
    notes: tuple[str, ...] = ()
    template: tuple[str, ...] = ()

    @property
    def no_alias(self) -> bool:
        """Whether the sidecar says that no buffer that is written overlaps one that is read."""
        return self.compiler.spec is not None and self.compiler.spec.no_alias


def open_file(
    raw: bytes, path: Path, kernel: str | None, spec: LaunchSpec | None, arch: str, settings: Settings, use_cache: bool
) -> Opened:
    """Read the file, compile the kernel as it is, check the sidecar against it.

    Raises:
        TilewrightError: no kernel, several, CUDA that does not compile, a sidecar that does not fit.
    """
    source = read_with_headers(raw, path, spec)
    name = kernel or (spec.kernel if spec is not None else None)
    if not source.kernels:
        _report_syntax_error(raw, path, arch, spec, settings)
    function = source.kernel(name)
    chosen = template_arguments(source, function, spec)
    arguments = chosen.values
    expression = function.qualified + (f"<{', '.join(arguments.values())}>" if function.template else "")
    include = includes_of(raw, path, spec)
    compiler = Compiler(path, arch, expression, spec, settings, use_cache, include)
    baseline = compiler.build_baseline(raw.decode())
    if isinstance(baseline, CompileFailure):
        raise compile_error(baseline, path)
    values, aliases = _values(function, arguments, spec)
    opened = open_kernel(replace(source, aliases={**source.aliases, **aliases}), function, values)
    more = _evaluated(function, arguments, values, opened.constants.names())
    if more:
        opened = open_kernel(opened.source, function, {**values, **more})
    block, shared_bytes = None, None
    if spec is not None:
        constants = opened.constants.names()
        check_against(spec, function.params, constants, bound_of(function.launch_bounds, constants))
        if spec.reference is not None:
            load_reference(spec.reference)  # a reference that cannot be read is found here, not on the GPU
        launches = [bind(spec, name, constants) for name in spec.sizes]
        # Nothing may rest on what is the same at these sizes alone: a variant has it written in its text.
        block = None if spec.is_sized(*spec.block) else launches[0].block
        shared_bytes = None if spec.is_sized(spec.shared_bytes) else launches[0].shared_bytes
    notes = (chosen.note,) if chosen.note else ()
    return Opened(source, function, opened, compiler, baseline, block, shared_bytes, notes, tuple(arguments.values()))


def read_with_headers(raw: bytes, path: Path, spec: LaunchSpec | None) -> KernelSource:
    """The source, with what the user's own headers and ``-D`` options define.

    Raises:
        TilewrightError: ``source/not_text``.
    """
    if b"\0" in raw:
        return read_source(raw, str(path))
    include = spec.build.include if spec is not None else ()
    view = device_view(raw.decode(errors="replace"), path, include)
    defines = {k: str(v) for k, v in spec.build.defines.items()} if spec is not None else {}
    return read_source(raw, str(path), own_headers(view), defines)


def compile_error(failure: CompileFailure, path: Path) -> TilewrightError:
    """The compiler's own message, with its line."""
    file = str(path) if Path(failure.file).name == path.name else failure.file
    facts = {"file": file} | ({"line": failure.line} if failure.line is not None else {})
    return TilewrightError(
        "build/compile_error",
        f"The compiler refuses it: {failure.message}",
        facts,
        "Mend the source, or name missing -D and -I in the sidecar's [build].",
    )


def _report_syntax_error(raw: bytes, path: Path, arch: str, spec: LaunchSpec | None, settings: Settings) -> None:
    """Where no kernel can be read although the text has one, the compiler knows better what is wrong."""
    text = raw.decode()
    named = _KERNEL_NAME.search(text)
    if named is None:
        return
    include = includes_of(raw, path, spec)
    failure = Compiler(path, arch, named[1], spec, settings, False, include).build(text)
    if isinstance(failure, CompileFailure):
        raise compile_error(failure, path)


def _values(
    function: KernelFunction, arguments: Mapping[str, str], spec: LaunchSpec | None
) -> tuple[dict[str, int], dict[str, str]]:
    """Integer names that the analysis may rely on, and type names."""
    values: dict[str, int] = {}
    aliases: dict[str, str] = {}
    for parameter in function.template:
        text = arguments[parameter.name]
        if parameter.kind == "type":
            aliases[parameter.name] = text
        elif isinstance(value := {"true": 1, "false": 0}.get(text, number(text)), int):
            values[parameter.name] = value
    for name, text in spec.build.defines.items() if spec is not None else ():
        if isinstance(value := number(str(text)), int):
            values[name] = value
        elif size_of(str(text)) is not None:  # -DT=__half
            aliases[name] = str(text)
    return values, aliases


def _evaluated(
    function: KernelFunction, arguments: Mapping[str, str], values: Mapping[str, int], names: Mapping[str, int]
) -> dict[str, int]:
    """Template arguments that are expressions of the file's constants: ``BM * 2``."""
    own = {p.name for p in function.template}
    known = {name: Number(value) for name, value in names.items() if name not in own}
    out: dict[str, int] = {}
    for parameter in function.template:
        if parameter.kind != "type" and parameter.name not in values:
            tree = read_host_expression(arguments[parameter.name], known.get)
            if isinstance(tree, Number) and isinstance(tree.value, int):
                out[parameter.name] = tree.value
    return out
