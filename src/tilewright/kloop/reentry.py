"""Whether every run of a K-loop that stands in another loop fills the same places of its tiles.

What a run leaves out still holds an earlier run's last tile. One buffer keeps that for every tile of the run; in a ring
each stage holds another tile of the earlier run, so such arrays cannot be rings.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from tilewright.kloop.kernel import KLoop, Refusal
from tilewright.kloop.kloop import KLoopFinder, Phases
from tilewright.kloop.moving import Moving
from tilewright.kloop.placement import enclosing
from tilewright.kloop.slices import mentioned
from tilewright.kloop.stream_fill import Fill, target_of
from tilewright.source import ir

_HINT = "fill the rest with zeros; the ldg_single variant keeps the one buffer"


def uneven_runs(
    finder: KLoopFinder, phases: Phases, loop: KLoop, staged: Set[int], filled: Callable[[], frozenset[int]]
) -> Refusal | None:
    """Why runs of the K-loop may fill different places; None where they fill the same, or where there is one run.

    Args:
        staged: symbols of the arrays that the load phase fills.
        filled: works out which arrays it fills to the last byte, for every tile.
    """
    kernel, places = finder.kernel, finder.collector.places
    outer = next((s for s in enclosing(kernel.body, phases.stmt) if isinstance(s, ir.For | ir.While)), None)
    if outer is None:
        return None
    moving = Moving(finder, phases).names(loop, _varying(finder, outer, phases))
    stores = [
        n
        for s in phases.load
        for n in ir.walk(s)
        if isinstance(n, ir.Assign) and (place := places.of(n.left)).space == "shared" and place.symbol in staged
    ]
    text = kernel.source.text
    fill = Fill(
        moving,
        {id(a) for a in stores},
        kernel.symbols,
        finder.collector,
        lambda e: target_of(e, text, lambda name: finder.uniformity.fixed(name, loop.var.id)),
        kernel.source.line,
    )
    found = fill.judge(phases.load) or next((r for a in stores if (r := _moved(finder, a, moving)) is not None), None)
    if found is None or staged <= filled():
        return None
    what = f"{found.message}; the K-loop runs several times, and a run finds there what the run before it left"
    return replace(found, message=what, hint=_HINT)


def _moved(finder: KLoopFinder, store: ir.Assign, moving: Set[int]) -> Refusal | None:
    found = mentioned([store.left]) & moving
    if not found:
        return None
    what = f"where a tile is stored depends on `{finder.kernel.symbols[min(found)].name}`"
    return Refusal("loop_carried_shared", what, finder.line(store))


def _varying(finder: KLoopFinder, outer: ir.Stmt, phases: Phases) -> set[int]:
    """Names whose value may differ from one run of the K-loop to the next."""
    found = finder.effects((outer,)).writes - finder.effects(phases.load).declared
    declared = [s for n in ir.walk(outer) if isinstance(n, ir.Declare) for s in n.symbols]
    size = -1
    while size != len(found):
        size = len(found)
        found |= {s.id for s in declared if s.init is not None and mentioned([s.init]) & found}
    return found
