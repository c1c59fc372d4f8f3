"""The load phase through registers: its fetch half and its store half."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.rewrite.context import Context, flat
from tilewright.rewrite.edits import Edit, apply, indent_at, line_start, reindent
from tilewright.rewrite.vectors import VectorLoop
from tilewright.source import ir
from tilewright.source.kernel import Bump, Copy, CopyLoop, Fetch, LaneStore, LoadItem, Pure, Widening


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
        self.registers: dict[int, str] = {}  # byte offset of a copy → the registers it waits in
        arrays = {a.symbol: a.name for a in context.kernel.staged}
        for item in flat(context.kernel.loads):
            if isinstance(item, Copy):
                self.registers[item.stmt.span.start] = n.fresh(f"{arrays[item.array]}_next")
        self.held = self._held_names()

    def _held_names(self) -> dict[int, str]:
        """Names of fetched registers in the kernel's own scope: the old ones, unless they are taken there."""
        out: dict[int, str] = {}
        outer = {s.name for s in self.c.kernel.symbols.values() if s.depth <= 1}
        for item in self.c.kernel.loads:
            if isinstance(item, Fetch):
                name = item.symbol.name
                out[item.symbol.id] = self.c.names.fresh(f"{name}_next") if name in outer else name
        return out

    # -- registers --------------------------------------------------------------------------------------
    def register_lines(self) -> list[str]:
        out: list[str] = []
        for item in self.c.kernel.loads:
            match item:
                case Fetch():
                    kind = " ".join(w for w in item.symbol.type_text.split() if w != "const")
                    out.append(f"{kind} {self.held[item.symbol.id]};")
                case Copy():
                    out.append(f"{item.type_text} {self.registers[item.stmt.span.start]};")
                case CopyLoop(widening=Widening() as w) if self._vector(item) is not None:
                    v = VectorLoop(self.c, item, w)
                    out.append(f"uint4 {self.registers[v.copy.stmt.span.start]}[{v.trips()}];")
                case CopyLoop():
                    out += [
                        f"{i.type_text} {self.registers[i.stmt.span.start]}[{self._trips(item)}];"
                        for i in item.body
                        if isinstance(i, Copy)
                    ]
        return out

    def _vector(self, item: CopyLoop) -> VectorLoop | None:
        """The widened form of a copy loop, where its source can still be named when the tile is stored."""
        if not isinstance(item.widening, Widening):
            return None
        v = VectorLoop(self.c, item, item.widening)
        return None if self.moved() & self.needs(v.copy, v.pures) else v

    def moved(self) -> set[int]:
        kernel = self.c.kernel
        return {i.symbol for i in (*kernel.loads, *kernel.loop.bumps_after) if isinstance(i, Bump)}

    def needs(self, entry: Copy | LaneStore, pures: Iterable[Pure], whole: bool = True) -> set[int]:
        """Every name that storing an entry rests on; ``whole``: its source and guard too."""
        need = self.c.reads([entry.stmt] if whole else [entry.target])
        return need | self.c.reads([p.stmt for p in self.c.closure(need, [*self.c.top_pures(), *pures])])

    def _trips(self, item: CopyLoop) -> str:
        c = self.c
        bound, stride = c.operand(item.bound), c.operand(item.stride)
        if item.first_value == 0 and item.stride_value == 1:
            return c.source(item.bound)
        assert item.bound_value is not None
        assert item.stride_value is not None
        if item.first_value is not None:
            return str(item.trips)
        exact = item.bound_value % item.stride_value == 0
        return f"{bound} / {stride}" if exact else f"({bound} + {stride} - 1) / {stride}"

    # -- fetching -----------------------------------------------------------------------------------------
    def fetch_text(self) -> str:
        kernel = self.c.kernel
        edits = [e for item in kernel.loads for e in self._fetch(item)]
        body = apply(kernel.text, kernel.load_span, edits).lstrip("\n").rstrip()
        body = "\n".join(line for line in body.split("\n") if line.strip() != "\f")
        return "\n".join([*self._cleared(), body, *self.c.bumps()])

    def _cleared(self) -> list[str]:
        """Vector registers that only some threads load are cleared first, all of them.

        A register that a conditional load may have left in flight must be waited for before it is loaded again; without
        this the compiler waits between the loads, one after the other.
        """
        c = self.c
        out: list[str] = []
        for item in c.kernel.loads:
            v = self._vector(item) if isinstance(item, CopyLoop) else None
            if v is not None:
                register = self.registers[v.copy.stmt.span.start]
                out += [
                    f"{c.inner}#pragma unroll",
                    f"{c.inner}for (uint4 &{self.vector} : {register}) {self.vector} = make_uint4(0, 0, 0, 0);",
                ]
        return out

    def _fetch(self, item: LoadItem) -> list[Edit]:
        c = self.c
        match item:
            case Fetch():
                assert item.symbol.init is not None
                span = item.stmt.span
                return [Edit(span.start, span.end, f"{self.held[item.symbol.id]} = {c.source(item.symbol.init)};")]
            case LaneStore():
                return [Edit(item.stmt.span.start, item.stmt.span.end, "\f")]  # a line of its own that is dropped
            case Copy():
                return self._fetch_copy(item, self.registers[item.stmt.span.start])
            case CopyLoop():
                v = self._vector(item)
                if v is not None:
                    return [Edit(item.stmt.span.start, item.stmt.span.end, self._fetch_widened(v))]
                index = self._pass_index(item)
                edits = self._header(item)
                for inner in item.body:
                    if isinstance(inner, Copy):
                        edits += self._fetch_copy(inner, f"{self.registers[inner.stmt.span.start]}[{index}]")
                return edits
        return []

    def _fetch_copy(self, item: Copy, register: str) -> list[Edit]:
        """The statement with its place in shared memory replaced by the register, in both branches of an if."""
        targets = [n.left for n in ir.walk(item.stmt) if isinstance(n, ir.Assign) and self._same(n.left, item.target)]
        return [Edit(t.span.start, t.span.end, register) for t in targets]

    def _same(self, a: ir.Expr, b: ir.Expr) -> bool:
        return "".join(self.c.source(a).split()) == "".join(self.c.source(b).split())

    def _pass_index(self, item: CopyLoop) -> str:
        if item.first_value is None:
            return self.pass_name
        if item.first_value == 0 and item.stride_value == 1:
            return item.var.name
        return f"({item.var.name} - {self.c.operand(item.first)}) / {self.c.operand(item.stride)}"

    def _pragma(self, item: CopyLoop) -> str:
        text, stmt = self.c.kernel.text, item.stmt
        above = text[line_start(text, max(0, line_start(text, stmt.span.start) - 1)) : stmt.span.start].strip()
        return "" if above.startswith(b"#pragma") else f"#pragma unroll\n{indent_at(text, stmt.span.start)}"

    def _header(self, item: CopyLoop) -> list[Edit]:
        c, stmt = self.c, item.stmt
        indent = indent_at(c.kernel.text, stmt.span.start)
        pragma = self._pragma(item)
        if item.first_value is not None:
            return [Edit(stmt.span.start, stmt.span.start, pragma)] if pragma else []
        lines = [x for x in self._strided_open(item) if not x.startswith("#")]
        head = pragma + f"\n{indent}".join(lines)
        return [Edit(stmt.span.start, stmt.header.end, head), Edit(stmt.span.end, stmt.span.end, f"\n{indent}}}")]

    def _strided_open(self, item: CopyLoop) -> list[str]:
        c = self.c
        kind = " ".join(w for w in item.var.type_text.split() if w != "const")
        return [
            "#pragma unroll",
            f"for (int {self.pass_name} = 0; {self.pass_name} < {self._trips(item)}; ++{self.pass_name}) {{",
            f"{c.unit}{kind} {item.var.name} = {c.source(item.first)} + {self.pass_name} * {c.operand(item.stride)};",
            f"{c.unit}if ({item.var.name} < {c.compared(item.bound)})",
        ]

    def _fetch_widened(self, v: VectorLoop) -> str:
        """Whole vectors only: the ragged rest is copied when the tile is stored, so that no load waits for it here."""
        c, u = self.c, self.c.unit
        register = f"{self.registers[v.copy.stmt.span.start]}[{self.pass_name}]"
        lines = [
            *v.open(self.pass_name, self.first),
            *(u * 2 + x for x in v.indices(self.first)),
            u * 2 + f"if ({v.whole()}) {{",
            u * 3 + f"{register} = *reinterpret_cast<const uint4 *>({c.address(v.copy.source)});",
            u * 2 + "}",
            *v.close(),
        ]
        return reindent("\n".join(lines), indent_at(c.kernel.text, v.loop.stmt.span.start)).lstrip()

    def _store_widened(self, v: VectorLoop) -> list[str]:
        c, u = self.c, self.c.unit
        register = f"{self.registers[v.copy.stmt.span.start]}[{self.pass_name}]"
        return [
            *v.open(self.pass_name, self.first),
            *(u * 2 + x for x in v.indices(self.first)),
            # Stored on every path: a load that only some paths consume makes the next one wait for it.
            u * 2 + f"*reinterpret_cast<uint4 *>({c.address(v.copy.target)}) = {register};",
            u * 2 + f"if (!({v.whole()})) {{  // the ragged edge, or a row that is not 16-byte aligned",
            *(u * 3 + x if x else x for x in v.element_loop(self.first)),
            u * 2 + "}",
            *v.close(),
        ]

    # -- storing --------------------------------------------------------------------------------------------
    def store_lines(self) -> list[str]:
        c = self.c
        out: list[str] = []
        wanted: set[int] = set()
        for item in c.kernel.loads:
            match item:
                case Copy():
                    out.append(f"{c.source(item.target)} = {self.registers[item.stmt.span.start]};")
                    wanted |= c.reads([item.target])
                case LaneStore():
                    out.append(self._lane_store(item))
                    wanted |= c.reads([item.target])
                case CopyLoop():
                    wanted |= c.reads([item.stmt])
                    v = self._vector(item)
                    if v is not None:
                        out += self._store_widened(v)
                    else:
                        out += self._store_loop(item)
        needed = c.closure(wanted & self.store_reads(), c.top_pures())
        return [*(c.source(p.stmt) for p in needed), *out]

    def store_reads(self) -> set[int]:
        need: set[int] = set()
        for item in self.c.kernel.loads:
            inner: Iterable[LoadItem] = item.body if isinstance(item, CopyLoop) else (item,)
            vector = isinstance(item, CopyLoop) and self._vector(item) is not None
            pures = [i for i in inner if isinstance(i, Pure)]
            for entry in inner:
                if isinstance(entry, Copy | LaneStore):
                    need |= self.needs(entry, pures, whole=vector)
            if isinstance(item, CopyLoop):
                need |= self.c.reads([item.first, item.bound, item.stride])
        return need

    def _lane_store(self, item: LaneStore) -> str:
        c = self.c
        assert isinstance(item.stmt.expr, ir.Assign)
        lane = f".{item.lane}" if item.lane else ""
        return f"{c.source(item.target)} = {self.held[item.fetched]}{lane};"

    def _store_loop(self, item: CopyLoop) -> list[str]:
        c, u = self.c, self.c.unit
        index = self._pass_index(item)
        pures = [i for i in item.body if isinstance(i, Pure)]
        copies = [i for i in item.body if isinstance(i, Copy)]
        need = c.reads([i.target for i in copies])
        body = [c.source(p.stmt) for p in c.closure(need, pures)]
        body += [f"{c.source(i.target)} = {self.registers[i.stmt.span.start]}[{index}];" for i in copies]
        if item.first_value is not None:
            return [
                "#pragma unroll",
                f"{c.kernel.text[item.stmt.span.start : item.stmt.header.end].decode()} {{",
                *(u + x for x in body),
                "}",
            ]
        head = self._strided_open(item)
        return [*head[:-1], head[-1] + " {", *(u * 2 + x for x in body), u + "}", "}"]
