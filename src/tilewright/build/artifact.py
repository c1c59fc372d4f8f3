"""What goes into a compilation and what comes out of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePath

# Part of every key: raise it when the options that are always passed, or an entry's fields, change.
FORMAT = 2


@dataclass(frozen=True)
class Resources:
    """What ptxas says that one kernel uses.

    Attributes:
        registers: 32-bit registers per thread.
        smem_bytes: static shared memory per block.
        spill_bytes: spill stores plus spill loads, bytes per thread.
        stack_bytes: stack frame per thread.
    """

    registers: int
    smem_bytes: int
    spill_bytes: int
    stack_bytes: int


@dataclass(frozen=True)
class Artifact:
    """One compiled kernel.

    Attributes:
        key: the cache key (hexadecimal SHA-256) of the request; it depends on no machine and no toolchain.
        arch: the target, ``sm_86``.
        kernel: the lowered (mangled) name, as it stands in ``cubin`` and ``ptx``.
        cubin: the ELF image, with line information.
        ptx: the PTX of the same compilation.
        resources: of this kernel alone.
        log: the compiler's log (warnings, ptxas' figures).
        toolchain: what made it, ``nvrtc 13.5``.
    """

    key: str
    arch: str
    kernel: str
    cubin: bytes
    ptx: str
    resources: Resources
    log: str
    toolchain: str


@dataclass(frozen=True)
class CompileFailure:
    """The source does not compile: an expected outcome, not an exception.

    Attributes:
        message: the text of the compiler's first error.
        line: its line in ``file``, 1-based; None where the compiler gives none.
        file: the file it is in, as the request names it (the source or one of its headers).
        log: the compiler's whole log.
    """

    message: str
    line: int | None
    file: str
    log: str


@dataclass(frozen=True)
class BuildRequest:
    """Everything that decides a compilation; no path of a machine is part of it.

    Attributes:
        source: the text that NVRTC gets: a device view, or a rewritten source's.
        file: its name in messages and in the line information, ``igemm.cu``; a folder before it is dropped.
        arch: the target, ``sm_86``.
        kernel: a C++ name expression: ``igemm``, ``ns::igemm`` or ``sgemm<128, 128, 8, 8, 8>``.
        headers: in-memory headers, (name as it is included, text).
        defines: macros, (name, value).
        std: the C++ standard.
        flags: further compiler flags, as nvcc spells them.
    """

    source: str
    file: str
    arch: str
    kernel: str
    headers: tuple[tuple[str, str], ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    std: str = "c++17"
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return PurePath(self.file).name or "kernel.cu"

    @property
    def key(self) -> str:
        """The hexadecimal SHA-256 of all that decides the output, apart from the toolchain."""
        parts = [
            FORMAT,
            self.source,
            self.name,
            self.arch,
            self.kernel,
            sorted(self.headers),
            self.defines,
            self.std,
            self.flags,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
