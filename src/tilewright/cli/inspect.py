"""`tilewright inspect FILE.cu`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.terminal import canvas, emit
from tilewright.settings import Settings

NAME = "inspect"
EXAMPLE = """Example: tilewright inspect igemm.cu --kernel igemm_tiled

Exit codes: 0 a K-loop was understood; 2 bad input; 4 none was, and each kernel says why."""


def run(
    file: Annotated[Path, Parameter(name="FILE.cu")],
    /,
    *,
    kernel: str | None = None,
    json: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Show what is understood of a source: kernels, K-loops, phases, tiles and copies, or why not.

    Parameters
    ----------
    file
        The CUDA source.
    kernel
        Only this __global__ function.
    json
        Print the report as one JSON object.
    """
    settings = Settings.from_environment()

    from tilewright import workflow

    outcome = workflow.inspect(file, kernel=kernel, settings=settings)
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(outcome.report))
    else:
        from tilewright.receipt.reports_text import render_inspect

        page = canvas(settings)
        emit(render_inspect(outcome.report, width=page.width, color=page.color))
    return outcome.exit_code
