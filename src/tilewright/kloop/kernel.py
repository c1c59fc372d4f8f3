"""What reading a source yields: a :class:`TiledKernel`, or a :class:`Refusal` that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tilewright.source import ir
from tilewright.source.constants import Evaluable
from tilewright.source.line_map import LineMap, original_line

if TYPE_CHECKING:
    from tilewright.kloop.load_stream import LoadStream
    from tilewright.kloop.row_map import RowMap

RefusalCode = Literal[
    "no_k_loop", "already_pipelined", "baseline_race", "loop_carried_global", "loop_carried_shared", "may_alias",
    "unsupported_width", "converts_type", "not_contiguous", "misaligned", "budget_exceeded", "needs_arch",
    "divergent_barrier", "not_understood",
]  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """A reason, with a code and a source line, why a rewrite is not made. A value, not an exception."""

    code: RefusalCode
    message: str
    line: int | None = None
    hint: str = ""


@dataclass(frozen=True)
class SharedArray:
    """A ``__shared__`` array.

    Attributes:
        dims: elements per dimension, outermost first, padding included.
        alignment: the text of its ``__align__``, or "".
        declaration: span of the whole declaration statement; ``alone`` when it declares nothing else.
        pool: symbol of the dynamic buffer that it is a view of, ``offset_bytes`` behind its start; None where it is
            an array of its own.
    """

    symbol: int
    name: str
    type_text: str
    element_bytes: int
    dims: tuple[int, ...]
    alignment: str
    declaration: ir.Span
    alone: bool
    line: int
    pool: int | None = None
    offset_bytes: int = 0

    @property
    def elements(self) -> int:
        out = 1
        for d in self.dims:
            out *= d
        return out

    @property
    def total_bytes(self) -> int:
        return self.elements * self.element_bytes


# -- the load phase, statement by statement ----------------------------------------------------------


@dataclass(frozen=True)
class Pure:
    """Locals computed from indices only: they can be computed again anywhere."""

    stmt: ir.Declare


@dataclass(frozen=True)
class Bump:
    """``A += BK``: moves with the load stream."""

    stmt: ir.Do
    symbol: int


@dataclass(frozen=True)
class Fetch:
    """``float4 tmp = <global>;``: a register of type ``type_text`` that later statements of the load phase store."""

    stmt: ir.Declare
    symbol: ir.Symbol
    source: ir.Expr
    guard: ir.Expr | None
    fill: ir.Expr | None
    type_text: str
    width_bytes: int
    fills_zero: bool = False


@dataclass(frozen=True)
class Held:
    """A loaded value before its conversion: ``guard ? x : 0.0f`` of ``S[…] = __float2half(guard ? x : 0.0f);``.

    Attributes:
        whole: the converted value. loaded: the part of it that is held, of the type ``type_text``.
    """

    whole: ir.Expr
    loaded: ir.Expr
    type_text: str


@dataclass(frozen=True)
class Element:
    """How a copy makes one element of one element in global memory: ``__float2half(guard ? x : 0.0f)``.

    Every step is a conversion that rests on its operand alone, so the element may be loaded beside its neighbours.

    Attributes:
        value: the whole value. source: the lvalue in global memory, of the type ``type_text``, ``width_bytes`` wide.
        chosen: what stands for the element where it is read: ``source``, or a ``guard ? … : fill`` around it.
        kept: the branch of ``chosen`` that is taken then; the branches have one type, so nothing else changes.
        guard: None where every element is read.
    """

    value: ir.Expr
    source: ir.Expr
    chosen: ir.Expr
    kept: ir.Expr
    guard: ir.Expr | None
    type_text: str
    width_bytes: int


@dataclass(frozen=True)
class Copy:
    """``S[…] = <global>;`` with its guard and fill.

    Attributes:
        array: symbol of the staged array.
        target: the lvalue stored to. source: the global lvalue read.
        guard, fill: ``guard ? source : fill``; None where every element is copied.
        width_bytes: bytes of one such copy. type_text: the type that is moved.
        stmt: the statement; of a value that goes through a local, the block of those that load and store it.
        inverted: the source is read where the guard is false.
        converts: the value is changed or computed on the way; ``source`` is then the whole value.
        fills_zero: the fill is all zero bits.
        held: of a value that a conversion makes of one load: what is loaded, which registers can hold instead.
        element: of a value that conversions make of one element in global memory: those.
    """

    stmt: ir.Stmt
    array: int
    target: ir.Expr
    source: ir.Expr
    guard: ir.Expr | None
    fill: ir.Expr | None
    type_text: str
    width_bytes: int
    inverted: bool = False
    converts: bool = False
    fills_zero: bool = False
    held: Held | None = None
    element: Element | None = None


@dataclass(frozen=True)
class LaneStore:
    """``S[…] = tmp.x;``: one lane of a fetched register (or all of it, ``lane`` None)."""

    stmt: ir.Do
    array: int
    target: ir.Expr
    fetched: int
    lane: str | None
    width_bytes: int


@dataclass(frozen=True)
class Moving:
    """One side of a comparison in a guard, which grows inside a vector.

    Attributes:
        span: its text.
        distance: how far it moves from the first to the last element.
        loose: it needs parentheses before anything is added.
        may_wrap: it may be unsigned, so that the last element can pass where the first does not: test both.
    """

    span: ir.Span
    distance: int
    loose: bool
    may_wrap: bool


@dataclass(frozen=True)
class Widening:
    """What allows a loop over elements to become a loop over 16-byte vectors of ``elements`` elements."""

    elements: int
    guard_last: tuple[Moving, ...]


@dataclass(frozen=True)
class CopyLoop:
    """``for (i = first; i < bound; i += stride) { … }`` around copies.

    Attributes:
        first_value, bound_value, stride_value: where they are constants.
        setup: what the block around the loop computes in front of it.
        converting: of a loop whose copies convert: the same loop with copies of what they load, widened, or why not.
        trips: the most trips a thread makes; None where that is not a constant.
        widening: proof that 16-byte copies move the same bytes, or the refusal; None where nothing asks for it.
    """

    stmt: ir.For
    var: ir.Symbol
    first: ir.Expr
    bound: ir.Expr
    stride: ir.Expr
    first_value: int | None
    bound_value: int | None
    stride_value: int | None
    body: tuple[LoadItem, ...]
    trips: int | None = None
    widening: Widening | Refusal | None = None
    setup: tuple[Pure, ...] = ()
    converting: CopyLoop | Refusal | None = None

    @property
    def step_hidden(self) -> bool:
        """The stride is the one of ``++i``, which has no text."""
        return self.stride.span.within


LoadItem = Pure | Bump | Fetch | Copy | LaneStore | CopyLoop


@dataclass(frozen=True)
class KLoop:
    """The K-loop ``for (T k = first; k < bound; k += step)``.

    ``insert_at`` is where code may be put before it: in front of its pragma, if it has one. ``leading``: the second
    barrier stands at the top of the body, in front of the load phase.
    """

    stmt: ir.For
    var: ir.Symbol
    first: ir.Expr
    bound: ir.Expr
    step: ir.Expr
    step_value: int | None
    insert_at: int
    body: ir.Span
    first_barrier: ir.Span
    second_barrier: ir.Span
    compute: tuple[ir.Stmt, ...]
    bumps_after: tuple[Bump, ...]
    leading: bool = False


@dataclass(frozen=True)
class Tile:
    """Tile sizes in elements (None where meaningless), threads a block, the element type of each staged array."""

    bm: int | None
    bn: int | None
    bk: int | None
    dims: dict[str, tuple[int, ...]]
    threads: int | None
    elements: dict[str, str]


@dataclass(frozen=True)
class Probe:
    """A C++ constant expression that must hold.

    Attributes:
        at: the statement whose scope it is read in; ``wrap`` puts both into braces, else it follows the statement.
    """

    tag: str
    condition: str
    at: ir.Span
    wrap: bool
    line: int


@dataclass(frozen=True)
class Outside:
    """How the staged arrays are used outside the K-loop.

    Attributes:
        line: of the first use; None where there is none.
        uses: their names.
        refusal: why the arrays cannot be rings of stages. assumptions: what rings take for granted, for the receipt.
    """

    line: int | None = None
    uses: tuple[ir.Name, ...] = ()
    refusal: Refusal | None = None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class TiledKernel:
    """A kernel whose K-loop is understood.

    Attributes:
        text: the source bytes that every span points into.
        staged: the shared arrays that the load phase fills.
        elsewhere: line where a staged array is used outside the K-loop; None where it is not.
        assumptions: facts taken for granted, for the receipt.
        probes: facts that this reading rests on; the compiler confirms each of them.
        changed: symbols that are written anywhere except by their declaration.
        aliases: type names of the file.
        stores_before: memory is written in front of the K-loop.
        made_for: conditions on the template arguments and ``-D`` names that this reading holds for.
        unordered: why copies of one thread must land in the order they are written in; None where they need not.
        before: the file as it was handed in, where passes have brought the kernel into another form; else ``text``.
        steps: what those passes did. maps: from lines of ``text`` back to lines of ``before``.
        launch_shared_bytes: dynamic shared memory that the launch of ``text`` needs, where the passes changed it.
        stream: the load phase as a whole, where it could not be read statement by statement; ``loads`` is empty then.
        divergent_return: line of a ``return`` in front of the K-loop that some threads of a block may take and others
            not. Barriers wait for those that are left; a variant that counts arrivals or elects a thread must refuse.
        outside: uses of the staged arrays outside the K-loop.
        worth: functions whose calls can be worked out, for the trip count at given sizes.
    """

    text: bytes
    file: str
    name: str
    line: int
    params: tuple[tuple[str, str], ...]
    constants: dict[str, int]
    symbols: dict[int, ir.Symbol]
    shared: tuple[SharedArray, ...]
    staged: tuple[SharedArray, ...]
    loop: KLoop
    loads: tuple[LoadItem, ...]
    load_span: ir.Span
    compute_span: ir.Span
    tile: Tile
    elsewhere: int | None
    lines: dict[str, tuple[int, int]]
    assumptions: tuple[str, ...]
    probes: tuple[Probe, ...]
    changed: frozenset[int] = frozenset()
    aliases: dict[str, str] = field(default_factory=dict)
    unordered: Refusal | None = None
    stores_before: bool = False
    made_for: tuple[str, ...] = ()
    before: bytes = b""
    steps: tuple[str, ...] = ()
    launch_shared_bytes: int | None = None
    maps: tuple[LineMap, ...] = ()
    stream: LoadStream | None = None
    divergent_return: int | None = None
    outside: Outside = Outside()
    worth: dict[str, Evaluable] = field(default_factory=dict)
    # Of every staged array, by symbol: the rows that bulk copies can move, or why they cannot.
    rows: Mapping[int, tuple[RowMap, ...] | Refusal] = field(default_factory=dict)

    def line_of(self, offset: int) -> int:
        """The line, in the file as it was handed in, of a byte of ``text``."""
        return original_line(self.maps, self.text.count(b"\n", 0, offset) + 1)

    @property
    def handed_in(self) -> str:
        """The whole file as it was handed in: what a diff is made against."""
        return (self.before or self.text).decode()
