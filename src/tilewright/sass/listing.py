"""A cubin as data: functions, instructions and their control bits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.sass.elf import registers_of
from tilewright.sass.nvdisasm import run_nvdisasm
from tilewright.settings import Settings

_NO_BARRIER = 7


@dataclass(frozen=True)
class Instruction:
    """One 128-bit instruction of sm_70 or later.

    Attributes:
        address: byte offset within the function's section.
        opcode: without modifiers: ``LDGSTS``.
        modifiers: ``("E", "BYPASS", "128")``.
        predicate: ``""``, ``@P0``, ``@!UP1``, ``@!PT``.
        operands: the text behind the opcode.
        text: predicate, opcode, modifiers and operands, as the disassembler prints them.
        stall: cycles before the warp may issue its next instruction (bits 105-108).
        yield_flag: bit 109, a scheduler hint, as it stands.
        write_barrier: scoreboard that is cleared when the result is written (bits 110-112), None for none.
        read_barrier: scoreboard that is cleared when the operands have been read (bits 113-115), None for none.
        wait_mask: scoreboards, bit 0 to 5, that must be clear before this one issues (bits 116-121).
        reuse: operand reuse cache bits (122-125).
        line: source line, in ``file``; None without line information.
        file: source file: the kernel's own, also for code inlined from a header.
    """

    address: int
    opcode: str
    modifiers: tuple[str, ...]
    predicate: str
    operands: str
    text: str
    stall: int
    yield_flag: bool
    write_barrier: int | None
    read_barrier: int | None
    wait_mask: int
    reuse: int
    line: int | None = None
    file: str | None = None

    @property
    def name(self) -> str:
        """Opcode with its modifiers: ``IMMA.16816.S8.S8``."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def is_off(self) -> bool:
        """Predicated off for good (``@!PT``): it does nothing, and counts for nothing."""
        return self.predicate in ("@!PT", "@!UPT")


@dataclass(frozen=True)
class Function:
    """The code of one function, a kernel or not.

    Attributes:
        name: as in the cubin (mangled).
        arch: ``sm_86``.
        instructions: in address order; ``instructions[i].address == 16 * i``.
        registers: per thread; 0 where the cubin does not say.
        spill_stores, spill_loads: instructions that write or read local memory (``STL``, ``LDL``): spills, and
            arrays that the compiler could not keep in registers.
        labels: label → address.
        is_kernel: True for a ``__global__`` function.
    """

    name: str
    arch: str
    instructions: tuple[Instruction, ...]
    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    labels: Mapping[str, int] | None = None
    is_kernel: bool = True


@dataclass(frozen=True)
class Listing:
    """Everything executable in one cubin."""

    functions: tuple[Function, ...]

    def function(self, name: str) -> Function | None:
        """The function of that (mangled) name, or None."""
        return next((function for function in self.functions if function.name == name), None)


def disassemble(cubin: bytes, settings: Settings) -> Listing:
    """Read a cubin.

    Raises:
        TilewrightError: ``sass/no_disassembler`` (exit 3), ``sass/corrupt_cubin`` (exit 2).
    """
    registers = registers_of(cubin)  # first: it tells bad bytes apart before a process is started
    return parse(run_nvdisasm(cubin, settings), registers)


def parse(text: str, registers: Mapping[str, int] | None = None) -> Listing:
    """Read the text that ``nvdisasm -c -gi -hex`` prints.

    Args:
        text: the disassembly.
        registers: registers per thread by function, where known; else the text's own figure is taken.
    """
    arch = _arch(text)
    heads = list(re.finditer(r"^//-+ \.text\.(\S+)\s+-+\s*$", text, re.M))
    functions = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = text[head.end() : following.start() if following else len(text)]
        functions.append(_function(head[1], arch, body, registers or {}))
    return Listing(tuple(functions))


def _arch(text: str) -> str:
    """``sm_86``; older files name it in their flags alone."""
    if found := re.search(r"^\s*\.target\s+(\w+)", text, re.M):
        return found[1]
    flags = re.search(r"^\s*\.headerflags\s.*?\bEF_CUDA_SM(\d+)", text, re.M)
    return f"sm_{flags[1]}" if flags else "unknown"


def _function(name: str, arch: str, body: str, registers: Mapping[str, int]) -> Function:
    instructions, labels = _instructions(body)
    printed = re.search(r"SHI_REGISTERS=(\d+)", body)
    live = [i.opcode for i in instructions if not i.is_off]
    return Function(
        name=name,
        arch=arch,
        instructions=instructions,
        registers=registers.get(name) or (int(printed[1]) if printed else 0),
        spill_stores=live.count("STL"),
        spill_loads=live.count("LDL"),
        labels=labels,
        is_kernel="STO_CUDA_ENTRY" in body,
    )


_LABEL = re.compile(r"^(\.L_\S+|\$\S+|[A-Za-z_]\S*):\s*$")
_PLACE = re.compile(r'//## File "([^"]*)", line (\d+)( inlined at "([^"]*)", line (\d+))?')
_CODE = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P(?:T|\d+))\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)\s*(.*?)"
    r"\s*(?:\(\*.*?\*\)\s*)?;"  # (*"SpillRefill"*) and other remarks of the disassembler
    r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$"
)
_SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")


def _instructions(body: str) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []  # labels whose address is that of the next instruction
    frames: list[tuple[str, int]] = []
    place: tuple[str, int] | None = None
    lines: Iterator[str] = iter(body.splitlines())
    for line in lines:
        if place_match := _PLACE.search(line):
            frames.append((place_match[1], int(place_match[2])))
            if not place_match[3]:  # the outermost frame ends a chain
                place, frames = _own_frame(frames), []
        elif label := _LABEL.match(line):
            waiting.append(label[1])
        elif code := _CODE.match(line):
            second = _SECOND.match(next(lines, ""))
            found.append(_instruction(code, int(second[1], 16) if second else 0, place))
            labels.update(dict.fromkeys(waiting, found[-1].address))
            waiting.clear()
    return tuple(found), labels


def _own_frame(frames: list[tuple[str, int]]) -> tuple[str, int]:
    """Of an inlining chain (innermost first): the innermost frame that lies in the kernel's own file."""
    kernel_file = frames[-1][0]
    return next(frame for frame in frames if frame[0] == kernel_file)


def _instruction(code: re.Match[str], high: int, place: tuple[str, int] | None) -> Instruction:
    address, predicate, opcode, modifiers, operands, _ = code.groups()
    # `high` holds bits 64-127 of the encoding.
    write, read = high >> 46 & 7, high >> 49 & 7
    return Instruction(
        address=int(address, 16),
        opcode=opcode,
        modifiers=tuple(modifiers.split(".")[1:]),
        predicate=predicate or "",
        operands=operands,
        text=" ".join(part for part in (predicate, opcode + modifiers, operands) if part),
        stall=high >> 41 & 15,
        yield_flag=bool(high >> 45 & 1),
        write_barrier=None if write == _NO_BARRIER else write,
        read_barrier=None if read == _NO_BARRIER else read,
        wait_mask=high >> 52 & 63,
        reuse=high >> 58 & 15,
        line=place[1] if place else None,
        file=place[0] if place else None,
    )
