"""What the preprocessor and the inliner do, as far as the load phase needs it: macros first, then functions."""

from __future__ import annotations

from tilewright.normalise.inline import inline
from tilewright.normalise.macros import macros
from tilewright.normalise.result import Change, Situation
from tilewright.source.kernel import Refusal


def front(situation: Situation) -> Change | Refusal | None:
    """One step: a function's body may hold macros, and a macro calls."""
    return macros(situation) or inline(situation)
