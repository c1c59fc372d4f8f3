"""NVRTC in process: the one place that imports it, and only when something has to be compiled."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import EXIT_MISSING, TilewrightError

WHEEL = "nvidia_cuda_nvrtc-"
INSTALL_HINT = "Install it: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl."


@dataclass(frozen=True)
class Compiled:
    """What one NVRTC run gave. ``cubin`` is None where it failed."""

    log: str
    cubin: bytes | None = None
    ptx: str = ""
    lowered: str = ""


@dataclass(frozen=True)
class Program:
    """One run: names and texts as NVRTC gets them."""

    source: str
    name: str
    headers: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    kernel: str


def nvidia_folders() -> tuple[Path, ...]:
    """The ``nvidia`` folders of the installed packages (one per site-packages)."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec is not None else None
    return tuple(Path(place) for place in places or ())


def toolchain() -> str | None:
    """The version of the installed NVRTC, ``nvrtc 13.5``; None where there is none.

    Read from the name of the package's metadata folder, because a cached run must not pay for loading it
    (importing ``importlib.metadata`` alone costs 30 ms).
    """
    for folder in nvidia_folders():
        for metadata in folder.parent.glob(WHEEL + "*.dist-info"):
            version = metadata.name.removeprefix(WHEEL).removesuffix(".dist-info")
            return "nvrtc " + ".".join(version.split(".")[:2])
    return _loaded_version()


def _loaded_version() -> str | None:
    """The version of an NVRTC that came another way: a CUDA toolkit, conda."""
    try:
        from cuda.bindings import nvrtc

        result, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):
        return None
    return None if result.value else f"nvrtc {major}.{minor}"


def include_folders() -> tuple[Path, ...]:
    """The folders of CUDA's headers in the installed packages."""
    for folder in nvidia_folders():
        for include in sorted(folder.glob("cu*/include"), reverse=True):
            if (include / "cuda_runtime.h").is_file():
                return (include, include / "cccl")
    return ()


def run(program: Program) -> Compiled:
    """Compile one program.

    Raises:
        TilewrightError: ``build/no_compiler`` where NVRTC does not load, ``build/unknown_arch`` and
            ``build/unknown_flag`` where it refuses an option, ``build/compiler`` where it breaks.
    """
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise TilewrightError(
            "build/no_compiler", f"NVRTC does not load: {error}.", hint=INSTALL_HINT, exit_code=EXIT_MISSING
        ) from error
    names = [_bytes(name) for name, _ in program.headers]
    texts = [_bytes(text) for _, text in program.headers]
    created = nvrtc.nvrtcCreateProgram(_bytes(program.source), _bytes(program.name), len(names), texts, names)
    handle = _checked(nvrtc, created)
    try:
        return _compile(nvrtc, handle, program)
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _compile(nvrtc: Any, handle: Any, program: Program) -> Compiled:
    _checked(nvrtc, nvrtc.nvrtcAddNameExpression(handle, program.kernel.encode()))
    options = [option.encode() for option in program.options]
    (result,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
    log = _text(nvrtc, handle, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
    log = log.rstrip("\0 \n")
    if result == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
        raise _refused_option(nvrtc, log, program)
    if result == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
        return Compiled(log)
    _checked(nvrtc, (result,))
    lowered: bytes = _checked(nvrtc, nvrtc.nvrtcGetLoweredName(handle, program.kernel.encode()))
    return Compiled(
        log=log,
        cubin=_text(nvrtc, handle, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        ptx=_text(nvrtc, handle, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).rstrip(b"\0").decode(),
        lowered=lowered.decode(),
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _text(nvrtc: Any, handle: Any, size_of: Any, fill: Any) -> bytes:
    size: int = _checked(nvrtc, size_of(handle))
    # The binding writes into this object's memory: a fresh one each time, never a shared constant.
    buffer = bytes(bytearray(b" ") * size)
    _checked(nvrtc, fill(handle, buffer))
    return buffer


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if result.value:
        raise TilewrightError("build/compiler", f"NVRTC failed: {result.name}.", exit_code=EXIT_MISSING)
    return values[0] if values else None


def _refused_option(nvrtc: Any, log: str, program: Program) -> TilewrightError:
    reason = log.splitlines()[0] if log else "invalid option"
    if "gpu-architecture" in reason:
        arch = next((o.partition("=")[2] for o in program.options if o.startswith("--gpu-architecture=")), "?")
        known = ", ".join(f"sm_{number}" for number in _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs()))
        return TilewrightError(
            "build/unknown_arch", f"The compiler does not know the architecture {arch}.", {}, f"It knows {known}."
        )
    return TilewrightError("build/unknown_flag", f"The compiler refuses a flag: {reason}.")
