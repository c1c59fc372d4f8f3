"""Small functions written as SASS text, with the control bits that matter behind a `//`.

DEPBAR.LE SB0, 0x1
LDG.E.128 R4, [R2.64]     // W2 stall4
STS.128 [R0], R4          // wait2
"""

from __future__ import annotations

import re

from tilewright.sass.listing import Function, Instruction

_LINE = re.compile(r"^(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9]*)((?:\.[A-Za-z0-9_]+)*)\s*(.*)$")


def assemble(text: str, **facts: int) -> Function:
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.strip().splitlines():
        body, _, control = (part.strip() for part in line.partition("//"))
        if body.endswith(":"):
            labels[body[:-1]] = 16 * len(code)
        elif body:
            code.append(_instruction(16 * len(code), body, control))
    return Function("kernel", "sm_86", tuple(code), labels=labels, **facts)


def _instruction(address: int, body: str, control: str) -> Instruction:
    found = _LINE.match(body)
    assert found is not None, body
    predicate, opcode, modifiers, operands = found.groups()
    write = re.search(r"W(\d)", control)
    stall = re.search(r"stall(\d+)", control)
    return Instruction(
        address=address,
        opcode=opcode,
        modifiers=tuple(modifiers.split(".")[1:]),
        predicate=predicate or "",
        operands=operands,
        text=body,
        stall=int(stall[1]) if stall else 1,
        yield_flag=False,
        write_barrier=int(write[1]) if write else None,
        read_barrier=None,
        wait_mask=sum(1 << int(board) for board in re.findall(r"wait(\d)", control)),
        reuse=0,
    )
