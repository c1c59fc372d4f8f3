"""The mutation suite of one kernel: broken twins of its source, where the rewriter wrote it, and of its PTX."""

from __future__ import annotations

from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import zip_longest

from tilewright.build.artifact import Artifact, CompileFailure
from tilewright.errors import TilewrightError
from tilewright.launch.executor import Program
from tilewright.mutate.source_mutants import SourceMutant, source_mutants
from tilewright.verification.mutation import ProgramMutant, ptx_programs
from tilewright.workflow.opening import Compiler


def mutate_variant(
    source_text: str, compiler: Compiler, threads: int = 2, only: Container[str] | None = None
) -> tuple[ProgramMutant, ...]:
    """The broken twins of a source that the rewriter wrote, compiled as it is.

    Args:
        threads: builds at a time; they are cached as all builds are.
        only: names of those that are wanted; None for all.

    Raises:
        TilewrightError: ``mutate/not_generated`` for a source that the rewriter did not write, or that was edited;
            ``mutate/does_not_compile``.
    """
    mutants = [m for m in source_mutants(source_text) if only is None or m.name in only]
    with ThreadPoolExecutor(threads) as pool:
        built = list(pool.map(lambda m: compiler.build(m.text), mutants))
    return tuple(_program(source_text, m, artifact) for m, artifact in zip(mutants, built, strict=True))


def all_mutants(
    source_text: str, program: Program, compiler: Compiler, per_kind: int | None = 8
) -> tuple[ProgramMutant, ...]:
    """The twins of the source, if the rewriter wrote it, then those of the program's PTX, named ``ptx/…``."""
    of_ptx = (replace(m, name=f"ptx/{m.name}") for m in ptx_programs(program, per_kind))
    return (*_of_source(source_text, compiler), *of_ptx)


def _of_source(text: str, compiler: Compiler) -> tuple[ProgramMutant, ...]:
    try:
        return mutate_variant(text, compiler)
    except TilewrightError as error:
        if error.code != "mutate/not_generated":
            raise
        return ()


def _program(source_text: str, mutant: SourceMutant, built: Artifact | CompileFailure) -> ProgramMutant:
    if isinstance(built, CompileFailure):
        message = f"The mutant {mutant.name} does not compile: {built.message}"
        raise TilewrightError("mutate/does_not_compile", message)
    program = Program(built.cubin, built.ptx, built.kernel, built.arch)
    return ProgramMutant(mutant.name, mutant.description, _first_line(source_text, mutant.text), program)


def _first_line(before: str, after: str) -> int | None:
    """The first line of a source that a mutant changes, from 1."""
    lines = enumerate(zip_longest(before.splitlines(), after.splitlines()), 1)
    return next((number for number, (old, new) in lines if old != new), None)
