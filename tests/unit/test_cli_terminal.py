"""Width, colour and progress follow what the stream is."""

from __future__ import annotations

import io
import os
import pty
from pathlib import Path

import pytest

from tilewright.cli import terminal
from tilewright.cli.terminal import NARROWEST, PIPE_WIDTH, Progress, canvas
from tilewright.settings import Settings

COLOR = Settings(Path("cache"))
PLAIN = Settings(Path("cache"), color=False)


def test_a_pipe_gets_plain_text_of_fixed_width() -> None:
    assert canvas(COLOR, io.StringIO()) == terminal.Canvas(PIPE_WIDTH, color=False)


@pytest.mark.parametrize(("columns", "width"), [(40, NARROWEST), (80, 80), (120, 120), (400, 160)])
def test_a_terminal_gets_its_own_width_within_limits(columns: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((columns, 24)))
    controller, terminal_end = pty.openpty()
    with os.fdopen(terminal_end, "w") as stream:
        assert canvas(COLOR, stream) == terminal.Canvas(width, color=True)
        assert canvas(PLAIN, stream).color is False
    os.close(controller)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(COLOR) as progress:
        progress("compiling")
        assert progress._timer is None
    assert capsys.readouterr().err == ""


def test_progress_is_silent_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Screen())
    with Progress(Settings(Path("cache"), color=False, dumb_terminal=True)) as progress:
        assert progress._timer is None


def test_progress_of_a_quick_run_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with Progress(COLOR) as progress:
        progress("compiling")
    assert screen.getvalue() == ""


def test_progress_of_a_slow_run_shows_the_step_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(PLAIN) as progress:
        progress("compiling")
        progress._show()  # what the timer does
        progress("verifying [cp_async2]")
    assert "verifying [cp_async2]" in screen.getvalue()
    assert progress._status is None
