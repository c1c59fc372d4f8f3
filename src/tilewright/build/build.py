"""Source text to :class:`Artifact`, through the cache."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.cache import Cache
from tilewright.build.flags import nvrtc_flags
from tilewright.build.log import first_error, resources
from tilewright.build.nvrtc import INSTALL_HINT, Compiled, Program, include_folders, toolchain
from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.settings import Settings
from tilewright.source.device_headers import PRELUDE

__all__ = ["build", "toolchain"]

# NVRTC puts the working folder before a relative name and looks there for quoted headers, so sources get an
# absolute name in a folder that exists on no machine.
VIRTUAL_ROOT = "/tilewright/"
# What line information says in place of the folder of CUDA's headers.
CUDA_ROOT = "/cuda/"
# The one line of the log that differs from run to run.
COMPILE_TIME = re.compile(r"^ptxas info\s*: Compile time = .*\n?", re.MULTILINE)
ARCH = re.compile(r"sm_\d+[af]?")
NAME_MAP = "__nv_name_map"
RELEASE = re.compile(r"^// Cuda compilation tools, release (\d+\.\d+)", re.MULTILINE)


def build(request: BuildRequest, settings: Settings, *, use_cache: bool = True) -> Artifact | CompileFailure:
    """Compile one kernel, optimised and with line information; or take it from the cache.

    An entry that another compiler version made is used only where no compiler is installed.

    Raises:
        TilewrightError: ``build/no_compiler`` (exit 3) where there is neither an entry nor a compiler,
            ``build/unknown_arch``, ``build/unknown_flag``, ``build/compiler_crashed`` (exit 3).
    """
    key = request.key
    here = toolchain()
    cache = Cache(settings.cache_dir, "artifact")
    if use_cache:
        entry = cache.get_value(key, _Entry)
        if entry is not None and here in (None, entry.toolchain):
            return entry.outcome
    if here is None:
        raise TilewrightError(
            "build/no_compiler",
            "NVRTC is not installed, and the cache does not hold this kernel.",
            {"file": request.file},
            INSTALL_HINT,
            EXIT_MISSING,
        )
    if "\0" in request.source:
        line = request.source.count("\n", 0, request.source.index("\0")) + 1
        return CompileFailure("The file holds a NUL character: it is no source text.", line, request.name, "")
    if not ARCH.fullmatch(request.arch):
        message = f"{request.arch} is no architecture to make machine code for."
        raise TilewrightError("build/unknown_arch", message, hint="Name one such as sm_86 or sm_90a.")
    from tilewright.build.compile_worker import compile_apart

    entry = _entry(_outcome(request, compile_apart(_program(request)), key, here), here)
    if use_cache:
        cache.put_value(key, entry)
    return entry.outcome


@dataclass(frozen=True)
class _Entry:
    """What the cache holds: a failure too, so that a second run need not fail again."""

    toolchain: str
    artifact: Artifact | None
    failure: CompileFailure | None

    @property
    def outcome(self) -> Artifact | CompileFailure:
        if self.artifact is not None:
            return self.artifact
        return self.failure or CompileFailure("", None, "", "")


def _entry(outcome: Artifact | CompileFailure, here: str) -> _Entry:
    if isinstance(outcome, Artifact):
        return _Entry(here, outcome, None)
    return _Entry(here, None, outcome)


def _program(request: BuildRequest) -> Program:
    options = [
        f"--gpu-architecture={request.arch}",
        f"--std={request.std}",
        "--generate-line-info",
        "--ptxas-options=-v",
        # Beside a driver NVRTC keeps what it made of a PTX text, and then ptxas says nothing of its registers.
        "--no-cache",
        # A device view holds no host code, so what has no annotation (a constexpr function) is meant for the device.
        "-default-device",
        *_prelude_options(request),
        *(f"--define-macro={name}={value}" for name, value in request.defines),
        *nvrtc_flags(request.flags),
        *(f"--include-path={folder}" for folder in include_folders()),
    ]
    headers = tuple((name, f'#line 1 "{VIRTUAL_ROOT}{name}"\n{text}') for name, text in request.headers)
    return Program(request.source, VIRTUAL_ROOT + request.name, headers, tuple(options), request.kernel)


def _prelude_options(request: BuildRequest) -> list[str]:
    if all(name != PRELUDE for name, _ in request.headers):
        return []
    # CUDA's own library defines the same limits with other words (warning 47).
    return [f"--pre-include={PRELUDE}", "--diag-suppress=47"]


def _outcome(request: BuildRequest, compiled: Compiled, key: str, here: str) -> Artifact | CompileFailure:
    log = COMPILE_TIME.sub("", _without_folders(compiled.log, "").replace(VIRTUAL_ROOT, ""))
    if compiled.cubin is None:
        return _failure(request, log)
    figures = resources(log, compiled.lowered)
    if figures is None and f".entry {compiled.lowered}(" in compiled.ptx:
        message = f"ptxas tells no figures of {request.kernel}."
        raise TilewrightError("build/compiler", message, {"log": log}, exit_code=EXIT_MISSING)
    if figures is None:
        return CompileFailure(f"{request.kernel} is not a __global__ function.", None, request.name, log)
    ptx = _without_folders(compiled.ptx, CUDA_ROOT)
    return Artifact(key, request.arch, compiled.lowered, _masked(compiled.cubin), ptx, figures, log, made_by(ptx, here))


def made_by(ptx: str, installed: str) -> str:
    """The compiler that wrote a PTX text, as the text says: not every machine loads the one that is installed."""
    found = RELEASE.search(ptx)
    return f"nvrtc {found[1]}" if found is not None else installed


def _without_folders(text: str, root: str) -> str:
    """A text in which CUDA's headers lie under ``root`` and not in a folder of this machine."""
    for folder in include_folders():
        text = text.replace(f"{folder}/", root)
    return text


def _masked(cubin: bytes) -> bytes:
    """A cubin whose line information names no folder of this machine. The length stays: the file holds offsets."""
    for folder in include_folders():
        path = str(folder).encode()
        cubin = cubin.replace(path, CUDA_ROOT[:-1].encode().rjust(len(path), b"/")[-len(path) :])
    return cubin


def _failure(request: BuildRequest, log: str) -> CompileFailure:
    text, line, file = first_error(log)
    if file == NAME_MAP:
        return CompileFailure(f"{request.kernel} names no kernel: {text}", None, request.name, log)
    return CompileFailure(text, line, file or request.name, log)
