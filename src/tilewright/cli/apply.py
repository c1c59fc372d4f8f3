"""`tilewright apply RECEIPT`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.terminal import complain, emit
from tilewright.errors import EXIT_OK

NAME = "apply"
EXAMPLE = """Example: tilewright apply out/receipt.json --variant cp_async3 --dry-run

Only a verified variant is applied, and only to the very text that the receipt saw.
Exit codes: 0 done; 2 bad input; 4 it cannot be applied safely, and nothing was written."""


def run(
    receipt: Annotated[Path, Parameter(name="RECEIPT")],
    /,
    *,
    variant: str | None = None,
    dry_run: Annotated[bool, Parameter(show_default=False)] = False,
    json: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Put an accepted variant into your file: the kernel, and the launches in that file that it changes.

    Parameters
    ----------
    receipt
        receipt.json, as `tilewright pipeline --out DIR` writes it.
    variant
        Which one, such as cp_async3. Default: the receipt's choice.
    dry_run
        Show the diff, write nothing.
    json
        Print one JSON object instead of the diff.
    """
    from tilewright.workflow.applying import apply

    done = apply(receipt, variant=variant, dry_run=dry_run)
    if json:
        import json as encoder

        record = {"file": str(done.path), "variant": done.variant, "written": done.is_written, "notes": done.notes}
        emit(encoder.dumps({**record, "diff": done.diff}, indent=2) + "\n")
        return EXIT_OK
    emit(done.diff)
    for note in done.notes:
        complain(f"note: {note}")
    complain(f"{'applied' if done.is_written else 'would apply'} {done.variant} to {done.path}")
    return EXIT_OK
