"""Whether the rows of a tile are a box of a row-major matrix whose bounds are those of the guard: what TMA copies.

The place of an element, in elements from a parameter, has to be ``y · pitch + x``, the guard exactly ``x < columns``
and ``y < rows``, and what lies outside zero: then the box that TMA copies, zeros outside of the matrix included, is
what the copy writes, byte for byte. Padding of the shared rows is copied along: nothing reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tilewright.kloop.affine import Monomial
from tilewright.kloop.forms import Form
from tilewright.kloop.kernel import Refusal, SharedArray
from tilewright.kloop.lattice import Lattice
from tilewright.kloop.row_map import Box
from tilewright.source import ir
from tilewright.source.c_types import IntKind, int_kind, size_of

if TYPE_CHECKING:
    import numpy as np

ROW_ALIGNMENT_BYTES = 16  # an H200 takes any other first column for an illegal instruction
MAX_BOX = 256  # CUDA Driver API, cuTensorMapEncodeTiled: boxDim
TARGET_ALIGNMENT_BYTES = 128  # PTX ISA, cp.async.bulk.tensor: of the place in shared memory


@dataclass(frozen=True)
class Comparison:
    """A comparison of a guard that has to be true: ``small < large``, or ``<=`` where not ``strict``.

    ``distance``: small minus large. ``signed``: certainly compared as signed integers.
    """

    small: ir.Expr
    large: ir.Expr
    strict: bool
    distance: Form
    signed: bool


@dataclass(frozen=True)
class Steady:
    """What is known of the K-loop's variable: the constants that it starts from and steps by; None where not known."""

    start: int | None
    step: int | None

    @property
    def positive(self) -> bool:
        """It never falls below zero."""
        return self.start is not None and self.start >= 0 and (self.step or 0) > 0

    def remainder(self, of: int) -> int | None:
        """What is left when it is divided, where that is always the same."""
        return self.start % of if self.start is not None and self.step is not None and self.step % of == 0 else None


class _Site(Protocol):
    @property
    def guard(self) -> ir.Expr | None: ...
    @property
    def fills_zero(self) -> bool: ...
    @property
    def source(self) -> ir.Expr: ...


class _Runs(Protocol):
    @property
    def base(self) -> ir.Name: ...
    @property
    def points(self) -> np.ndarray: ...
    @property
    def shared(self) -> np.ndarray: ...
    @property
    def source(self) -> Form: ...
    @property
    def row_bytes(self) -> int: ...


def box_of(
    site: _Site,
    array: SharedArray,
    lattice: Lattice,
    runs: _Runs,
    compared: list[Comparison] | str,
    no: Callable[[str], Refusal],
    text: bytes,
    loop: Steady,
) -> Box | Refusal:
    """The box that the rows of a site are; else why they are none."""
    found = _Boxer(lattice, text, loop).box(site, array, runs, compared)
    return no(found) if isinstance(found, str) else found


