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


def filled(name: str, values: Mapping[str, str | int]) -> str:
    """The text ``texts/name`` with its ``$names`` replaced; a name without a value is an error of this package."""
    text = Template(files(__package__).joinpath("texts", name).read_text("utf-8")).substitute(values)
    return re.sub(r"\n{3,}", "\n\n", text)


def refusal(reason: str, message: str, hint: str, **facts: object) -> TilewrightError:
    """``skeleton/<reason>``, exit 4: parameters that are understood and of which no kernel can be made."""
    return TilewrightError(f"skeleton/{reason}", message, facts, hint, EXIT_REFUSED)
