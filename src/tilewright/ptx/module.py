"""What a PTX module is made of: functions, variables, instructions and their operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Bytes of each PTX type, as PTX ISA, "Fundamental Types" and "Packed Data Types".
TYPE_BYTES: Mapping[str, int] = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "e4m3x2": 2, "e5m2x2": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "tf32": 4, "f16x2": 4, "bf16x2": 4, "u16x2": 4, "s16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "b128": 16,
}  # fmt: skip

Space = Literal["global", "shared", "local", "const", "param"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instruction comes from, as the ``.loc`` before it says.

    Attributes:
        file: name as in the ``.file`` directive.
        inlined_at: the call that brought it there, where a function was inlined.
    """

    file: str
    line: int
    inlined_at: Place | None = None

    def chain(self) -> tuple[Place, ...]:
        """From the innermost place to the outermost call."""
        return (self, *(self.inlined_at.chain() if self.inlined_at is not None else ()))


@dataclass(frozen=True, slots=True)
class Register:
    """A register. ``name`` keeps its ``%``; it is unique in its function, nested scopes included."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, with its component: ``%tid.x``, ``%laneid``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. ``kind`` int: ``value`` is the number (negative ones too); f32 and f64: it is the bit pattern."""

    value: int
    kind: Literal["int", "f32", "f64"] = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of a variable, parameter, label or function, and an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; ``coordinates`` are what follows in a tensor operand, ``[map, {x, y}]``, flattened."""

    base: Register | Symbol | None
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, c, d}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``p|q``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b)``: results or arguments of a call."""

    items: tuple[Operand, ...]


Operand = Register | Special | Immediate | Symbol | Sink | Address | Vector | Pair | Group


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: the root, ``ld``; modifiers: what follows it, without dots, in order: ``("global", "v4", "f32")``.
        guard: the predicate of ``@p`` or ``@!p``.
        place: of the source; None without line information.
        ptx_line: of the PTX text, from 1.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    place: Place | None = None
    ptx_line: int = 0

    @property
    def full_name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Label:
    name: str


@dataclass(frozen=True, slots=True)
class BranchTargets:
    """``.branchtargets``: the list that a ``brx.idx`` names."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter.

    Attributes:
        size_bytes: of the whole; 0 for ``extern … [ ]``.
        element_bytes: of one element.
        initial: bytes of the initialiser, zero-filled to ``size_bytes``; None where there is none.
        pointer_to: the space and alignment that ``.ptr`` names, or None.
        is_array: declared with brackets (a parameter that is a struct).
        initial_symbols: (byte offset, symbol) of initialisers that are addresses.
    """

    name: str
    space: Space
    type: str
    size_bytes: int
    align: int
    element_bytes: int
    is_array: bool = False
    initial: bytes | None = None
    initial_symbols: tuple[tuple[int, Symbol], ...] = ()
    pointer_to: str | None = None


@dataclass(frozen=True)
class Function:
    """A function or kernel.

    Attributes:
        registers: declared name → type.
        families: stem → (type, count): ``%r`` stands for ``%r0``, ``%r1``, … (``type_of``).
        shared, local: variables declared in it; local ``.param`` variables of calls are in ``call_params``.
        body: instructions, labels and branch tables, in order.
        max_threads: of ``.maxntid`` or ``.reqntid``, or None.
        cluster: of ``.reqnctapercluster``, or None.
    """

    name: str
    is_entry: bool
    params: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    registers: Mapping[str, str] = field(default_factory=dict)
    families: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    shared: tuple[Variable, ...] = ()
    local: tuple[Variable, ...] = ()
    call_params: tuple[Variable, ...] = ()
    body: tuple[Instruction | Label | BranchTargets, ...] = ()
    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    min_blocks_per_sm: int | None = None

    def type_of(self, register: str) -> str:
        """PTX type that a register was declared with. Raises KeyError where it was not."""
        found = self.registers.get(register)
        if found is not None:
            return found
        stem = register.rstrip("0123456789")
        type_, count = self.families[stem]
        if int(register[len(stem) :]) >= count:
            raise KeyError(register)
        return type_


@dataclass(frozen=True)
class Module:
    """One PTX text.

    Attributes:
        version: as ``(8, 7)``. target: ``sm_90a``.
        functions: by name, with a body. declared: names of functions without one (``vprintf``).
        variables: module-scope global, const and shared variables.
        files: index → name.
    """

    version: tuple[int, int]
    target: str
    functions: Mapping[str, Function]
    declared: frozenset[str] = frozenset()
    variables: tuple[Variable, ...] = ()
    files: Mapping[int, str] = field(default_factory=dict)
