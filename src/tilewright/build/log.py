"""Reading the compiler's log: the first error, and what ptxas says of one kernel."""

from __future__ import annotations

import re

from tilewright.build.artifact import Resources

# `igemm.cu(12): error: …`, `igemm.cu(2): catastrophic error: …`
ERROR = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$", re.M
)
BARE_ERROR = re.compile(r"^(?:(?:ptxas|nvrtc|error)\b|At end of source:).*?(?:error|fatal)\s*:?\s*(?P<text>.*)$", re.M)
ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SMEM = re.compile(r"(\d+) bytes smem")
STACK = re.compile(r"(\d+) bytes cumulative stack size")


def first_error(log: str) -> tuple[str, int | None, str | None]:
    """Text, line and file of the log's first error; line and file None where it names none."""
    log = log.replace("\0", "")  # NVRTC puts one where the front end's part of the log ends
    match = ERROR.search(log)
    if match:
        return match["text"].strip(), int(match["line"]), match["file"]
    match = BARE_ERROR.search(log)
    if match:
        return match["text"].strip(), None, None
    return (log.splitlines() or ["the compiler gave no message"])[0].strip(), None, None


def resources(log: str, kernel: str) -> Resources | None:
    """The figures of one kernel (its lowered name); None where the log holds none."""
    entry, function = None, None
    frame, registers, smem_bytes, stack_bytes = (0, 0, 0), None, 0, 0
    for line in log.splitlines():
        if match := ENTRY.search(line):
            entry = function = match["name"]
        elif match := PROPERTIES.search(line):
            # A function that was not inlined has properties of its own between the entry's.
            function = match["name"]
        elif entry == kernel and function == kernel and (match := FRAME.search(line)):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif entry == kernel and (match := REGISTERS.search(line)):
            registers = int(match[1])
            smem_bytes = int(match[1]) if (match := SMEM.search(line)) else 0
            stack_bytes = int(match[1]) if (match := STACK.search(line)) else 0
    if registers is None:
        return None
    return Resources(registers, smem_bytes, frame[1] + frame[2], max(frame[0], stack_bytes))
