"""The load phase through registers: its fetch half and its store half."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kloop.kernel import Bump, Copy, CopyLoop, Fetch, LaneStore, LoadItem, Pure, Widening
from tilewright.rewrite.context import Context, flat
from tilewright.rewrite.cp_async_copies import strided_open
from tilewright.rewrite.narrow import narrow_fill
from tilewright.rewrite.vectors import VectorLoop, stride, trips
from tilewright.source import ir
from tilewright.source.edits import Edit, indent_at, indented, line_end, line_start
from tilewright.source.places import root


class Halves:
    """The load phase of one kernel cut in two: loads into registers, stores from them."""

    def __init__(self, context: Context, single: bool) -> None:
        self.c = context
        self.single = single
        n = context.names
        self.fetch_tile = n.fresh("fetch_tile")
        self.store_tile = n.fresh("store_tile")
        self.stage = n.fresh("stage")
        self.more = n.fresh("has_next")
        self.next_k = n.fresh(f"{context.kernel.loop.var.name}_next")
        self.first = n.fresh("first")
        self.pass_name = n.fresh("pass")
        self.vector = n.fresh("vector")
        self.registers: dict[int, str] = {}  # byte offset of a copy or fetch → the registers it waits in
        self._fetched: dict[int, str] = {}  # symbol of a fetch → the same
        arrays = {a.symbol: a.name for a in context.kernel.staged}
        for item in flat(context.kernel.loads):
            if isinstance(item, Copy):
                self.registers[item.stmt.span.start] = n.fresh(f"{arrays[item.array]}_next")
            elif isinstance(item, Fetch):
                name = self.registers[item.stmt.span.start] = n.fresh(f"{item.symbol.name}_next")
                self._fetched[item.symbol.id] = name

    # -- registers --------------------------------------------------------------------------------------
    def register_lines(self) -> list[str]:
        out: list[str] = []
        for item in self.c.kernel.loads:
            vector = self._vector(item) if isinstance(item, CopyLoop) else None
            if vector is not None:
                out += [f"uint4 {self._register(copy)}[{vector.trips()}];" for copy in vector.copies]
            elif isinstance(item, CopyLoop):
                count = trips(self.c, item)
                entries = [i for i in item.body if isinstance(i, Copy | Fetch)]
                out += [f"{_register_type(i)} {self._register(i)}[{count}];" for i in entries]
            elif isinstance(item, Copy | Fetch):
                out.append(f"{_register_type(item)} {self._register(item)};")
        return out

    def _register(self, item: Copy | Fetch) -> str:
        return self.registers[item.stmt.span.start]

    def _vector(self, item: CopyLoop) -> VectorLoop | None:
        """The widened form of a copy loop, where its source can still be named when the tile is stored."""
        if not isinstance(item.widening, Widening):
            return None
        v = VectorLoop(self.c, item, item.widening)
        pures = [*item.setup, *v.pures]
        return None if any(self.moved() & self.needs(copy, pures) for copy in v.copies) else v

    def moved(self) -> set[int]:
        """Names that are advanced with the loads."""
        kernel = self.c.kernel
        return {i.symbol for i in (*flat(kernel.loads), *kernel.loop.bumps_after) if isinstance(i, Bump)}

    def needs(self, entry: Copy | LaneStore, pures: Iterable[Pure], whole: bool = True) -> set[int]:
        """Every name that storing an entry rests on; ``whole``: its source and guard too."""
        need = self.c.reads([entry.stmt] if whole else [entry.target])
        return need | self.c.reads([p.stmt for p in self.c.closure(need, [*self.c.top_pures(), *pures])])

    def store_reads(self) -> set[int]:
        """Every name that the store half rests on."""
        need: set[int] = set()
        for item in self.c.kernel.loads:
            inner: Iterable[LoadItem] = item.body if isinstance(item, CopyLoop) else (item,)
            vector = isinstance(item, CopyLoop) and self._vector(item) is not None
            pures = [i for i in inner if isinstance(i, Pure)]
            if isinstance(item, CopyLoop):
                pures = [*item.setup, *pures]
            for entry in inner:
                if isinstance(entry, Copy | LaneStore):
                    need |= self.needs(entry, pures, whole=vector)
            if isinstance(item, CopyLoop):
                header = self.c.reads([item.first, item.bound, item.stride])
                header |= self.c.reads([p.stmt for p in self.c.closure(header, item.setup)])
                need |= self._with_pures(header)
        return need

    def _with_pures(self, need: set[int]) -> set[int]:
        return need | self.c.reads([p.stmt for p in self.c.closure(need, self.c.top_pures())])

    # -- fetching -----------------------------------------------------------------------------------------
    def fetch_lines(self) -> list[str]:
        edits = [e for item in self.c.kernel.loads for e in self._fetch(item)]
        return [*indented(self._cleared(), self.c.inner), *self.c.load_lines(edits)]

    def _cleared(self) -> list[str]:
        """Vector registers that only some threads load are cleared first, all of them.

        A register that a conditional load may have left in flight must be waited for before it is loaded again; without
        this the compiler waits between the loads, one after the other.
        """
        out: list[str] = []
        for item in self.c.kernel.loads:
            v = self._vector(item) if isinstance(item, CopyLoop) else None
            for copy in v.copies if v is not None else ():
                clear = f"for (uint4 &{self.vector} : {self._register(copy)}) {self.vector} = make_uint4(0, 0, 0, 0);"
                out += ["#pragma unroll", clear]
        if out:
            out.insert(0, "// Cleared first: loads into registers that a branch may have skipped wait for each other.")
        return out

    def _fetch(self, item: LoadItem, index: str = "") -> list[Edit]:
        match item:
            case Fetch():
                assert item.symbol.init is not None
                line = f"{self._register(item)}{index} = {self.c.source(item.symbol.init)};"
                return [Edit(item.stmt.span.start, item.stmt.span.end, self._block(item.stmt, [line]))]
            case LaneStore():
                return [self._dropped(item.stmt)]
            case Copy():
                return self._fetch_copy(item, f"{self._register(item)}{index}")
            case CopyLoop():
                v = self._vector(item)
                if v is not None:
                    return [
                        Edit(item.stmt.span.start, item.stmt.span.end, self._block(item.stmt, self._fetch_widened(v)))
                    ]
                inner = [e for entry in item.body for e in self._fetch(entry, f"[{self._pass_index(item)}]")]
                return [*self._header(item), *inner]
        return []

    def _block(self, stmt: ir.Stmt, lines: list[str]) -> str:
        return "\n".join(indented(lines, indent_at(self.c.kernel.text, stmt.span.start))).lstrip()

    def _dropped(self, stmt: ir.Stmt) -> Edit:
        """A statement that goes, with its line where it stands alone on it."""
        text = self.c.kernel.text
        start, end = line_start(text, stmt.span.start), line_end(text, stmt.span.end)
        tail = text[stmt.span.end : end].strip()
        alone = not text[start : stmt.span.start].strip() and (not tail or tail.startswith(b"//"))
        inside = start >= self.c.kernel.load_span.start and end < self.c.kernel.load_span.end
        if not alone or not inside:
            return Edit(stmt.span.start, stmt.span.end, "")
        return Edit(start, text.find(b"\n", end) + 1, "")

    def _fetch_copy(self, item: Copy, register: str) -> list[Edit]:
        """The statement with its place in shared memory replaced by the register, in both branches of an if.

        What a conversion is made of is held as it was loaded: the conversion would wait for it here.
        """
        if item.held is not None:
            whole = item.held.whole.span
            line = f"{register} = {self.c.source(item.held.loaded)}"
            return [Edit(item.target.span.start, whole.end, line)]
        stores = [n.left for n in ir.walk(item.stmt) if isinstance(n, ir.Assign)]
        targets = [t for t in stores if (name := root(t)) is not None and name.symbol == item.array]
        return [*(Edit(t.span.start, t.span.end, register) for t in targets), *self._narrow_fill(item)]

    def _narrow_fill(self, item: Copy) -> list[Edit]:
        """The fill of bytes as a byte: see ``rewrite.narrow``."""
        chosen = (n for n in ir.walk(item.stmt) if isinstance(n, ir.Ternary) and item.fill in (n.then, n.otherwise))
        value = next(chosen, None)
        return [] if item.converts else narrow_fill(value, item.type_text, self.c.kernel.aliases)

    def _pass_index(self, item: CopyLoop) -> str:
        if item.first_value is None:
            return self.pass_name
        if item.first_value == 0 and item.stride_value == 1:
            return item.var.name
        from_first = item.var.name if item.first_value == 0 else f"({item.var.name} - {self.c.operand(item.first)})"
        return from_first if item.stride_value == 1 else f"{from_first} / {stride(self.c, item)}"

    def _header(self, item: CopyLoop) -> list[Edit]:
        c, stmt = self.c, item.stmt
        indent = indent_at(c.kernel.text, stmt.span.start)
        pragma = not c.pragma_above(stmt)
        if item.first_value is not None:
            return [Edit(stmt.span.start, stmt.span.start, f"#pragma unroll\n{indent}")] if pragma else []
        head = self._block(stmt, strided_open(c, item, self.pass_name, pragma))
        return [Edit(stmt.span.start, stmt.header.end, head), Edit(stmt.span.end, stmt.span.end, f"\n{indent}}}")]

    def _fetch_widened(self, v: VectorLoop) -> list[str]:
        """Whole vectors only: the ragged rest is copied when the tile is stored, so that no load waits for it here."""
        c, u = self.c, self.c.unit
        loads = [
            f"{u}{self._register(x)}[{self.pass_name}] = *reinterpret_cast<const uint4 *>({c.address(x.source)});"
            for x in v.copies
        ]
        inner = [*v.indices(self.first), f"if ({v.whole()}) {{", *loads, "}"]
        opened = v.open(self.pass_name, self.first)
        return [*(opened[1:] if c.pragma_above(v.loop.stmt) else opened), *indented(inner, u * 2), *v.close()]

    # -- storing --------------------------------------------------------------------------------------------
    def store_lines(self) -> list[str]:
        """The store half, without indentation."""
        c = self.c
        out: list[str] = []
        for item in c.kernel.loads:
            match item:
                case Copy():
                    out.append(f"{c.source(item.target)} = {self._stored(item, self._register(item))};")
                case LaneStore():
                    out.append(self._lane_store(item, ""))
                case CopyLoop():
                    v = self._vector(item)
                    loop = self._store_widened(v) if v is not None else self._store_loop(item)
                    out += self._set_up(item, loop, v is not None)
        needed = c.closure(self.store_reads(), c.top_pures())
        return [*(c.source(p.stmt) for p in needed), *out]

    def _store_widened(self, v: VectorLoop) -> list[str]:
        c, u = self.c, self.c.unit
        stores = [
            f"*reinterpret_cast<uint4 *>({c.address(x.target)}) = {self._register(x)}[{self.pass_name}];"
            for x in v.copies
        ]
        inner = [
            *v.indices(self.first),
            # Stored on every path: a load that only some paths consume makes the next one wait for it.
            *stores,
            f"if (!({v.whole()})) {{",
            f"{u}// The ragged edge, or a row that is not 16-byte aligned.",
            *indented(v.element_loop(self.first), u),
            "}",
        ]
        return [*v.open(self.pass_name, self.first), *indented(inner, u * 2), *v.close()]

    def _set_up(self, item: CopyLoop, loop: list[str], whole: bool) -> list[str]:
        """A copy loop in a block of its own, with what it needs of what that computes in front."""
        if not item.setup:
            return loop
        c = self.c
        inner = [i for i in item.body if isinstance(i, Copy | LaneStore)]
        need = c.reads([item.first, item.bound, item.stride])
        need |= c.reads([i.stmt for i in item.body]) if whole else c.reads([i.target for i in inner])
        need |= c.reads([p.stmt for p in c.closure(need, [i for i in item.body if isinstance(i, Pure)])])
        setup = [c.source(p.stmt) for p in c.closure(need, item.setup)]
        return ["{", *indented([*setup, *loop], c.unit), "}"]

    def _lane_store(self, item: LaneStore, index: str) -> str:
        lane = f".{item.lane}" if item.lane else ""
        return f"{self.c.source(item.target)} = {self._fetched[item.fetched]}{index}{lane};"

    def _stored(self, item: Copy, register: str) -> str:
        """The value that a register stands for, converted where it was held as it was loaded."""
        if item.held is None:
            return register
        whole, loaded, text = item.held.whole.span, item.held.loaded.span, self.c.kernel.text
        before, after = text[whole.start : loaded.start].decode(), text[loaded.end : whole.end].decode()
        return "".join(before.split()) + register + "".join(after.split())

    def _store_loop(self, item: CopyLoop) -> list[str]:
        c, u = self.c, self.c.unit
        index = f"[{self._pass_index(item)}]"
        stores = [i for i in item.body if isinstance(i, Copy | LaneStore)]
        pures = [i for i in item.body if isinstance(i, Pure)]
        body = [c.source(p.stmt) for p in c.closure(c.reads([i.target for i in stores]), pures)]
        for entry in stores:
            if isinstance(entry, LaneStore):
                body.append(self._lane_store(entry, index))
            else:
                body.append(f"{c.source(entry.target)} = {self._stored(entry, f'{self._register(entry)}{index}')};")
        if item.first_value is not None:
            span = item.stmt.header
            header = c.kernel.text[item.stmt.span.start : span.end].decode().replace("\r", "")
            return ["#pragma unroll", f"{header} {{", *indented(body, u), "}"]
        head = strided_open(c, item, self.pass_name, True)
        return [*head[:-1], head[-1] + " {", *indented(body, u * 2), u + "}", "}"]


def _register_type(item: Copy | Fetch) -> str:
    held = item.held if isinstance(item, Copy) else None
    return item.type_text if held is None else held.type_text
