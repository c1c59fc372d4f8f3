"""What a skeleton is: a source that compiles, its sidecar, and what a launch of it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from tilewright.errors import EXIT_REFUSED, TilewrightError

Formula = tuple[str, str, str]


@dataclass(frozen=True)
class Pass:
    """One launch.

    Attributes:
        kernel: the ``__global__`` function.
        grid: blocks in x, y and z, in the sidecar's expressions of the sizes and of the file's constants.
        block_threads: threads per block, all in x.
        smem_bytes: dynamic shared memory per block.
        sidecar: TOML text; the launch, its arguments and size sets.
    """

    kernel: str
    grid: Formula
    block_threads: int
    smem_bytes: int
    sidecar: str


@dataclass(frozen=True)
class Skeleton:
    """A kernel with everything that it takes to compile, launch and verify it.

    Attributes:
        text: the source: one file.
        kernel: the ``__global__`` function (of the first pass), as it is called in the cubin.
        sidecar: TOML text of the first pass.
        grid: blocks in x, y and z, in the sidecar's expressions.
        block_threads: threads per block.
        smem_bytes: dynamic shared memory per block; above the architecture's static maximum the launch has to opt in.
        registers_estimate: per thread, before anything is compiled.
        constants: what stands at the top of the file, by name.
        second: the pass that follows (split-K), in the same file.
        reference: a Python file with ``reference(**inputs)`` in float64, for the sidecar's ``[reference]``; "" where
            there is none: of a first pass, and of an expression that the caller gave.
    """

    text: str
    kernel: str
    sidecar: str
    grid: Formula
    block_threads: int
    smem_bytes: int
    registers_estimate: int
    constants: Mapping[str, int]
    second: Pass | None = None
    reference: str = ""


_REMARK = re.compile(r"^(constexpr \S+ \S+ = [^;]*;) +(// .*)$")


def finished(text: str) -> str:
    """A filled text with the remarks of neighbouring constants below one another, and no more than one empty line."""
    lines = re.sub(r"\n{3,}", "\n\n", text).split("\n")
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].startswith("constexpr ") and lines[end].rstrip().count(";") == 1:
            end += 1
        parted = [_REMARK.match(line) for line in lines[start:end]]
        width = max((len(part[1]) for part in parted if part), default=0)
        for at, part in enumerate(parted, start):
            lines[at] = f"{part[1].ljust(width)}  {part[2]}" if part else lines[at]
        start = max(end, start + 1)
    return "\n".join(lines)


def filled(name: str, values: Mapping[str, str | int]) -> str:
    """The text ``texts/name`` with its ``$names`` replaced; a name without a value is an error of this package."""
    return Template(files(__package__).joinpath("texts", name).read_text("utf-8")).substitute(values)


def refusal(reason: str, message: str, hint: str, **facts: object) -> TilewrightError:
    """``skeleton/<reason>``, exit 4: parameters that are understood and of which no kernel can be made."""
    return TilewrightError(f"skeleton/{reason}", message, facts, hint, EXIT_REFUSED)
