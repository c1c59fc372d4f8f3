"""Turns at one card: several processes prepare there at a time, and each is timed while all others leave it alone.

Two files, locked by ``flock``. The card's is held *shared* for work on the card that nobody times (allocations, fills,
checks, captures), and *alone* for what is timed; work of the host holds neither. Everybody passes a turnstile first,
and stays in it until the card's lock is there: who wants the card alone waits for those who have it already, and for
none who came later.

A process holds the card in one way at a time: who has it shared and wants it alone gives it back first, so two of them
cannot wait for each other; and whoever waits for the card holds nothing of it, so nobody waits in a circle. Before it
is given back, all that this process put on it has ended. What a process that dies held, the kernel gives back; one
that hangs is ended after `HELD_S`.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Held = Literal["", "shared", "alone"]
HELD_S = 120.0  # until a process that holds the card is taken to hang


class Turns:
    """Nobody else is there: nothing is waited for.

    Attributes:
        at_once: processes that share the card's memory, this one included.
    """

    at_once = 1

    @contextmanager
    def shared(self) -> Iterator[None]:
        """For untimed work on the card. Inside of `alone`, it stays alone."""
        yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For what is timed. What was held before is held again afterwards; others may have had the card in between."""
        yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For work of the host in the midst of the card's."""
        yield

    def step_aside(self) -> None:
        """As `aside`, for those who are called back and have no ``with``: ends with the next way to hold the card.

        Who holds it alone keeps it.
        """

    def step_back(self) -> None:
        """After `step_aside`: the card alone, until what encloses it ends. A compiler may time its variants then."""

    def told(self) -> str:
        """Where the time went, in a line; "" for nothing."""
        return ""


class FileTurns(Turns):
    """With other processes that name the same folder, on a file system of this machine.

    Args:
        folder: is made. at_once: how many processes they are, at the most.
        settle: waits until all that this process put on the card has ended.
        held_s: with this much longer, a process is ended, its traceback on stderr; None for never.
    """

    def __init__(
        self, folder: Path, at_once: int = 1, settle: Callable[[], None] = lambda: None, held_s: float | None = HELD_S
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Nobody deletes them: a lock of a file that is gone would keep nobody out.
        self._turnstile, self._card = (
            os.open(folder / n, os.O_RDWR | os.O_CREAT, 0o600) for n in ("turnstile", "card")
        )
        self.at_once, self._settle, self._held_s = at_once, settle, held_s
        self.held: Held = ""
        self._is_aside = False
        self._seconds = {"waiting": 0.0, "shared": 0.0, "alone": 0.0}
        self._since = 0.0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._as("alone" if self.held == "alone" else "shared"):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._as("alone"):
            yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        with self._as(""):
            yield

    def step_aside(self) -> None:
        if self.held == "shared":
            self._switch("")
            self._is_aside = True

    def step_back(self) -> None:
        if self._is_aside:
            self._is_aside = False
            self._switch("alone")

    @property
    def seconds(self) -> Mapping[str, float]:
        """Where the time went so far: waiting, shared, alone."""
        return dict(self._seconds)

    def told(self) -> str:
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())

    @contextmanager
    def _as(self, held: Held) -> Iterator[None]:
        before = self.held
        self._switch(held)
        try:
            yield
        finally:
            self._is_aside = False
            self._switch(before)

    def _switch(self, held: Held) -> None:
        """Hold the card so, having given it back first."""
        import fcntl

        if held == self.held:
            return
        if self.held:
            try:
                self._settle()
            finally:
                self._seconds[self.held] += time.monotonic() - self._since
                self.held = ""
                if self._held_s is not None:
                    faulthandler.cancel_dump_traceback_later()
                fcntl.flock(self._card, fcntl.LOCK_UN)
        if held:
            begin = time.monotonic()
            fcntl.flock(self._turnstile, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._card, fcntl.LOCK_EX if held == "alone" else fcntl.LOCK_SH)
            finally:
                fcntl.flock(self._turnstile, fcntl.LOCK_UN)
            if self._held_s is not None:
                faulthandler.dump_traceback_later(self._held_s, exit=True)
            self.held, self._since = held, time.monotonic()
            self._seconds["waiting"] += self._since - begin
