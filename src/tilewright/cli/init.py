"""`tilewright init KERNEL.cu`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.terminal import Progress, emit
from tilewright.errors import EXIT_OK, EXIT_REFUSED
from tilewright.settings import Settings

NAME = "init"
EXAMPLE = """Example: tilewright init igemm.cu

The launch comes from a <<<...>>> in the file; shapes and roles from a run in the emulator. Check what was guessed.
Exit codes: 0 the sidecar fits; 2 bad input, or there is one already; 3 something is missing; 4 complete it by hand."""


def run(
    kernel_file: Annotated[Path, Parameter(name="KERNEL.cu")],
    /,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    force: Annotated[bool, Parameter(show_default=False)] = False,
    json: Annotated[bool, Parameter(show_default=False)] = False,
    no_cache: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Draft the sidecar of a kernel, KERNEL.toml beside it: how it is launched, with every guess as a comment.

    Parameters
    ----------
    kernel_file
        The CUDA source.
    kernel
        Which __global__ function, where the file has several.
    arch
        What to compile for, such as sm_86. Default: the GPU's, else sm_86.
    force
        Replace a sidecar that is there.
    json
        Print one JSON object instead of text.
    no_cache
        Neither read nor write the cache.
    """
    settings = Settings.from_environment()

    from tilewright.workflow.drafting import init

    with Progress(settings) as progress:
        done = init(
            kernel_file,
            kernel=kernel,
            arch=arch,
            force=force,
            settings=settings,
            use_cache=not no_cache,
            progress=progress,
        )
    if json:
        import json as encoder

        record = {"sidecar": str(done.path), "fits": not done.problem, "problem": done.problem}
        emit(encoder.dumps({**record, "guesses": done.guesses, "text": done.text}, indent=2) + "\n")
    else:
        lines = [f"wrote {done.path}", *(f"guessed: {guess}" for guess in done.guesses)]
        if done.problem:
            lines += [f"It does not fit: {done.problem}.", "Replace every TODO in it; docs/sidecar.md has all keys."]
        emit("\n".join(lines) + "\n")
    return EXIT_REFUSED if done.problem else EXIT_OK
