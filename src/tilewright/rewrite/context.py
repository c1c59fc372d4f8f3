"""What every variant needs while it is written: names, texts, the ring's declarations, the compute phase."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.rewrite.edits import Edit, apply, indent_at, line_start
from tilewright.rewrite.result import Remedy
from tilewright.source import ir
from tilewright.source.kernel import CopyLoop, LoadItem, Pure, Refusal, SharedArray, TiledKernel
from tilewright.source.lexical import identifiers
from tilewright.source.loops import counted_header

_SIMPLE = ("Name", "Number", "Call", "Index", "Member")


class Names:
    """Names that nothing in the file uses yet."""

    def __init__(self, text: bytes) -> None:
        self._taken = set(identifiers(text))

    def fresh(self, wish: str) -> str:
        name, n = wish, 2
        while name in self._taken:
            name, n = f"{wish}_{n}", n + 1
        self._taken.add(name)
        return name


class Context:
    """One rewrite of one kernel."""

    def __init__(self, kernel: TiledKernel, stages: int, remedy: Remedy, static_limit_bytes: int) -> None:
        self.kernel = kernel
        self.stages = stages
        self.remedy = remedy
        staged = sum(a.total_bytes for a in kernel.staged)
        total = sum(a.total_bytes for a in kernel.shared) + (stages - 1) * staged
        # Static shared memory ends at 48 KiB; a larger ring has to be dynamic.
        self.dynamic_bytes = stages * staged if total > static_limit_bytes else 0
        self.names = Names(kernel.text)
        self.stages_name = self.names.fresh("STAGES")
        self.buffer_name = self.names.fresh("tile_ring")
        self.ring = {a.symbol: self.names.fresh(f"{a.name}_ring") for a in kernel.staged}
        loop = kernel.loop
        self.outer = indent_at(kernel.text, loop.stmt.span.start)
        first = self._first_statement()
        inner = indent_at(kernel.text, first)
        self.inner = inner if len(inner) > len(self.outer) else self.outer + "    "
        self.unit = self.inner[len(self.outer) :] or "    "
        self.var_type = " ".join(w for w in loop.var.type_text.split() if w not in ("const", "register"))

    def _first_statement(self) -> int:
        return self.kernel.loop.first_barrier.start

    # -- texts --------------------------------------------------------------------------------------
    def source(self, node: ir.Expr | ir.Stmt) -> str:
        return self.kernel.text[node.span.start : node.span.end].decode()

    def operand(self, expr: ir.Expr) -> str:
        """The text of an expression, in parentheses unless it binds tightly."""
        text = self.source(expr)
        tight = text.replace("_", "a").replace(".", "a").isalnum() or (text.startswith("(") and _balanced(text))
        return text if tight else f"({text})"

    def times(self, count: str, expr: ir.Expr) -> str:
        """``count * expr`` for the K-loop's step, ``count`` alone for a step of one."""
        if self.kernel.loop.step_value == 1:
            return count
        tight = count.replace("_", "a").isalnum()
        return f"{count if tight else f'({count})'} * {self.operand(expr)}"

    def address(self, expr: ir.Expr) -> str:
        """The address of an lvalue: ``*p`` → ``p``, ``x[i]`` → ``&x[i]``."""
        match expr:
            case ir.Unary(op="*", operand=p) if p.span != expr.span:
                return self.source(p)
            case ir.Index(base=b, index=ir.Number(value=0)) if b.span != expr.span and isinstance(b, ir.Cast):
                return self.source(b)
            case ir.Call(args=(p,)) if expr.callee.startswith("__ld"):
                return self.source(p)
        return f"&{self.source(expr)}"

    def lvalue(self, expr: ir.Expr) -> str:
        """The text of a global lvalue; ``__ldg(p)`` → ``*(p)``."""
        if isinstance(expr, ir.Call) and expr.callee.startswith("__ld"):
            return f"*({self.source(expr.args[0])})"
        return self.source(expr)

    def first_is_zero(self) -> bool:
        return isinstance(self.kernel.loop.first, ir.Number) and self.kernel.loop.first.value == 0

    def tile_index(self, tiles: str) -> str:
        """The K-loop's variable ``tiles`` tiles after its first value."""
        loop = self.kernel.loop
        distance = self.times(tiles, loop.step)
        return distance if self.first_is_zero() else f"{self.operand(loop.first)} + {distance}"

    def in_range(self, name: str) -> str:
        return f"{name} < {self.compared(self.kernel.loop.bound)}"

    def compared(self, expr: ir.Expr) -> str:
        """The text of an expression beside ``<``."""
        text = self.source(expr)
        return f"({text})" if any(c in text for c in "<>=&|^?,") else text

    # -- dependencies ---------------------------------------------------------------------------------
    def reads(self, nodes: Iterable[ir.Expr | ir.Stmt]) -> set[int]:
        return {n.symbol for node in nodes for n in ir.walk(node) if isinstance(n, ir.Name) and n.symbol is not None}

    def closure(self, wanted: set[int], pures: Iterable[Pure]) -> list[Pure]:
        """The declarations among ``pures`` that the wanted symbols need, in order."""
        kept: list[Pure] = []
        need = set(wanted)
        for pure in reversed(list(pures)):
            if any(s.id in need for s in pure.stmt.symbols):
                kept.append(pure)
                need |= self.reads([pure.stmt])
        return kept[::-1]

    def top_pures(self) -> list[Pure]:
        return [i for i in self.kernel.loads if isinstance(i, Pure)]

    def uses_var(self, wanted: set[int]) -> bool:
        var = self.kernel.loop.var.id
        need = set(wanted)
        for pure in self.closure(wanted, self.top_pures()):
            need |= self.reads([pure.stmt])
        return var in need

    # -- pieces of every variant ------------------------------------------------------------------------
    def alignment_bytes(self) -> int:
        """What the ring's arrays are aligned to: 16 for vector copies, 32 where WMMA loads read them."""
        compute = self.kernel.text[self.kernel.compute_span.start : self.kernel.compute_span.end]
        return 32 if b"load_matrix_sync" in compute else 16

    def misaligned(self, array: SharedArray, ring: bool) -> Refusal | None:
        need = self.alignment_bytes()
        own = int(array.alignment) if array.alignment.isdigit() else 0
        if array.alignment and not own:
            own = self.kernel.constants.get(array.alignment, 0)
            if not own:
                return Refusal("misaligned", f"the alignment of `{array.name}` is not understood", array.line)
        if own and own < need:
            return Refusal(
                "misaligned",
                f"`{array.name}` is aligned to {own} bytes, vector copies need {need}",
                array.line,
                f"declare it __align__({need})",
            )
        pitch = max(need, own)
        if ring and array.total_bytes % pitch:
            return Refusal(
                "misaligned",
                f"a stage of `{array.name}` has {array.total_bytes} bytes, no multiple of {pitch}",
                array.line,
                "pad the array",
            )
        return None

    def undividable(self) -> Refusal | None:
        """A dynamic ring needs every staged array in a declaration of its own, alone on its line."""
        text = self.kernel.text
        for array in self.kernel.staged if self.dynamic_bytes else ():
            before = text[line_start(text, array.declaration.start) : array.declaration.start].strip()
            if not array.alone or (before and not before.startswith((b"alignas", b"__align__"))):
                return Refusal(
                    "not_understood",
                    f"`{array.name}` shares its declaration; a ring above 48 KiB needs its own",
                    array.line,
                    "declare every array in a statement of its own",
                )
        return None

    def _dynamic_declarations(self) -> list[Edit]:
        """One dynamic buffer, cut into the rings."""
        out: list[Edit] = []
        text = self.kernel.text
        offset = ""
        for i, array in enumerate(sorted(self.kernel.staged, key=lambda a: a.declaration.start)):
            symbol = self.kernel.symbols[array.symbol]
            start = line_start(text, array.declaration.start)
            indent = indent_at(text, array.declaration.start)
            dims = "".join(f"[{self.source(d)}]" for d in symbol.dims)
            ring = self.ring[array.symbol]
            kind = f"{array.type_text} (*)[{self.stages_name}]{dims}"
            line = f"{indent}auto &{ring} = *reinterpret_cast<{kind}>({self.buffer_name}{offset});"
            if i == 0:
                line = "\n".join(
                    [
                        f"{indent}constexpr int {self.stages_name} = {self.stages};",
                        f"{indent}// Above 48 KiB, so dynamic: launch with {self.dynamic_bytes} bytes, and raise",
                        f"{indent}// cudaFuncAttributeMaxDynamicSharedMemorySize before (cudaFuncSetAttribute).",
                        f"{indent}extern __shared__ __align__(128) unsigned char {self.buffer_name}[];",
                        line,
                    ]
                )
            offset += f" + sizeof({ring})"
            out.append(Edit(start, array.declaration.end, line))
        return out

    def declarations(self, ring: bool) -> list[Edit]:
        """The staged arrays as rings of stages (renamed), or aligned in place."""
        if ring and self.dynamic_bytes:
            return self._dynamic_declarations()
        out: list[Edit] = []
        text = self.kernel.text
        aligned: set[int] = set()
        for array in self.kernel.staged:
            symbol = self.kernel.symbols[array.symbol]
            if ring:
                at = symbol.span.start
                out.append(Edit(at, at + len(array.name), f"{self.ring[array.symbol]}[{self.stages_name}]"))
            if not array.alignment and array.declaration.start not in aligned:
                aligned.add(array.declaration.start)
                word = text.find(b"__shared__", array.declaration.start, array.declaration.end) + len(b"__shared__")
                out.append(Edit(word, word, f" __align__({self.alignment_bytes()})"))
        if ring:
            first = min(a.declaration.start for a in self.kernel.staged)
            at = line_start(text, first)
            out.append(Edit(at, at, f"{indent_at(text, first)}constexpr int {self.stages_name} = {self.stages};\n"))
        return out

    def views(self, stage: str) -> list[str]:
        """``auto &As = As_ring[stage];`` for every staged array: inside, the old name means the right stage."""
        return [f"auto &{a.name} = {self.ring[a.symbol]}[{stage}];" for a in self.kernel.staged]

    def compute(self) -> str:
        """The compute phase, as it was, without the bumps that moved to the loads."""
        edits = [Edit(*self._whole_lines(b.stmt), "") for b in self.kernel.loop.bumps_after]
        if self.remedy.restore_unroll:
            edits += self._unrolls()
        body = apply(self.kernel.text, self.kernel.compute_span, edits)
        wanted = self.reads(self.kernel.loop.compute)
        again = [self.source(p.stmt) for p in self.closure(wanted, self.top_pures())]
        head = "".join(f"{self.inner}{line}\n" for line in again)
        return head + body.lstrip("\n").rstrip() + "\n"

    def bumps(self) -> list[str]:
        """The lines that moved from the compute phase to the end of the loads, comments included."""
        out: list[str] = []
        for bump in self.kernel.loop.bumps_after:
            start, end = self._whole_lines(bump.stmt)
            lines = self.kernel.text[start:end].decode().rstrip("\n").split("\n")
            out += lines if len(lines) > 1 or lines[0][:1].isspace() else [self.inner + lines[0]]
        return ["", *out] if out else []

    def _whole_lines(self, stmt: ir.Stmt) -> tuple[int, int]:
        """The statement with its line, its trailing comment and the comment lines right above it."""
        text = self.kernel.text
        start, end = line_start(text, stmt.span.start), text.find(b"\n", stmt.span.end)
        tail = text[stmt.span.end : end].strip()
        if text[start : stmt.span.start].strip() or (tail and not tail.startswith(b"//")):
            return stmt.span.start, stmt.span.end
        while start > self.kernel.compute_span.start:
            above = line_start(text, start - 1)
            if above < self.kernel.compute_span.start or not text[above:start].strip().startswith(b"//"):
                break
            start = above
        # Two bumps one below the other: the comment above them belongs to the first.
        return start, end + 1

    def _unrolls(self) -> list[Edit]:
        out: list[Edit] = []
        text = self.kernel.text
        for stmt in self.kernel.loop.compute:
            for node in ir.walk(stmt):
                if not isinstance(node, ir.For) or counted_header(node) is None:
                    continue
                start = line_start(text, node.span.start)
                above = text[line_start(text, max(0, start - 1)) : start].strip()
                if not text[start : node.span.start].strip() and not above.startswith(b"#"):
                    out.append(Edit(start, start, f"{indent_at(text, node.span.start)}#pragma unroll\n"))
        return out

    def loop_header(self) -> str:
        """The K-loop's pragmas and ``for (…)``, as they were."""
        loop = self.kernel.loop
        head = self.kernel.text[loop.insert_at : loop.stmt.header.end].decode()
        if self.remedy.unroll_one and "#pragma" not in head:
            head = f"{self.outer}#pragma unroll 1\n{head}"
        return head

    def fence(self) -> list[str]:
        return (
            ['asm volatile("" ::: "memory");  // keeps the loads above ahead of the compute phase']
            if self.remedy.fence
            else []
        )


def _balanced(text: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


def flat(items: Iterable[LoadItem]) -> Iterable[LoadItem]:
    """Every item, those of copy loops instead of the loops."""
    for item in items:
        if isinstance(item, CopyLoop):
            yield from item.body
        else:
            yield item
