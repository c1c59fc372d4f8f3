"""`tilewright prove FILE.cubin|FILE.cu`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.terminal import Progress, canvas, emit
from tilewright.settings import Settings

NAME = "prove"
EXAMPLE = """Example: tilewright prove out/igemm.cp_async2.cu --arch sm_90a

Exit codes: 0 overlap; 1 no overlap; 2 bad input; 3 something is missing; 4 the SASS was not understood."""


def run(
    file: Annotated[Path, Parameter(name="FILE")],
    /,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    json: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Read the SASS: do a copy's issue and the wait that retires it enclose math instructions?

    Parameters
    ----------
    file
        A cubin, or a CUDA source that is compiled first.
    kernel
        Which kernel, where the file has several.
    arch
        Target to compile a source for, such as sm_86. A cubin has its own.
    json
        Print the report as one JSON object.
    """
    settings = Settings.from_environment()

    from tilewright import workflow

    with Progress(settings) as progress:
        outcome = workflow.prove(file, kernel=kernel, arch=arch, settings=settings, progress=progress)
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(outcome.report))
    else:
        from tilewright.receipt.reports_text import render_prove

        page = canvas(settings)
        emit(render_prove(outcome.report, width=page.width, color=page.color))
    return outcome.exit_code
