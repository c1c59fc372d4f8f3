"""How a run that stops says why: one message on stderr, or one JSON object on stdout."""

from __future__ import annotations

import json
import sys

from tilewright.cli.terminal import canvas, complain, emit
from tilewright.errors import TilewrightError
from tilewright.settings import Settings

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


def report(error: TilewrightError, settings: Settings, *, as_json: bool) -> int:
    """Print the error and return its exit code; on stderr where stdout cannot be written to."""
    if as_json and error.code != "cli/no_output":
        try:
            emit(json.dumps({"error": _record(error)}, indent=2, default=str) + "\n")
            return error.exit_code
        except TilewrightError:
            pass
    head = "error:"
    if canvas(settings, sys.stderr).color:
        head = "\x1b[31merror:\x1b[0m"
    place = f"{error.place}: " if error.place else ""
    hint = f"\n  {error.hint}" if error.hint else ""
    complain(f"{head} {place}[{error.code}] {error.message}{hint}")
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


def refused_by_system(error: OSError, settings: Settings) -> TilewrightError:
    """What the operating system did not let us do: a folder that cannot be read, a full disk."""
    _trace(error, settings)
    facts = {"file": str(error.filename)} if error.filename is not None else {}
    message = f"The operating system refused: {error.strerror or error}."
    return TilewrightError("cli/os_error", message, facts, "Check that it exists, and that you may read or write it.")


def unexpected(error: Exception, settings: Settings, *, as_json: bool) -> int:
    """A defect of Tilewright: say so, and how to report it."""
    _trace(error, settings)
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    hint = "Please report it with the traceback: run the same command with TILEWRIGHT_DEBUG=1."
    defect = TilewrightError("cli/unexpected", f"This is a defect of Tilewright: {summary}", {}, hint, EXIT_INTERNAL)
    return report(defect, settings, as_json=as_json)


def _trace(error: Exception, settings: Settings) -> None:
    if settings.debug:
        import traceback

        traceback.print_exception(error)
