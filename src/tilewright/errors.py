"""The one exception of Tilewright."""

from __future__ import annotations

from collections.abc import Mapping

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_MISSING = 3
EXIT_REFUSED = 4


class TilewrightError(Exception):
    """Something that stops the run: bad input, or a tool that is missing.

    Expected outcomes (a refusal, a failed check) are values, not exceptions.

    Args:
        code: ``room/reason``, stable, for programs: ``launch/unknown_name``.
        message: what was needed and what was found, one sentence.
        facts: place and figures: ``{"file": …, "line": …}``.
        hint: what to do next.
        exit_code: 2 bad input (the default), 3 something needed is missing.
    """

    def __init__(
        self,
        code: str,
        message: str,
        facts: Mapping[str, object] | None = None,
        hint: str = "",
        exit_code: int = EXIT_BAD_INPUT,
    ) -> None:
        # All arguments go to the base class, so that the exception pickles.
        super().__init__(code, message, dict(facts or {}), hint, exit_code)
        self.code = code
        self.message = message
        self.facts: dict[str, object] = dict(facts or {})
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        place = self.place
        head = f"{place}: " if place else ""
        tail = f" {self.hint}" if self.hint else ""
        return f"{head}[{self.code}] {self.message}{tail}"

    @property
    def place(self) -> str:
        """``file:line``, as far as it is known."""
        file, line = self.facts.get("file"), self.facts.get("line")
        if file is None:
            return ""
        return f"{file}:{line}" if line is not None else str(file)
