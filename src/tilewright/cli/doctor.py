"""`tilewright doctor`"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.terminal import canvas, emit
from tilewright.settings import Settings

NAME = "doctor"
EXAMPLE = """Example: tilewright doctor

Exit codes: 0 all that the job needs without a GPU is here; 3 something of it is missing."""


def run(*, json: Annotated[bool, Parameter(show_default=False)] = False) -> int:
    """Show what was found on this machine, and what each missing piece costs.

    Parameters
    ----------
    json
        Print the findings as one JSON object.
    """
    settings = Settings.from_environment()

    from tilewright.doctor import examine, render_examination

    examination = examine(settings)
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(examination))
    else:
        page = canvas(settings)
        emit(render_examination(examination, width=page.width, color=page.color))
    return examination.exit_code
