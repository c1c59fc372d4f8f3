"""`tilewright doctor`: what was found on this machine, and what each missing piece would cost."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright import __version__
from tilewright.errors import EXIT_MISSING, EXIT_OK, TilewrightError
from tilewright.receipt.drawing import LABEL_WIDTH, Cell, Column, Pen
from tilewright.settings import Settings


@dataclass(frozen=True)
class Finding:
    """One piece of the machine.

    Attributes:
        name: ``compiler``, ``headers``, ``disassembler``, ``parser``, ``gpu``, ``torch``, ``cache``.
        found: whether it is there and usable.
        needed: whether the job without a GPU needs it.
        facts: version, place, size: what was found, or why it does not work.
        without: what cannot be done without it.
        get: the command that gets it; empty where none does.
    """

    name: str
    found: bool
    needed: bool
    facts: str
    without: str = ""
    get: str = ""


@dataclass(frozen=True)
class Examination:
    """Everything that was looked for; ``exit_code`` is 3 when something needed is missing."""

    tilewright: str
    python: str
    system: str
    findings: tuple[Finding, ...]
    exit_code: int


def examine(settings: Settings, probes: Sequence[Callable[[Settings], Finding]] | None = None) -> Examination:
    """Look for every piece, and try those that the job needs: a file that is there may still not work.

    Args:
        probes: what to look for, by default everything; tests give their own.
    """
    findings = tuple(probe(settings) for probe in (PROBES if probes is None else probes))
    missing = any(finding.needed and not finding.found for finding in findings)
    return Examination(
        tilewright=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        findings=findings,
        exit_code=EXIT_MISSING if missing else EXIT_OK,
    )


def render_examination(examination: Examination, *, width: int = 100, color: bool = False) -> str:
    """The findings as a table; below it what each missing piece costs and how to get it."""
    pen = Pen(width, color)
    found = examination.findings
    columns = (
        Column("piece", tuple(Cell(finding.name) for finding in found)),
        Column("found", tuple(_mark(finding) for finding in found)),
        Column("", tuple(Cell(finding.facts) for finding in found)),
    )
    lines = [f"tilewright {examination.tilewright}, Python {examination.python}, {examination.system}", ""]
    lines += pen.table(columns)
    for finding in found:
        if not finding.found:
            lines += ["", *pen.labelled(finding.name, f"without it: {finding.without}")]
            lines += [" " * LABEL_WIDTH + finding.get] if finding.get else []
    ready = examination.exit_code == EXIT_OK
    lines += ["", pen.paint(_verdict(examination), "good" if ready else "bad")]
    return "\n".join(lines) + "\n"


def _mark(finding: Finding) -> Cell:
    if finding.found:
        return Cell("yes", "good")
    return Cell("MISSING", "bad") if finding.needed else Cell("no", "warn")


def _verdict(examination: Examination) -> str:
    missing = [finding.name for finding in examination.findings if finding.needed and not finding.found]
    if missing:
        return f"Missing: {', '.join(missing)}."
    gpu = next((finding for finding in examination.findings if finding.name == "gpu"), None)
    if gpu is None or not gpu.found:
        return "Ready to rewrite, to prove and to verify (in the emulator). Timing needs a GPU."
    return "Ready to rewrite, prove, verify and time."


def _compiler(settings: Settings) -> Finding:
    facts, works = _try_compile("")
    return Finding(
        "compiler",
        works,
        True,
        facts,
        "nothing can be compiled; only what the cache holds can be shown.",
        "pip install nvidia-cuda-nvrtc cuda-bindings",
    )


def _headers(settings: Settings) -> Finding:
    from tilewright.build.nvrtc import include_folders

    facts, works = _try_compile("#include <mma.h>\n#include <cuda_fp16.h>\n#include <cuda_pipeline.h>\n")
    folders = include_folders()
    return Finding(
        "headers",
        works,
        True,
        str(folders[0]) if works and folders else facts,
        "kernels that use WMMA, half precision or asynchronous copies do not compile.",
        "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl",
    )


def _try_compile(prelude: str) -> tuple[str, bool]:
    """Compile an empty kernel: the compiler's version and True, or what went wrong and False."""
    from tilewright.build.build import toolchain
    from tilewright.build.nvrtc import Program, include_folders, run

    # The oldest target of the asynchronous copies, which every compiler of this generation has.
    options = ("--gpu-architecture=sm_80", "--std=c++17", *(f"--include-path={path}" for path in include_folders()))
    source = f'{prelude}extern "C" __global__ void empty() {{}}\n'
    try:
        compiled = run(Program(source, "doctor.cu", (), options, "empty"))
    except TilewrightError as error:
        return error.message, False
    if compiled.cubin is None:
        return (compiled.log.splitlines() or ["does not compile"])[0], False
    return toolchain() or "nvrtc", True


