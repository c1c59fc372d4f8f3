"""A Triton kernel and its sidecar → a program to run, and the sidecar completed with what Triton decided."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.executor import Program
from tilewright.launch.expressions import Expression, Number
from tilewright.launch.spec import ArgSpec, LaunchSpec, TritonSpec
from tilewright.launch.triton_table import WARP_THREADS, block_of
from tilewright.settings import Settings
from tilewright.triton.kernel_file import JitKernel, and_left_out, load_kernel
from tilewright.triton.specialise import ALIGNMENT, Specialisation, not_triton, specialise
from tilewright.triton.toolchain import Triton, load_triton

# Triton appends pointers to its parameters: memory for the kernel's scratch, and for a profiler's.
_HIDDEN = ("triton global scratch", "triton profile scratch")
# Options that the sidecar has keys for, or that change the launch.
_NOT_OPTIONS = ("num_warps", "num_stages", "num_ctas", "arch", "warp_size", "backend_name")


@dataclass(frozen=True)
class TritonBuild:
    """A compiled Triton kernel.

    Attributes:
        program: its cubin and PTX.
        spec: the sidecar with the block, the dynamic shared bytes and the hidden parameters that Triton decided.
        constants: the constexpr parameters that are numbers, for the sidecar's expressions.
        line: of the kernel's ``def``.
        toolchain: ``triton 3.9.0``.
    """

    program: Program
    spec: LaunchSpec
    constants: Mapping[str, int | float]
    line: int
    toolchain: str


def build_triton(path: Path, spec: LaunchSpec, arch: str, settings: Settings, *, use_cache: bool = True) -> TritonBuild:
    """Compile the kernel that the sidecar names. The file is executed; neither a GPU nor torch is needed.

    Raises:
        TilewrightError: Triton is missing (exit 3), the file or the sidecar do not fit, the kernel does not compile, or
            it needs what is not supported (exit 4).
    """
    if spec.triton is None:
        raise not_triton(spec)
    triton = load_triton()
    kernel = load_kernel(path, spec.kernel)
    told = specialise(kernel, spec, spec.triton, triton.language)
    compute = int(re.sub(r"\D", "", arch))
    target = triton.target("cuda", compute, WARP_THREADS)
    compiled = _compile(triton, kernel, told, target, _options(spec, spec.triton, target), settings, use_cache)
    program = Program(
        bytes(compiled.asm["cubin"]), _text(compiled.asm["ptx"]), compiled.metadata.name, _made_for(compiled, arch)
    )
    complete = _completed(kernel, spec, spec.triton, told, compiled.metadata, program)
    return TritonBuild(program, complete, told.constants, kernel.line, triton.name)


def _options(spec: LaunchSpec, triton: TritonSpec, target: Any) -> dict[str, Any]:
    """Options of the compiler. It drops unknown ones without a word, so they are looked for here."""
    from triton.compiler.compiler import make_backend

    with _quiet():
        known = make_backend(target).parse_options({})
    names = sorted(f.name for f in fields(known)) if is_dataclass(known) else []
    for name in triton.options:
        if name not in names or name in _NOT_OPTIONS:
            hint = f"Known: {', '.join(n for n in names if n not in _NOT_OPTIONS)}."
            message = f"'{name}' is not an option of Triton's compiler that a sidecar can give."
            raise spec.error(("triton", "options", name), "unknown_key", message, hint)
    stages = {} if triton.num_stages is None else {"num_stages": triton.num_stages}
    return {"num_warps": triton.num_warps, **stages, **triton.options}


def _compile(
    triton: Triton,
    kernel: JitKernel,
    told: Specialisation,
    target: Any,
    options: dict[str, Any],
    settings: Settings,
    use_cache: bool,
) -> Any:
    attributes = {(number,): [["tt.divisibility", ALIGNMENT]] for number in told.aligned}
    try:
        source = triton.ast_source(kernel.function, dict(told.signature), dict(told.values), attributes)
        with _cache(triton, kernel.path, settings, use_cache), _quiet():
            return triton.compile(source, target=target, options=options)
    except Exception as error:
        raise _refused(triton, kernel, error) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Triton's notes on its defaults. It prints the PTX that ptxas refuses: stdout is the report's."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _cache(triton: Triton, path: Path, settings: Settings, use_cache: bool) -> Iterator[None]:
    """Triton's own cache, under Tilewright's. PTX names its source file, so that each file has one."""
    with contextlib.ExitStack() as stack:
        if use_cache:
            key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
            folder = str(settings.cache_dir / "triton" / key)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tilewright-"))
        stack.enter_context(triton.knobs.cache.scope())
        triton.knobs.cache.dir = folder
        yield


def _refused(triton: Triton, kernel: JitKernel, error: Exception) -> TilewrightError:
    """The compiler's message, with the line of the file where it gives one."""
    line = kernel.line
    deepest: BaseException = error
    while deepest.__cause__ is not None and hasattr(deepest.__cause__, "node"):
        deepest = deepest.__cause__
    at = getattr(getattr(deepest, "node", None), "lineno", None)
    # Lines count from the function's ``def``; one of a function that it calls is not of this file's kernel.
    if at is not None and getattr(deepest, "src", None) == kernel.function.src:
        line = kernel.line + int(at) - 1
    text = getattr(deepest, "error_message", None) or str(error).strip() or type(error).__name__
    hint = and_left_out(kernel.left_out) if "not defined" in text else ""
    return kernel.error("triton/compile_error", f"{triton.name} refuses it: {text.splitlines()[0]}", hint, line)


