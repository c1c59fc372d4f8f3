"""Runs the passes, each until it has nothing left to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.kloop.kernel import Refusal
from tilewright.normalise import (
    loop_barriers,
    loop_conditions,
    loop_copies,
    loop_forms,
    loop_pointers,
    loop_variables,
    shared_declarations,
)
from tilewright.normalise.dynamic import dynamic
from tilewright.normalise.front import front
from tilewright.normalise.inline_text import words
from tilewright.normalise.result import Change, Normalised, Pass, Situation
from tilewright.source.edits import finish
from tilewright.source.line_map import LineMap
from tilewright.source.reader import OpenKernel, reopen

PASSES: tuple[Pass, ...] = (
    front,
    shared_declarations.split,
    shared_declarations.hoist,
    dynamic,
    loop_forms.breaks,
    loop_forms.whiles,
    loop_variables.second_variables,
    loop_pointers.pointers,
    loop_variables.trailing_steps,
    loop_conditions.conditions,
    loop_variables.own_variable,
    loop_copies.copy_loops,
    loop_barriers.displaced_barriers,
    loop_barriers.open_ends,
    loop_barriers.second_loads,
    loop_forms.unreadable,
)
# They write other functions' and macros' text, or declarations, and see to the names in it themselves.
_OWN_NAMES = (front, shared_declarations.split, shared_declarations.hoist, dynamic)
_MAX_ROUNDS = 32  # a pass that finds something 32 times over is going in circles


def normalise(
    kernel: OpenKernel,
    block: tuple[int, int, int] | None = None,
    shared_bytes: int | None = None,
    passes: Sequence[Pass] = PASSES,
) -> Normalised:
    """Bring a kernel into a form that the analysis reads; what is not touched stays byte for byte.

    Args:
        block: threads of a block per dimension, where known.
        shared_bytes: dynamic shared memory of the launch, where it is the same at every size.
    """
    out = Normalised(kernel)
    situation = Situation(kernel, block, shared_bytes)
    for one in passes:
        for _ in range(_MAX_ROUNDS):
            change, relied = _asked(one, situation)
            if change is None or (one not in _OWN_NAMES and _captured(situation, change)):
                break
            if isinstance(change, Refusal):
                line = None if change.line is None else out.line(change.line)
                return replace(out, refusal=replace(change, line=line))
            text = out.kernel.source.text
            after = reopen(out.kernel, finish(text, change.edits).encode())
            if after.errors and not out.kernel.errors:
                break  # a text that reads worse than before helps nobody
            step = f"{change.what} (line {out.line(change.line)})"
            left = situation.shared_bytes if change.shared_bytes is None else change.shared_bytes
            situation = Situation(after, block, left)
            out = replace(
                out,
                kernel=after,
                maps=(*out.maps, LineMap.of(text, change.edits)),
                steps=(*out.steps, step),
                shared_bytes=out.shared_bytes if change.shared_bytes is None else change.shared_bytes,
                assumptions=(*out.assumptions, *(x for x in change.assumptions if x not in out.assumptions)),
                made_for=tuple(dict.fromkeys([*out.made_for, *relied])),
            )
    return out


def _captured(situation: Situation, change: Change | Refusal) -> bool:
    """Whether an edit says a name that means several things in the kernel: where it goes it may mean another one."""
    ambiguous = situation.sites.ambiguous
    edits = change.edits if isinstance(change, Change) else ()
    return any(words(e.text) & ambiguous for e in edits)


def _asked(one: Pass, situation: Situation) -> tuple[Change | Refusal | None, list[str]]:
    """What a pass says, and the constants of the file that it looked up for that, with their values."""
    constants = situation.kernel.constants
    before = set(constants.used)
    constants.used.clear()
    change = one(situation)
    looked_up = set(constants.used)
    if isinstance(change, Change) and change.measured:
        # Macros are numbers by then.
        looked_up |= before & situation.kernel.source.macros.keys()
    constants.used |= before
    known = [(name, constants.by_name(name)) for name in sorted(looked_up) if name.isidentifier()]
    return change, [f"{name} == {value}" for name, value in known if value is not None]
