"""Writes one basic block as a Python function. Families of opcodes write into it; it knows registers and guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.emulator.compiled import Fall, Terminator
from tilewright.emulator.faults import Fault
from tilewright.emulator.layout import Layout
from tilewright.emulator.machine.addresses import PARAM_WINDOW
from tilewright.emulator.machine.chunk import SPECIALS
from tilewright.emulator.types import NATURAL, from_bits, item_bytes, scalar, storage
from tilewright.ptx.cfg import Block
from tilewright.ptx.module import (
    Address,
    Function,
    Immediate,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

CLOCKS = frozenset({"%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})


@dataclass(frozen=True)
class Scope:
    """What all blocks of a kernel share.

    Attributes:
        param_offsets: of each kernel parameter in the parameter block.
        variable_addresses: of module-scope global and const variables.
        namespace: globals of the generated code: constants and functions, filled while it is written.
        registers: number of each register.
        compute: compute capability, as 90.
        has_fences: between threads: __threadfence and its kin.
    """

    function: Function
    layout: Layout
    param_offsets: Mapping[str, int]
    variable_addresses: Mapping[str, int]
    namespace: dict[str, Any]
    registers: dict[str, int]
    compute: int
    has_fences: bool = False
    smallest_shared: list[int] = field(default_factory=lambda: [16])


class BlockWriter:
    """The block being written.

    Attributes:
        site: of the instruction that is being written.
        end: what follows the block; the last instruction sets it.
        extra: expression of the block's extra result.
        threads: name of the active set in the code: ``A``, or a part of it under a guard.
    """

    def __init__(self, scope: Scope, block: Block) -> None:
        self.scope = scope
        self.block = block
        self.lines: list[str] = []
        self.site = block.first_site
        self.end: Terminator = Fall(block.successors[0]) if block.successors else Fall(-1)
        self.extra = "None"
        self.threads = "A"
        self.has_collective = False
        self.last_collective = -1
        self.has_warpgroup = False
        self.has_carry = False
        self._cut: str | None = None  # the mask that operands are cut to
        self._select: str | None = None  # the predicate that results are selected by
        self._names = 0

    # -- text --------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(text)

    def fresh(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def let(self, expression: str) -> str:
        """A name for a value that is used more than once."""
        name = self.fresh()
        self.line(f"{name} = {expression}")
        return name

    def use(self, value: Any, name: str) -> str:
        """Make an object known to the generated code under a name."""
        known = self.scope.namespace.setdefault(name, value)
        if known is not value and known != value:
            raise AssertionError(f"two meanings of {name}")
        return name

    def constant(self, value: np.generic) -> str:
        name = f"K{value.dtype.char}{value.tobytes().hex()}".replace("?", "B")
        self.scope.namespace.setdefault(name, value)
        return name

    # -- registers ---------------------------------------------------------------------------------------

    def register(self, name: str) -> str:
        number = self.scope.registers.setdefault(name, len(self.scope.registers))
        return f"r{number}"

    def type_of(self, name: str) -> str:
        return self.scope.function.type_of(name)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, operand: Operand, type_: str) -> str:
        """Expression of an operand as a PTX type sees it (``NATURAL``), cut to the threads under a guard."""
        dtype = NATURAL[type_]
        if isinstance(operand, Immediate):
            return self.constant(immediate(operand, dtype))
        if isinstance(operand, Symbol):
            return self.constant(scalar(self.symbol_address(operand, type_), dtype))
        if isinstance(operand, Special):
            return self._special(operand, dtype)
        if isinstance(operand, Register):
            return self._register(operand, dtype)
        if isinstance(operand, Vector) and len(operand.items) == 1:
            return self.read(operand.items[0], type_)
        raise self.not_modelled(f"operand {operand}")

    def _special(self, operand: Special, dtype: str) -> str:
        if operand.name in CLOCKS:
            expression = f"M.clock({dtype!r})"
        elif operand.name in SPECIALS:
            # Special registers are unsigned, as far as a wider register can tell.
            have = storage(SPECIALS[operand.name])
            expression = convert_storage(f"A.special({operand.name!r})", have, dtype, "b32")
        else:
            raise self.not_modelled(operand.name)
        return f"cut({expression}, {self._cut})" if self._cut else expression

    def _register(self, operand: Register, dtype: str) -> str:
        kept = storage(self.type_of(operand.name))
        name = self.register(operand.name)
        if self._cut:
            name = f"cut({name}, {self._cut})"
        if operand.negated:
            name = f"(~{name})"
        return convert_storage(name, kept, dtype)

    def symbol_address(self, symbol: Symbol, type_: str) -> int:
        scope = self.scope
        for table in (scope.layout.addresses, scope.variable_addresses):
            if symbol.name in table:
                return table[symbol.name] + symbol.offset
        if symbol.name in scope.param_offsets:
            return PARAM_WINDOW + scope.param_offsets[symbol.name] + symbol.offset
        raise self.not_modelled(f"the name {symbol.name}")

    def address(self, operand: Operand, space: str) -> str:
        """Expression of an address: int64, or int32 and up for shared and local ones."""
        if not isinstance(operand, Address):
            raise self.not_modelled(f"operand {operand} as an address")
        if operand.base is None:
            return self.constant(np.int64(operand.offset))
        if isinstance(operand.base, Symbol):
            return self.constant(np.int64(self.symbol_address(operand.base, "s64") + operand.offset))
        # A 32-bit register that holds an address is unsigned; shared and local ones are small, so int32 will do.
        small = space in ("shared", "local")
        width = item_bytes(storage(self.type_of(operand.base.name)))
        text = self.read(operand.base, "s64" if width == 8 else "s32" if small else "u32")
        if width == 4 and not small:
            text = f"{text}.astype('i8')"
        if operand.offset:
            kind = np.int64 if width == 8 or not small else np.int32
            text = f"({text} + {self.constant(kind(operand.offset))})"
        return text

    # -- writing -----------------------------------------------------------------------------------------

    def write(self, operand: Operand, type_: str, expression: str) -> None:
        """Give an operand a value of a PTX type. Under a guard, threads that it shuts out keep what they have."""
        if isinstance(operand, Vector) and len(operand.items) == 1:
            operand = operand.items[0]
        if isinstance(operand, Sink):
            self.line(expression)
            return
        if not isinstance(operand, Register):
            raise self.not_modelled(f"operand {operand} as a result")
        kept = storage(self.type_of(operand.name))
        name = self.register(operand.name)
        value = convert_storage(f"({expression})", NATURAL[type_], kept, type_)
        if self._select:
            value = f"sel({self._select}, {value}, {name})"
        elif self._cut:
            value = f"merge({self._cut}, {value}, {name}, A)"
        self.line(f"{name} = {value}")

    def carry(self, expression: str) -> None:
        """Set the carry flag, which lives within the block."""
        if self._select and not self.has_carry:
            self.line(f"cc = {self.constant(np.False_)}")
        self.line(f"cc = sel({self._select}, {expression}, cc)" if self._select else f"cc = {expression}")
        self.has_carry = True

    def assign(self, name: str, expression: str) -> None:
        """Give a variable of the code a value for the threads under the guard."""
        self.line(f"{name} = merge({self._cut}, {expression}, {name}, A)" if self._cut else f"{name} = {expression}")

    def write_all(self, operand: Operand, type_: str, values: str) -> None:
        """Give the registers of a vector the members of a tuple."""
        items = operand.items if isinstance(operand, Vector) else (operand,)
        name = self.let(values)
        for i, item in enumerate(items):
            if not isinstance(item, Sink):
                self.write(item, type_, f"{name}[{i}]")

    # -- guards ------------------------------------------------------------------------------------------

    @contextmanager
    def selecting(self, guard: Register | None) -> Iterator[None]:
        """For instructions without side effects: computed for everybody, kept where the guard holds."""
        if guard is not None:
            self._select = self.let(self.read(guard, "pred"))
        try:
            yield
        finally:
            self._select = None

    @contextmanager
    def guarded(self, guard: Register | None) -> Iterator[None]:
        """For instructions with side effects: run by the threads of the guard only, as ``self.threads``."""
        if guard is None:
            yield
            return
        part, mask = self.fresh(), self.fresh()
        self.line(f"{part}, {mask} = guard(A, {self.read(guard, 'pred')})")
        self.line(f"if {part} is not None:")
        outer, self.lines = self.lines, []
        self.threads, self._cut = part, mask
        try:
            yield
        finally:
            inner, self.lines = self.lines, outer
            self.lines += [f"    {text}" for text in inner] or ["    pass"]
            self.threads, self._cut = "A", None

    def collective(self) -> None:
        """The instruction wants the lanes of a warp together."""
        self.has_collective = True
        self.last_collective = self.site

    def note_shared(self, size: int) -> None:
        """A shared access of so many bytes: the shadow's granule is the smallest."""
        self.scope.smallest_shared[0] = min(self.scope.smallest_shared[0], size)

    def not_modelled(self, what: str) -> Fault:
        return Fault("not_modelled", f"{what} is not modelled", self.site)


