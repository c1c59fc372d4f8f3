"""How a run that stops says why: one message on stderr, or one JSON object on stdout."""

from __future__ import annotations

import json
import sys

from tilewright.cli.terminal import canvas, emit
from tilewright.errors import TilewrightError
from tilewright.settings import Settings

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


def report(error: TilewrightError, settings: Settings, *, as_json: bool) -> int:
    """Print the error and return its exit code."""
    if as_json:
        emit(json.dumps({"error": _record(error)}, indent=2, default=str) + "\n")
        return error.exit_code
    head = "error:"
    if canvas(settings, sys.stderr).color:
        head = "\x1b[31merror:\x1b[0m"
    place = f"{error.place}: " if error.place else ""
    print(f"{head} {place}[{error.code}] {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
    return error.exit_code


def _record(error: TilewrightError) -> dict[str, object]:
    known = {"file", "line"}
    return {
        "code": error.code,
        "message": error.message,
        "file": error.facts.get("file"),
        "line": error.facts.get("line"),
        "facts": {name: value for name, value in error.facts.items() if name not in known},
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def unexpected(error: Exception, settings: Settings, *, as_json: bool) -> int:
    """A defect of Tilewright: say so, and how to report it."""
    if settings.debug:
        import traceback

        traceback.print_exception(error)
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    hint = "Please report it with the traceback: run the same command with TILEWRIGHT_DEBUG=1."
    defect = TilewrightError("cli/unexpected", f"This is a defect of Tilewright: {summary}", {}, hint, EXIT_INTERNAL)
    return report(defect, settings, as_json=as_json)