def _disassembler(settings: Settings) -> Finding:
    from tilewright.sass.nvdisasm import find_nvdisasm

    path = find_nvdisasm(settings)
    version = _version_of(path) if path is not None else None
    if path is None:
        facts = f"{settings.nvdisasm} is no file" if settings.nvdisasm else "no nvdisasm"
    else:
        facts = f"nvdisasm {version}, {path}" if version else f"{path} does not start"
    return Finding(
        "disassembler",
        version is not None,
        True,
        facts,
        "no SASS can be read: neither the overlap nor the ratio of instructions to loads is known.",
        "pip install nvidia-cuda-nvdisasm",
    )


def _version_of(program: Path) -> str | None:
    """What ``--version`` says after ``release``, or None where the program does not start."""
    import re
    import subprocess

    try:
        done = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    release = re.search(r"release ([\d.]+)", done.stdout)
    return release.group(1) if release else None


def _parser(settings: Settings) -> Finding:
    try:
        import tree_sitter
        import tree_sitter_cuda

        tree_sitter.Language(tree_sitter_cuda.language())
    except (ImportError, ValueError) as error:  # ValueError: the grammar's version does not fit the library's
        facts, works = str(error), False
    else:
        facts, works = f"tree-sitter {_package('tree-sitter')}, CUDA grammar {_package('tree-sitter-cuda')}", True
    without = "no source can be read; cubins can still be proved."
    return Finding("parser", works, True, facts, without, "pip install tree-sitter tree-sitter-cuda")


def _package(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu(settings: Settings) -> Finding:
    from tilewright.gpu.device import find_gpu

    gpu = find_gpu()
    facts = "no NVIDIA driver, or no card that it lets us use (nvidia-smi says which)"
    if gpu is not None:
        memory_gib = gpu.memory_bytes / 2**30
        facts = (
            f"{gpu.name}, {gpu.arch}, {gpu.sms} SMs, {memory_gib:.0f} GiB, driver {gpu.driver} (CUDA {_dots(gpu.cuda)})"
        )
    return Finding(
        "gpu",
        gpu is not None,
        False,
        facts,
        "nothing is timed, so no variant is chosen; the emulator verifies all the same.",
        "run the same command on a machine with an NVIDIA GPU and its driver; the cache may be copied there",
    )


def _dots(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _torch(settings: Settings) -> Finding:
    # Its metadata, not the package: importing it takes seconds.
    version = _package("torch")
    without = "nothing of this job; it is only needed to call kernels from PyTorch."
    return Finding("torch", version is not None, False, version or "not installed", without, "pip install torch")


def _cache(settings: Settings) -> Finding:
    import os

    folder = settings.cache_dir
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    # Where it would be made: the nearest folder that is there.
    anchor = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    works = anchor.is_dir() and os.access(anchor, os.W_OK)
    files = "1 file" if len(sizes) == 1 else f"{len(sizes)} files"
    facts = f"{folder}, {files}, {sum(sizes) / 2**20:.1f} MiB" + ("" if works else ", cannot be written")
    return Finding("cache", works, False, facts, "every run compiles again.", "export TILEWRIGHT_CACHE=FOLDER")


PROBES: tuple[Callable[[Settings], Finding], ...] = (_compiler, _headers, _disassembler, _parser, _gpu, _torch, _cache)
