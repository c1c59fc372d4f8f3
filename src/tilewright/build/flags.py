"""nvcc's flags in NVRTC's words: a sidecar carries the flags that a project gives to nvcc."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tilewright.errors import TilewrightError

# nvcc's spelling → NVRTC's. A flag of the first table stands alone, one of the second takes a value.
_SWITCHES = {
    "-use_fast_math": "--use_fast_math",
    "-extra-device-vectorization": "--extra-device-vectorization",
    "-restrict": "--restrict",
    "-w": "--disable-warnings",
    "-disable-warnings": "--disable-warnings",
    "-device-int128": "--device-int128",
    "-device-float128": "--device-float128",
}
_VALUES = {
    "-maxrregcount": "--maxrregcount",
    "-ftz": "--ftz",
    "-prec-div": "--prec-div",
    "-prec-sqrt": "--prec-sqrt",
    "-fmad": "--fmad",
    "-std": "--std",
    "-D": "--define-macro",
    "-define-macro": "--define-macro",
    "-U": "--undefine-macro",
    "-undefine-macro": "--undefine-macro",
    "-Xptxas": "--ptxas-options",
    "-ptxas-options": "--ptxas-options",
    "-diag-suppress": "--diag-suppress",
    "-diag-warn": "--diag-warn",
    "-diag-error": "--diag-error",
    "-Ofast-compile": "--Ofast-compile",
    "-Ofc": "--Ofast-compile",
    "-split-compile": "--split-compile",
    "-jump-table-density": "--jump-table-density",
}
# What speaks to nvcc alone (host compiler, linking, files, several targets), or is always on here.
_IGNORED = frozenset(
    (
        *("-O0", "-O1", "-O2", "-O3", "-g", "-pg", "-c", "-m64", "-shared", "-cubin", "-ptx", "-fatbin", "-dc"),
        *("-lineinfo", "-generate-line-info", "-expt-relaxed-constexpr", "-expt-extended-lambda", "-extended-lambda"),
        *("-resource-usage", "-res-usage", "-keep", "-compile", "-dlto", "-forward-unknown-to-host-compiler"),
        *("-MD", "-MMD", "-M", "-MP", "-Wno-deprecated-gpu-targets", "-source-in-ptx", "-src-in-ptx"),
        *("-default-device", "-device-as-default-execution-space", "-Wreorder", "-no-compress"),
    )
)
_IGNORED_VALUES = frozenset(
    (
        *("-Xcompiler", "-compiler-options", "-Xlinker", "-linker-options", "-Xnvlink", "-Xarchive", "-Xfatbin"),
        *("-ccbin", "-compiler-bindir", "-arch", "-gpu-architecture", "-code", "-gpu-code", "-gencode"),
        *("-generate-code", "-o", "-output-file", "-MF", "-MT", "-x", "-l", "-library", "-L", "-library-path", "-t"),
        *("-threads", "-rdc", "-relocatable-device-code", "-cudart", "-keep-dir", "-default-stream", "-Werror"),
        *("-optimize", "-O", "-allow-unsupported-compiler"),
    )
)
# Values may be glued to these: -DN=4, -lcublas.
_GLUED = ("-D", "-U", "-l", "-L")
_UNOPTIMISED = frozenset(("-G", "-device-debug"))
_INCLUDES = ("-I", "-include-path", "-isystem", "-include", "-pre-include")


def nvrtc_flags(flags: tuple[str, ...]) -> list[str]:
    """The flags that mean something to NVRTC, in its spelling; nvcc-only ones are left out.

    One string may hold several words (``"-Xptxas -O3"``), and a value may follow as the next word or after ``=``.

    Raises:
        TilewrightError: ``build/bad_quotes`` where a quote is not closed, ``build/unknown_flag`` for a flag that none
            of them knows, ``build/unoptimised`` for ``-G``, ``build/include_flag`` for include folders (the sidecar's
            ``include`` names them).
    """
    words = [word for flag in flags for word in _words(flag)]
    out: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, value, used = _split(words, position)
        position += used
        if name in _UNOPTIMISED:
            message = f"{word} builds without optimisation: nothing that is measured or proved then holds."
            raise TilewrightError("build/unoptimised", message, hint="Leave it out.")
        if name in _INCLUDES or word.startswith("-I"):
            hint = "Name the folder under [build] include."
            raise TilewrightError("build/include_flag", f"{word} cannot be a flag.", hint=hint)
        if name in _VALUES and value is not None:
            out += _valued(_VALUES[name], value)
        elif name in _SWITCHES:
            out.append(_SWITCHES[name])
        elif name not in _IGNORED and name not in _IGNORED_VALUES:
            raise TilewrightError(
                "build/unknown_flag", f"The flag {word} is not known.", hint="Use a flag of nvcc or NVRTC, or drop it."
            )
    return out


def _words(flag: str) -> list[str]:
    try:
        return shlex.split(flag)
    except ValueError as error:
        message = f"The flag {flag} cannot be read: {str(error).rstrip('.').lower()}."
        raise TilewrightError("build/bad_quotes", message, hint="Close the quote under [build] flags.") from None


def _split(words: list[str], position: int) -> tuple[str, str | None, int]:
    """A flag's name with one dash, its value, and how many words it takes."""
    word = words[position]
    single = word[1:] if word.startswith("--") else word
    name, equals, value = single.partition("=")
    for glued in _GLUED:
        if single.startswith(glued) and len(single) > 2 and single not in _IGNORED and name not in _VALUES:
            return glued, single[2:].removeprefix("="), 1
    if equals:
        return name, value, 1
    if (name in _VALUES or name in _IGNORED_VALUES) and position + 1 < len(words):
        return name, words[position + 1], 2
    return name, None, 1


def _valued(option: str, value: str) -> Iterator[str]:
    if option == "--ptxas-options":
        # nvcc takes a comma list, NVRTC one option each; -v is always on.
        for part in value.split(","):
            if part not in ("-v", "--verbose", "-warn-spills", "--warn-on-spills"):
                yield f"{option}={part}"
    else:
        yield f"{option}={value}"