def immediate(operand: Immediate, dtype: str) -> np.generic:
    """A constant as a type sees it: float patterns keep their value or, read as an integer, their bits."""
    if operand.kind == "int":
        return scalar(operand.value, dtype)
    bits = from_bits(operand.value, "f4" if operand.kind == "f32" else "f8")
    if np.dtype(dtype).kind == "f":
        return np.dtype(dtype).type(bits)  # type: ignore[no-any-return]
    return scalar(operand.value, dtype)


def convert_storage(text: str, have: str, want: str, type_: str = "") -> str:
    """An expression of one NumPy type as another: the same bits, cut to a narrower width or extended to a wider one."""
    if have == want:
        return text
    have_bytes, want_bytes = item_bytes(have), item_bytes(want)
    if have_bytes == want_bytes:
        if "?" in (have, want):
            return f"{text}.astype({want!r})"
        return f"{text}.view({want!r})"
    if have[0] == "f":
        text, have = f"{text}.view('u{have_bytes}')", f"u{have_bytes}"
    if have in ("i4", "i2") and type_.startswith("b"):
        text, have = f"{text}.view('u{have_bytes}')", f"u{have_bytes}"
    # NumPy extends by the sign of what it has.
    whole = want if want[0] in "iu" else f"u{want_bytes}"
    text = f"{text}.astype({whole!r})"
    return text if whole == want else f"{text}.view({want!r})"
