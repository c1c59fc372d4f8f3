"""What the proof does not follow: said in words, so that `unknown` is never a shrug."""

from __future__ import annotations

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.kloop import Work
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import BULK_LOADS
from tilewright.sass.steady import SteadyPath


def why_no_k_loop(function: Function, flow: Flow, work: Work, why_no_pair: str) -> str:
    """Why no loop could be taken for the K-loop; `why_no_pair` says why no two warp-specialised ones could."""
    copying = [loop for loop in flow.loops if any(_is_copy(i) for i in _inside(function, flow, loop))]
    computing = [loop for loop in flow.loops if any(i in work.math for i in _indices(flow, loop))]
    syncs = any(i.opcode in ("SYNCS", "ARRIVES") or "ARV" in i.modifiers for i in function.instructions)
    if copying and computing and syncs:
        return (
            f"Warp-specialised: copies stand in the loop at {_place(function, flow, copying[0])}, math in the one at "
            f"{_place(function, flow, computing[0])}, joined by mbarriers or named barriers; {why_no_pair}"
        )
    if flow.calls:
        return "No loop holds both copies and math; the kernel calls functions, whose code is not followed."
    if not flow.loops:
        return "The kernel has no loop."
    if not computing:
        return "No loop holds math: the K-loop may have been unrolled away."
    return "No loop holds both copies to shared memory and math: there is no K-loop to judge."


def caveats(function: Function, flow: Flow, path: SteadyPath, work: Work, loops: list[int]) -> tuple[str, ...]:
    """What a reader should know about the path that was judged."""
    notes = []
    for header, rounds in path.open_loops:
        loop = next(loop for loop in flow.loops if loop.header == header)
        holds = [name for name, held in _contents(function, flow, loop, work).items() if held]
        if holds:
            place, what = _place(function, flow, loop), " and ".join(holds)
            count = "1 round" if rounds == 1 else f"{rounds} rounds"
            notes.append(f"How often the inner loop at {place} runs was not worked out: its {what} taken for {count}.")
    others = [flow.loops[i] for i in loops[1:] if _contents(function, flow, flow.loops[i], work)["math"]]
    if others:
        places = ", ".join(_place(function, flow, loop) for loop in others[:3])
        notes.append(f"The K-loop at {_place(function, flow, path.loop)} was judged; others are at {places}.")
    if function.spill_stores or function.spill_loads:
        notes.append(f"Local memory is used: {function.spill_stores} STL, {function.spill_loads} LDL (spills?).")
    if not flow.is_reducible:
        notes.append("The control flow has a loop with two entries; it was not taken apart.")
    return tuple(notes)


def _contents(function: Function, flow: Flow, loop: Loop, work: Work) -> dict[str, bool]:
    return {
        "copies": any(_is_copy(i) for i in _inside(function, flow, loop)),
        "math": any(i in work.math for i in _indices(flow, loop)),
    }


def _is_copy(instruction: Instruction) -> bool:
    return not instruction.is_off and (
        instruction.opcode in ("LDGSTS", "LDG", "LD") or instruction.opcode in BULK_LOADS
    )


def _indices(flow: Flow, loop: Loop) -> list[int]:
    return [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]


def _inside(function: Function, flow: Flow, loop: Loop) -> list[Instruction]:
    return [function.instructions[i] for i in _indices(flow, loop)]


def _place(function: Function, flow: Flow, loop: Loop) -> str:
    first = function.instructions[flow.blocks[loop.header].first]
    line = f", line {first.line}" if first.line is not None else ""
    return f"0x{first.address:x}{line}"
