"""What the preprocessor, the inliner and constants do, as far as the load phase needs it: macros before functions."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.branches import branches
from tilewright.normalise.inline import inline
from tilewright.normalise.inline_sites import CallSites
from tilewright.normalise.macros import macros
from tilewright.normalise.result import Change, Situation


def front(situation: Situation) -> Change | Refusal | None:
    """One step: a function's body may hold macros, and a macro calls."""
    sites = CallSites(situation.kernel)
    return macros(situation, sites) or inline(situation, sites) or branches(situation, sites)