class _Boxer:
    def __init__(self, lattice: Lattice, text: bytes, loop: Steady) -> None:
        self.l = lattice
        self.text = text
        self.loop = loop

    def box(self, site: _Site, array: SharedArray, runs: _Runs, compared: list[Comparison] | str) -> Box | str:
        place = self._from_parameter(site.source)
        if place is None:
            return "the tile is not read from a pointer parameter that stays where it is"
        pointer, offset = place
        element = size_of(pointer.type_text, self.l.constants.aliases)
        pitch = self._pitch(runs.source)
        if element is None or pitch is None:
            return "from row to row the place in global memory does not move by a parameter"
        split = _split(offset, pitch, element)
        if split is None:
            return "the place in global memory is not `row * pitch + column`"
        y, x = split
        shape = self._shape(array, runs, element)
        if isinstance(shape, str):
            return shape
        if isinstance(compared, str):
            return compared
        if compared and not site.fills_zero:
            return "what lies outside of the matrix is not filled with zeros"
        columns, rows = self._bound(compared, x), self._bound(compared, y)
        if columns is None or rows is None or len(compared) != 2:
            return "the guard is not exactly `row < rows && column < columns`"
        names = [self._host_symbol(m) for m in pitch]
        if any(n is None for n in names):
            return "the pitch of the matrix is not made of the kernel's parameters"
        step = " * ".join(n for n in names if n is not None)
        start = int(runs.points[0])
        origin = (self._text_at(x, start), self._text_at(y, start))
        if origin[0] is None or origin[1] is None:
            return "the first row and column of the tile cannot be written down"
        needs = self._needs(columns, step, _lanes(site, self.l, element), element)
        # Coordinates are ints, whatever the guard compares.
        wide = [c for c in compared if self.l.kind(c.large) != IntKind(32, False)]
        needs += tuple(f"{bound} <= 2147483647" for bound in dict.fromkeys((columns, rows)) if wide)
        checks = tuple(f"{t} >= 0" for t, f in zip(origin, (x, y), strict=True) if not self._nonnegative(f, start))
        lanes = ROW_ALIGNMENT_BYTES // element
        beside = self._beside(x, start, lanes)
        if beside:
            return f"the box begins {beside * element} bytes behind a multiple of {ROW_ALIGNMENT_BYTES} along its rows"
        if beside is None:
            checks += (f"({origin[0]}) % {lanes} == 0",)
        return Box(pointer.name, element, *shape, columns, rows, step, origin[0], origin[1], needs, checks)

    def _from_parameter(self, source: ir.Expr) -> tuple[ir.Symbol, Form] | None:
        """The parameter that a place hangs on, through local pointers, and the bytes from there at every point."""
        place = self.l.place(source)
        for _ in range(8):
            symbol = self.l.symbols[place.base.symbol] if place is not None and place.base.symbol is not None else None
            if place is None or symbol is None or symbol.id in self.l.uniformity.changed:
                return None
            if symbol.kind == "param":
                return symbol, place.offset
            init = self.l.initial(symbol.id)
            inner = self.l.address(init) if init is not None else None
            place = None if inner is None else type(inner)(inner.base, inner.offset.plus(place.offset))
        return None

    def _pitch(self, source: Form) -> Monomial | None:
        """The product of symbols by which rows lie apart."""
        moving = [m for m, c in source.terms.items() if len(c) > 1 and c[1] != c[0]]
        return moving[0] if len(moving) == 1 and moving[0] else None

    def _shape(self, array: SharedArray, runs: _Runs, element: int) -> tuple[int, int] | str:
        """Elements of the box along a row, and rows."""
        first, pitch = int(runs.shared[0]), int(runs.shared[1] - runs.shared[0])
        height = len(runs.points)
        if first % TARGET_ALIGNMENT_BYTES or array.total_bytes % TARGET_ALIGNMENT_BYTES:
            return f"a stage of `{array.name}` is no multiple of {TARGET_ALIGNMENT_BYTES} bytes"
        if pitch < runs.row_bytes or first + pitch * height > array.total_bytes or pitch % element:
            return "the tile's rows are not laid out one after the other in shared memory"
        if pitch // element > MAX_BOX or height > MAX_BOX:
            return f"the tile is {height} rows of {pitch // element} elements; a box has at most {MAX_BOX} of each"
        return pitch // element, height

    def _bound(self, compared: list[Comparison], coordinate: Form) -> str | None:
        """What the coordinate has to stay below, as an expression over the parameters."""
        for c in compared:
            small = self.l.form(c.small)
            rest = small.plus(coordinate, -1) if small is not None else None
            if rest is None or rest.symbols() or rest.number_part().any():
                continue
            bound = self._host(c.large)
            return bound if bound is None or c.strict else f"{bound} + 1"
        return None

    def _needs(self, columns: str, pitch: str, lanes: int, element: int) -> tuple[str, ...]:
        out = [] if columns == pitch else [f"{columns} <= {pitch}"]
        # One guard for several elements: they have to be inside or outside together.
        if lanes > 1 and (columns != pitch or lanes * element > 16):
            out.append(f"({columns}) % {lanes} == 0")
        return tuple(out)

    # -- expressions over the parameters ---------------------------------------------------------------
    def _host(self, expr: ir.Expr) -> str | None:
        value = self.l.constants.evaluate(expr)
        if value is not None:
            return str(value)
        match expr:
            case ir.Name(symbol=int(s)):
                return self._host_name(s)
            case ir.Cast(type_text=t, operand=x):
                kind = int_kind(t, self.l.constants.aliases)
                return self._host(x) if kind is not None and kind.bits >= 32 else None
            case ir.Binary(op="+" | "-" | "*" as op, left=a, right=b):
                left, right = self._host(a), self._host(b)
                return None if left is None or right is None else f"({left} {op} {right})"
        return None

    def _host_name(self, s: int) -> str | None:
        symbol = self.l.symbols[s]
        kind = int_kind(symbol.type_text, self.l.constants.aliases)
        if symbol.pointers or symbol.dims or s in self.l.uniformity.changed or kind is None or kind.bits < 32:
            return None
        if symbol.kind == "param":
            return symbol.name
        init = self.l.initial(s)
        return self._host(init) if init is not None else None

    def _host_symbol(self, atom: str) -> str | None:
        _, mark, number = atom.rpartition("#")
        return self._host_name(int(number)) if mark and number.isdigit() else None

    # -- the box's origin ----------------------------------------------------------------------------
    def _text_at(self, form: Form, point: int) -> str | None:
        parts: list[str] = []
        for monomial, factors in form.terms.items():
            factor = int(factors[point])
            texts = [self._symbol_text(a) for a in monomial]
            if factor and None not in texts:
                words = [t for t in texts if t is not None]
                parts.append(" * ".join([*([str(factor)] if factor != 1 or not words else []), *words]))
        return " + ".join(parts[::-1]).replace("+ -", "- ") or "0"

    def _symbol_text(self, atom: str) -> str:
        if atom.startswith("<"):
            start, end = (int(n) for n in atom[1:-1].split(":"))
            return f"({' '.join(self.text[start:end].decode().split())})"
        return atom.partition("#")[0]

    def _nonnegative(self, form: Form, point: int) -> bool:
        return all(int(c[point]) >= 0 and all(self._never_negative(a) for a in m) for m, c in form.terms.items())

    def _beside(self, form: Form, point: int, lanes: int) -> int | None:
        """What is left when a column is divided by ``lanes``; None where that is known at run time only."""
        out = 0
        for monomial, factors in form.terms.items():
            factor = int(factors[point])
            for atom in monomial:
                left = self._remainder(atom, lanes)
                if left is None and factor % lanes:
                    return None
                factor *= left or 0
            out += factor
        return out % lanes

    def _remainder(self, atom: str, lanes: int) -> int | None:
        _, mark, number = atom.rpartition("#")
        if not mark or not number.isdigit():
            return None
        if int(number) == self.l.steady:
            return self.loop.remainder(lanes)
        init = self.l.initial(int(number))
        form = self.l.form(init) if init is not None else None
        return None if form is None else self._beside(form, 0, lanes)

    def _never_negative(self, atom: str) -> bool:
        if atom.startswith(("blockIdx.", "gridDim.")):
            return True
        _, mark, number = atom.rpartition("#")
        if not mark or not number.isdigit():
            return False
        s = int(number)
        if s == self.l.steady:
            return self.loop.positive
        init = self.l.initial(s)
        return init is not None and self._is_nonnegative(init)

    def _is_nonnegative(self, expr: ir.Expr) -> bool:
        form = self.l.form(expr)
        return form is not None and self._nonnegative(form, 0)


def _split(offset: Form, pitch: Monomial, element: int) -> tuple[Form, Form] | None:
    """(row, column) of places in bytes: what is multiplied by the pitch, and the rest, in elements."""
    zero = 0 * offset.number_part()
    y: dict[Monomial, np.ndarray] = {(): zero}
    x: dict[Monomial, np.ndarray] = {(): zero}
    for monomial, factors in offset.terms.items():
        if (factors % element).any():
            return None
        rest = list(monomial)
        try:
            for atom in pitch:
                rest.remove(atom)
        except ValueError:
            x[monomial] = factors // element
        else:
            y[tuple(rest)] = factors // element
    if any((c != c[0]).any() for part in (x, y) for m, c in part.items() if m):
        return None
    return Form(y), Form(x)


def _lanes(site: _Site, lattice: Lattice, element: int) -> int:
    """Elements that one guard decides about."""
    width = lattice.types.bytes_of(site.source)
    return max(1, (width or element) // element)
