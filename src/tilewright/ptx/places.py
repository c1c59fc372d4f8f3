"""From the place of an instruction to the line that the user wrote."""

from __future__ import annotations

import re

from tilewright.ptx.module import Place


def user_line(place: Place | None, main_file: str | None) -> int | None:
    """The line of the user's own file, from 1: a header's code stands for the line that called it.

    Args:
        place: of an instruction; None where the PTX has no line information.
        main_file: name of the user's file; folders do not count. None: the outermost call is taken.

    Returns:
        The innermost line in that file, else the outermost line of any; None where no line is known.
    """
    if place is None:
        return None
    chain = [found for found in place.chain() if found.line > 0]
    if not chain:
        return None
    if main_file is not None:
        own = _base(main_file)
        for found in chain:
            if _base(found.file) == own:
                return found.line
    return chain[-1].line


def _base(file: str) -> str:
    return re.split(r"[/\\]", file)[-1]