def _text(ptx: str | bytes) -> str:
    return ptx.decode() if isinstance(ptx, bytes) else ptx


def _made_for(compiled: Any, arch: str) -> str:
    """The target as the PTX has it: Triton takes the ``a`` of newer architectures by itself."""
    found = re.search(r"^\.target\s+(sm_\w+)", _text(compiled.asm["ptx"]), re.MULTILINE)
    return found[1] if found else arch


def _completed(
    kernel: JitKernel,
    spec: LaunchSpec,
    triton: TritonSpec,
    told: Specialisation,
    metadata: Any,
    program: Program,
) -> LaunchSpec:
    """The sidecar with what the compiler decided."""
    _check_scratch(kernel, metadata)
    block = block_of(replace(triton, num_warps=int(metadata.num_warps)))  # warp specialisation adds warps
    need = tuple(int(e.evaluate_int({})) for e in block)
    for name in spec.sizes:
        have = bind(spec, name, told.constants).block
        if have != need and have != (triton.num_warps * WARP_THREADS, 1, 1):
            message = f"block is {list(have)}; Triton launches {kernel.name} with {need[0]} threads."
            raise spec.error(("launch", "block"), "out_of_range", message, "Leave block out: it follows num_warps.")
    shared = int(metadata.shared)
    hidden = _hidden(kernel, program, len(spec.args))
    return replace(spec, block=block, shared_bytes=Expression(str(shared), Number(shared)), args=(*spec.args, *hidden))


def _check_scratch(kernel: JitKernel, metadata: Any) -> None:
    for name in ("global_scratch_size", "profile_scratch_size"):
        size = getattr(metadata, name, 0)
        if size:
            message = f"{kernel.name} needs {size} bytes of scratch memory per block, which is not supported."
            hint = "Descriptors that are made in the kernel need it on sm_90 and later; on sm_80 to sm_89 none."
            raise TilewrightError(
                "triton/not_supported", message, {"file": str(kernel.path), "line": kernel.line}, hint, EXIT_REFUSED
            )
    clusters = getattr(metadata, "cluster_dims", None) or (getattr(metadata, "num_ctas", 1),)
    if any(int(extent) != 1 for extent in clusters):
        raise kernel.error("triton/not_supported", "Clusters of blocks are not supported for Triton kernels.")


def _hidden(kernel: JitKernel, program: Program, count: int) -> tuple[ArgSpec, ...]:
    """Null pointers for the parameters after the kernel's own: none of them has memory (``_check_scratch``)."""
    header = re.search(rf"\.entry\s+{re.escape(program.kernel)}\s*\((.*?)\)", program.ptx, re.DOTALL)
    more = (header[1].count(".param") if header else 0) - count
    if not 0 <= more <= len(_HIDDEN):
        message = f"The compiled kernel has {more:+d} parameters besides the sidecar's {count}."
        raise kernel.error("triton/not_supported", message)
    zero = Expression("0", Number(0))
    return tuple(
        ArgSpec(name, DTYPES["uint64"], None, None, None, "in", None, None, zero, None) for name in _HIDDEN[:more]
    )
