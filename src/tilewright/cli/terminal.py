"""What the verbs share towards the terminal: where text goes, how wide it may be, progress on stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TextIO

from tilewright.errors import TilewrightError
from tilewright.settings import Settings

if TYPE_CHECKING:
    from rich.status import Status

PIPE_WIDTH = 100
NARROWEST, WIDEST = 80, 160
# A run that is done sooner shows nothing; a cached one is.
QUIET_S = 1.0


@dataclass(frozen=True)
class Canvas:
    """How text for stdout is drawn: columns, and whether escape codes may be used."""

    width: int
    color: bool


def canvas(settings: Settings, stream: TextIO | None = None) -> Canvas:
    """Width and colour of a stream (stdout): a terminal's own, or plain text of fixed width for a pipe."""
    out = sys.stdout if stream is None else stream
    try:
        columns = os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError, AttributeError):  # AttributeError: a stream that was closed before we began is None
        return Canvas(PIPE_WIDTH, color=False)
    return Canvas(min(max(columns, NARROWEST), WIDEST), settings.color)


def emit(text: str) -> None:
    """Write to stdout. A reader that has gone away (``| head``) is no error, and what did not encode is escaped.

    Raises:
        TilewrightError: ``cli/no_output`` where stdout is closed, or its disk is full.
    """
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        mute()
    except (OSError, ValueError, AttributeError) as error:
        mute()
        why = (error.strerror if isinstance(error, OSError) else "") or "it is closed"
        raise TilewrightError("cli/no_output", f"Cannot write to stdout: {why}.") from error


def complain(text: str) -> None:
    """Write a line to stderr; where that is closed or full, nobody can be told."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def mute() -> None:
    """Send what is left for stdout nowhere: the interpreter flushes it once more at exit, and that must be quiet."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """The step that runs, on stderr, once it takes longer than a second, and only on a terminal that can move up."""

    def __init__(self, settings: Settings) -> None:
        self._color = settings.color
        self._can_redraw = not settings.dumb_terminal
        self._step = ""
        self._status: Status | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Progress:
        if self._can_redraw and sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(QUIET_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._status is not None:
                self._status.stop()
                self._status = None

    def __call__(self, step: str) -> None:
        """Say what runs now."""
        with self._lock:
            self._step = step
            if self._status is not None:
                self._status.update(self._plain(step))

    def _show(self) -> None:
        from rich.console import Console

        with self._lock:
            if self._timer is None:  # finished while rich was being imported
                return
            console = Console(stderr=True, no_color=not self._color, highlight=False)
            self._status = console.status(self._plain(self._step or "working"), spinner="line")
            self._status.start()

    @staticmethod
    def _plain(step: str) -> str:
        from rich.markup import escape

        return escape(step)


def leave_now(code: int) -> NoReturn:
    """Leave without tidying up: a kernel that never returns would keep the driver, and this process, waiting."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
