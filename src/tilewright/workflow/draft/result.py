"""What drafting ends in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Draft:
    """A drafted sidecar.

    Attributes:
        text: of the sidecar; where there is a problem, with what is missing marked.
        guesses: what it rests on, one clause each.
        problem: why it does not fit; "" where it does.
        is_told: the launch was read from the file, so that a race is the kernel's own.
    """

    text: str = ""
    guesses: tuple[str, ...] = ()
    problem: str = ""
    is_told: bool = False

    @property
    def fits(self) -> bool:
        return not self.problem
