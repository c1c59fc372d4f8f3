"""Which instructions may read registers that a wgmma is still writing: along some path, no wait lies between.

A ``mov`` only renames, also where it takes a register of two halves apart or joins one: the compiler puts copies
of accumulators between asynchronous instructions, and none of them is left in the machine code. What is found here is
looked at again when it runs (``Warpgroups.check_use``).
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ptx.cfg import Graph, defs_uses
from tilewright.ptx.module import Immediate, Instruction, Register, Vector

# Register → (commits since, sites of the products). The products of the a-th last group have a commits since.
_State = dict[str, tuple[int, frozenset[int]]]
_MOST_GROUPS = 8  # no wait leaves more


def suspects(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """Site of each such instruction → sites of the products whose results it may read."""
    if not any(i.opcode == "wgmma" for i in graph.instructions):
        return {}
    entry: list[_State | None] = [None] * len(graph.blocks)
    entry[0] = {}
    waiting = [0]
    while waiting:
        index = waiting.pop()
        block = graph.blocks[index]
        state = dict(entry[index] or {})
        for k, instruction in enumerate(block.instructions):
            _step(state, instruction, block.first_site + k)
        for target in set(block.successors):
            joined = _join(entry[target], state)
            if joined is not None:
                entry[target] = joined
                waiting.append(target)
    found: dict[int, tuple[int, ...]] = {}
    for block, start in zip(graph.blocks, entry, strict=True):
        state = dict(start or {})
        for k, instruction in enumerate(block.instructions):
            sites = _step(state, instruction, block.first_site + k)
            if sites:
                found[block.first_site + k] = tuple(sorted(sites))
    return found


def _step(state: _State, i: Instruction, site: int) -> frozenset[int]:
    """Change the state as an instruction does; the products whose results it reads too early."""
    if i.opcode == "wgmma" and i.modifiers[0] == "commit_group":
        for name, (commits, sites) in state.items():
            state[name] = (min(commits + 1, _MOST_GROUPS), sites)
        return frozenset()
    if i.opcode == "wgmma" and i.modifiers[0] == "wait_group":
        newest = i.operands[0].value if isinstance(i.operands[0], Immediate) else _MOST_GROUPS
        for name in [n for n, (commits, _) in state.items() if commits > newest]:
            del state[name]
        return frozenset()
    if not state and i.opcode != "wgmma":
        return frozenset()
    defs, uses = defs_uses(i)
    if i.opcode == "mov" and i.guard is None and all(isinstance(o, Register | Vector) for o in i.operands):
        moved = [state[name] for name in uses if name in state]
        for name in defs:
            state.pop(name, None)
            if moved:
                state[name] = min(c for c, _ in moved), frozenset[int]().union(*(s for _, s in moved))
        return frozenset()
    if i.opcode == "wgmma":
        uses = uses[len(defs) :]  # a product may add to what another one is writing
    sites = frozenset[int]().union(*(state[name][1] for name in uses if name in state))
    for name in defs:
        if i.opcode == "wgmma":
            state[name] = (0, frozenset((site,)))
        elif i.guard is None:
            state.pop(name, None)
    return sites


def _join(before: _State | None, new: _State) -> _State | None:
    """Both paths together; None where that is what was known before."""
    if before is None:
        return dict(new)
    out = dict(before)
    for name, (commits, sites) in new.items():
        known = before.get(name)
        out[name] = (commits, sites) if known is None else (min(commits, known[0]), sites | known[1])
    return None if out == before else out
