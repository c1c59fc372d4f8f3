"""The steady-state path as text for people: what is issued, waited for and computed, in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.sass.inflight import Copy, Run
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import is_barrier, is_global_load
from tilewright.sass.steady import SteadyPath
from tilewright.sass.tiles import Overlap, arrivals
from tilewright.sass.trace import is_wait

ORDER_IS_NOT_TIME = "Order proves that overlap is permitted; only timing shows that it happens."

_LONGEST = 36
_OTHERS_SHOWN = 4


@dataclass
class _Row:
    """One line to be: instructions of one kind in a row."""

    mark: str
    remark: str
    indices: list[int]


def excerpt_of(function: Function, path: SteadyPath, run: Run, found: Overlap) -> str:
    """At most about 40 lines: source line, address, stall cycles, instruction, and what it means for the copies."""
    rows = _rows(function, path, run, found)
    code = function.instructions
    first, last = code[path.trip[0].at], code[path.trip[-1].at]
    files = Counter(code[step.at].file for step in path.trip if code[step.at].file)
    file = files.most_common(1)[0][0] if files else None
    tiles = "1 tile" if found.tiles_per_trip == 1 else f"{found.tiles_per_trip} tiles"
    source = f", lines of {(file or '').rsplit('/', 1)[-1]}" if file else ""
    span = f"0x{first.address:x}-0x{last.address:x}"
    lines = [
        f"{function.name} {function.arch}: one trip of the K-loop {span} ({tiles}){source}",
        f"{'line':>6} {'address':>9} {'stall':>5}  {'':9}instruction",
    ]
    shown = rows if len(rows) <= _LONGEST else rows[: _LONGEST - 1]
    lines += [_line(function, row, file) for row in shown]
    if len(shown) < len(rows):
        lines.append(f"{'':>6} {'':>9} {'':>5}  … {len(rows) - len(shown)} more rows, up to the end of the trip")
    lines.append(ORDER_IS_NOT_TIME)
    return "\n".join(lines) + "\n"


def _rows(function: Function, path: SteadyPath, run: Run, found: Overlap) -> list[_Row]:
    names = _tile_names(run, found)
    issued = {copy.issued.time: copy for copy in run.copies if copy.is_staged}
    retired = _retired(run)
    rows: list[_Row] = []
    for k, step in enumerate(path.trip):
        time = found.turn * run.steps + k + 1
        instruction = function.instructions[step.at]
        if instruction.is_off:
            continue
        mark, remark = "", ""
        if k == len(path.trip) - 1 and instruction.opcode in ("BRA", "CALL"):
            mark, remark = "loop", "back edge"
        elif time in issued and is_global_load(instruction):
            mark, remark = "issue", f"copy of tile {names[id(issued[time])]}"
        elif time in issued:
            mark, remark = "free", f"the copying thread may now issue tile {names[id(issued[time])]}"
        elif time in run.stores:
            mark, remark = "store", f"tile {_named(names, run.stores[time])} to shared memory"
        elif time in found.in_flight:
            mark, remark = "math", f"{found.in_flight[time]:.3g} in flight"
        elif step.active:
            mark, remark = _plain_mark(instruction)
        if time in retired:
            landed = f"tile {_named(names, retired[time])} has landed"
            mark, remark = ("wait", landed) if mark in ("", "wait") else (mark, f"{remark}; {landed}")
        _append(rows, mark, remark, step.at, function)
    return rows


def _plain_mark(instruction: Instruction) -> tuple[str, str]:
    """What an instruction means whatever the tile."""
    if is_barrier(instruction):
        return "barrier", "waits for threads, for no copy"
    if instruction.opcode == "LDGDEPBAR":
        return "commit", "closes a group"
    if instruction.opcode == "DEPBAR" or is_wait(instruction):
        return "wait", "retires nothing"
    if instruction.opcode == "WARPGROUP" and "DEPBAR" in instruction.modifiers:
        return "wait", "waits for math, for no copy"
    return "", ""


def _append(rows: list[_Row], mark: str, remark: str, index: int, function: Function) -> None:
    """Add an instruction: to the last row where it goes on, else as a row of its own.

    Other instructions between equal rows are swallowed: they are not what the excerpt is about.
    """
    if rows and rows[-1].mark == mark and (not mark or rows[-1].remark == remark):
        rows[-1].indices.append(index)
        return
    if (
        mark
        and len(rows) > 1
        and not rows[-1].mark
        and rows[-2].mark == mark
        and rows[-2].remark == remark
        and _same_name(function, rows[-2].indices[-1], index)
    ):
        rows.pop()
        rows[-1].indices.append(index)
        return
    rows.append(_Row(mark, remark, [index]))


def _same_name(function: Function, a: int, b: int) -> bool:
    return function.instructions[a].name == function.instructions[b].name


def _line(function: Function, row: _Row, file: str | None) -> str:
    code = [function.instructions[i] for i in row.indices]
    first = code[0]
    line = str(first.line) if first.line is not None and first.file == file else ""
    if not row.mark:
        counts = Counter(i.opcode for i in code).most_common(_OTHERS_SHOWN)
        listed = ", ".join(f"{count} {opcode}" for opcode, count in counts)
        more = ", …" if len({i.opcode for i in code}) > _OTHERS_SHOWN else ""
        return f"{'':>6} {'':>9} {'':>5}  {'':9}… {listed}{more}"
    stalls = sorted({i.stall for i in code})
    stall = str(stalls[0]) if len(stalls) == 1 else f"{stalls[0]}-{stalls[-1]}"
    names = Counter(i.name for i in code)
    text = first.text if len(code) == 1 else ", ".join(f"{count} × {name}" for name, count in names.items())
    return f"{line:>6} {first.address:>#9x} {stall:>5}  {row.mark:<9}{text:<44}  {row.remark}".rstrip()


def _tile_names(run: Run, found: Overlap) -> dict[int, str]:
    """Copy → the name of its tile: ``t`` is the tile that has landed last when the trip's math begins."""
    start = min(found.in_flight)
    names = {}
    for is_async in (True, False):
        tiles = arrivals(run, [copy for copy in run.copies if copy.is_staged and copy.is_async == is_async])
        current = sum((arrived := tile[-1].arrived) is not None and arrived.time <= start for tile in tiles) - 1
        for at, tile in enumerate(tiles):
            name = "t" if at == current else f"t{at - current:+d}"
            names.update(dict.fromkeys((id(copy) for copy in tile), name))
    return names


def _named(names: dict[int, str], copies: list[Copy]) -> str:
    return ", ".join(dict.fromkeys(names.get(id(copy), "?") for copy in copies))


def _retired(run: Run) -> dict[int, list[Copy]]:
    """Time → copies to shared memory that are known to have landed then."""
    found: dict[int, list[Copy]] = {}
    for copy in run.copies:
        if copy.is_staged and copy.retired is not None:
            found.setdefault(copy.retired.time, []).append(copy)
    return found
