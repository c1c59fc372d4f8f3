"""What every variant needs while it is written: names, dependencies, the phases' texts."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kloop.kernel import Bump, Copy, CopyLoop, Fetch, LaneStore, LoadItem, Pure, TiledKernel
from tilewright.kloop.loops import counted_header
from tilewright.rewrite.result import Remedy
from tilewright.rewrite.rings import Rings
from tilewright.rewrite.stream_text import StreamText
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit, apply, indent_at, indented, line_end, line_start

LAST_BARRIER = "__syncthreads();  // as behind every tile of the original: nobody still reads the last one"


class Context(Rings):
    """One rewrite of one kernel."""

    def __init__(self, kernel: TiledKernel, stages: int, remedy: Remedy, static_limit_bytes: int) -> None:
        super().__init__(kernel, stages, static_limit_bytes)
        self.remedy = remedy
        loop = kernel.loop
        self.outer = indent_at(kernel.text, loop.stmt.span.start)
        inner = indent_at(kernel.text, loop.first_barrier.start)
        self.inner = inner if len(inner) > len(self.outer) and inner.startswith(self.outer) else self.outer + "    "
        self.unit = self.inner[len(self.outer) :]
        self.var_type = plain_type(loop.var.type_text)
        stream = kernel.stream
        self.stream_text = StreamText(self, stream, loop.bumps_after) if stream is not None else None

    # -- the K-loop's variable --------------------------------------------------------------------------
    def tile_index(self, tiles: str) -> str:
        """The K-loop's variable ``tiles`` tiles after its first value."""
        first = self.kernel.loop.first
        distance = self.times(tiles)
        if isinstance(first, ir.Number) and first.value == 0:
            return distance
        return f"{self.term(first)} + {distance}"

    def times(self, count: str) -> str:
        """``count`` steps of the K-loop."""
        loop = self.kernel.loop
        tight = count if count.isidentifier() else f"({count})"
        return tight if loop.step.span.within else f"{tight} * {self.operand(loop.step)}"

    def in_range(self, name: str) -> str:
        return f"{name} < {self.compared(self.kernel.loop.bound)}"

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
        """Whether the wanted symbols rest on the K-loop's variable."""
        need = set(wanted)
        for pure in self.closure(wanted, self.top_pures()):
            need |= self.reads([pure.stmt])
        return self.kernel.loop.var.id in need

    def loads_use_var(self) -> bool:
        statements = [x.stmt for x in self.kernel.loads] + [b.stmt for b in self.kernel.loop.bumps_after]
        if self.kernel.stream is not None:
            statements += [*self.kernel.stream.body, *(b.stmt for b in self.kernel.stream.bumped)]
        return self.uses_var(self.reads(statements))

    # -- texts of the phases ----------------------------------------------------------------------------
    def brace_comment(self) -> str:
        """A comment behind the K-loop's opening brace, which stays there; "" without."""
        text, start = self.kernel.text, self.kernel.loop.body.start + 1
        rest = text[start : line_end(text, start)]
        return f"  {rest.strip().decode()}" if rest.strip().startswith(b"//") else ""

    def load_lines(self, edits: list[Edit], bumps: bool = True) -> list[str]:
        """The load phase with some edits, without what is said about its barrier; ``bumps``: and what moves to it."""
        text, span = self.kernel.text, self.kernel.load_span
        if text[span.start : line_end(text, span.start)].strip().startswith(b"//"):  # the brace's, or the barrier's
            span = ir.Span(line_end(text, span.start), span.end)
        end = self._without_barrier_comment(span)
        return self._lines(ir.Span(span.start, end), edits) + (self._bump_lines() if bumps else [])

    def compute_lines(self) -> list[str]:
        """The compute phase, as it was, without the bumps that moved to the loads."""
        text, span = self.kernel.text, self.kernel.compute_span
        rest = text[span.start : line_end(text, span.start)]
        if rest.strip().startswith(b"//"):  # about the barrier
            span = ir.Span(line_end(text, span.start), span.end)
        if not self.kernel.loop.leading:  # else the loop's brace follows, no barrier
            span = ir.Span(span.start, self._without_barrier_comment(span))
        edits = [Edit(*self._whole_lines(b.stmt), "") for b in self.kernel.loop.bumps_after]
        if self.remedy.restore_unroll:
            edits += self._unrolls()
        again = [self.source(p.stmt) for p in self.closure(self.reads(self.kernel.loop.compute), self.top_pures())]
        if self.stream_text is not None:
            again = self.stream_text.compute_lines()
        return [*indented(again, self.inner), *self._lines(span, edits)]

    def _without_barrier_comment(self, span: ir.Span) -> int:
        """The end of a phase in front of comment lines that stand right above its barrier."""
        text = self.kernel.text
        end = line_start(text, span.end)
        if end <= span.start or text[end : span.end].strip():
            return span.end
        at = end
        while at > span.start and text[line_start(text, at - 1) : at].strip().startswith(b"//"):
            at = max(line_start(text, at - 1), span.start)
        return at

    def _lines(self, span: ir.Span, edits: list[Edit]) -> list[str]:
        """The lines of a span, edited; blank ones at its ends dropped."""
        lines = [x.rstrip("\r") for x in apply(self.kernel.text, span, edits).split("\n")]
        if lines and lines[0].strip() and span.start != line_start(self.kernel.text, span.start):
            lines[0] = self.inner + lines[0].strip()  # it stood behind a brace or a barrier
        while lines and not lines[0].strip():
            lines.pop(0)
        while lines and not lines[-1].strip():
            lines.pop()
        if lines:
            lines[-1] = lines[-1].rstrip()
        return lines

    def _bump_lines(self) -> list[str]:
        """The lines that moved from the compute phase to the end of the loads, comments included."""
        out: list[str] = []
        for bump in self.kernel.loop.bumps_after:
            start, end = self._whole_lines(bump.stmt)
            moved = self.kernel.text[start:end].decode().replace("\r", "").rstrip("\n")
            out += moved.split("\n") if moved[:1].isspace() else [self.inner + moved]
        return ["", *out] if out else []

    def _whole_lines(self, stmt: ir.Stmt) -> tuple[int, int]:
        """The statement with its line, its trailing comment and the comment lines right above it."""
        text = self.kernel.text
        start, end = line_start(text, stmt.span.start), line_end(text, stmt.span.end)
        tail = text[stmt.span.end : end].strip()
        if start < self.kernel.compute_span.start or text[start : stmt.span.start].strip():
            return stmt.span.start, stmt.span.end
        if (tail and not tail.startswith(b"//")) or end >= self.kernel.compute_span.end:
            return stmt.span.start, stmt.span.end
        while True:
            above = line_start(text, start - 1)
            if above < self.kernel.compute_span.start or not text[above:start].strip().startswith(b"//"):
                break
            start = above
        # Two bumps one below the other: the comment above them belongs to the first.
        return start, text.find(b"\n", end) + 1

    def _unrolls(self) -> list[Edit]:
        """``#pragma unroll`` in front of the compute phase's counted loops that have no pragma."""
        out: list[Edit] = []
        text = self.kernel.text
        for stmt in self.kernel.loop.compute:
            for node in ir.walk(stmt):
                if not isinstance(node, ir.For) or node.span.within or counted_header(node) is None:
                    continue
                start = line_start(text, node.span.start)
                if start < self.kernel.compute_span.start or text[start : node.span.start].strip():
                    continue
                if not self.pragma_above(node):
                    out.append(Edit(start, start, f"{indent_at(text, node.span.start)}#pragma unroll\n"))
        return out

    def pragma_above(self, stmt: ir.Stmt) -> bool:
        """Whether the line above a statement (comments and blank lines apart) is a pragma."""
        text = lexical.without_comments(self.kernel.text)
        above = text[: line_start(text, stmt.span.start)].rstrip()
        line = above[line_start(above, len(above)) :].strip()
        return (
            line.startswith((b"#", b"_Pragma"))
            or b"_Pragma" in text[line_start(text, stmt.span.start) : stmt.span.start]
        )

    def loop_header(self) -> str:
        """The K-loop's pragmas and ``for (…) {``, as they were."""
        loop = self.kernel.loop
        head = self.kernel.text[loop.insert_at : loop.stmt.header.end].decode().replace("\r", "")
        if loop.insert_at == loop.stmt.span.start:  # code stands in front of it on its line
            head = self.outer + head
        if self.remedy.unroll_one and not self.pragma_above(loop.stmt):
            head = f"{self.outer}#pragma unroll 1\n{head}"
        return f"{head} {{{self.brace_comment()}"

    def loop_edit(self, lines: list[str], behind: list[str]) -> list[Edit]:
        """The K-loop replaced by lines; ``behind``: statements that follow it, on lines of their own."""
        loop, text = self.kernel.loop, self.kernel.text
        break_ = "" if loop.insert_at == line_start(text, loop.insert_at) else "\n"
        edits = [Edit(loop.insert_at, loop.stmt.span.end, break_ + "\n".join(lines))]
        if behind:
            added = "\n".join(self.outer + line for line in behind)
            end = line_end(text, loop.stmt.span.end)
            rest = lexical.without_comments(text)[loop.stmt.span.end : end].strip()
            if rest:  # code follows on the line
                skip = len(text[loop.stmt.span.end :]) - len(text[loop.stmt.span.end :].lstrip(b" \t"))
                at = loop.stmt.span.end
                edits.append(Edit(at, at + skip, f"\n{added}\n{self.outer}"))
            else:
                edits.append(Edit(end, end, f"\n{added}"))
        return edits

    def first_barrier(self) -> list[str]:
        """A barrier in front of what the original only does behind its first one."""
        line = "__syncthreads();  // what was written before is there for every thread"
        return [self.outer + line] if self.kernel.stores_before or self.kernel.loop.leading else []

    def fence(self) -> list[str]:
        line = 'asm volatile("" ::: "memory");  // keeps the loads above ahead of the compute phase'
        return [line] if self.remedy.fence else []


def plain_type(type_text: str) -> str:
    """The type of a variable that is to be assigned: without const."""
    return " ".join(w for w in type_text.split() if w not in ("const", "constexpr", "register"))


def flat(items: Iterable[LoadItem]) -> Iterable[Pure | Bump | Fetch | Copy | LaneStore]:
    """Every item, those of copy loops instead of the loops."""
    for item in items:
        if isinstance(item, CopyLoop):
            yield from flat(item.body)
        else:
            yield item
