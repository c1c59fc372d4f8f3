"""The staged arrays as rings of stages, static or cut from one dynamic buffer."""

from __future__ import annotations

import re

from tilewright.kloop.kernel import Refusal, SharedArray, TiledKernel
from tilewright.rewrite.pools import Pool, declaration, pool_of
from tilewright.rewrite.quoting import Quotes
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit, indent_at, line_start

_DYNAMIC_ALIGNMENT = 128
_CONDITION_WIDTH = 80  # of a static_assert, beside its message
_EXTERN = re.compile(rb"\bextern\b[^;{}]*\b__shared__\b")


class Names:
    """Names that nothing in the file uses yet."""

    def __init__(self, text: bytes) -> None:
        self._taken = set(lexical.identifiers(text))

    def fresh(self, wish: str) -> str:
        name, n = wish, 2
        while name in self._taken:
            name, n = f"{wish}_{n}", n + 1
        self._taken.add(name)
        return name


class Rings(Quotes):
    """Shared memory of one rewrite: ``stages`` buffers of every staged array."""

    def __init__(self, kernel: TiledKernel, stages: int, static_limit_bytes: int) -> None:
        super().__init__(kernel)
        self.stages = stages
        self.names = Names(kernel.text)
        self.pool = pool_of(kernel, stages)
        staged = sum(a.total_bytes for a in kernel.staged if a.pool is None)
        total = sum(a.total_bytes for a in kernel.shared if a.pool is None) + (stages - 1) * staged
        # Static shared memory ends at 48 KiB; a larger ring has to be dynamic.
        self.dynamic_bytes = stages * staged if total > static_limit_bytes else 0
        own = kernel.launch_shared_bytes
        self.launch_bytes = self.dynamic_bytes + (own or 0) if self.dynamic_bytes or own is not None else None
        if self.pool is not None:
            grown = self.pool.total_bytes != self.pool.original_bytes
            self.launch_bytes = self.pool.total_bytes if grown else None
        self.stages_name = self.names.fresh("STAGES")
        self.buffer_name = self.names.fresh("tile_ring")
        self.ring = {a.symbol: self.names.fresh(f"{a.name}_ring") for a in kernel.staged}
        behind = {n.symbol for n in kernel.outside.uses if n.span.start > kernel.loop.stmt.span.start}
        self.last = {a.symbol: self.names.fresh(f"{a.name}_last") for a in kernel.staged if a.symbol in behind}

    # -- what is needed of the arrays -----------------------------------------------------------------
    def alignment_bytes(self) -> int:
        """What the staged arrays are aligned to: 16 for vector copies, 32 where WMMA loads read them."""
        span = self.kernel.compute_span
        return 32 if b"load_matrix_sync" in self.kernel.text[span.start : span.end] else 16

    def _own_alignment(self, array: SharedArray) -> int | None:
        """The alignment that its declaration asks for; 0 where it asks for none, None where that is not understood."""
        text = array.alignment
        if not text:
            return 0
        return int(text) if text.isdigit() else self.kernel.constants.get(text)

    def misaligned(self, array: SharedArray, ring: bool) -> Refusal | None:
        need, own = self.alignment_bytes(), self._own_alignment(array)
        if own is None:
            return Refusal("misaligned", f"the alignment of `{array.name}` is not understood", array.line)
        if own and own < need:
            what = f"`{array.name}` is aligned to {own} bytes, vector copies need {need}"
            return Refusal("misaligned", what, array.line, f"declare it __align__({need})")
        pitch = max(need, own)
        if array.pool is not None and array.offset_bytes % need:
            what = f"`{array.name}` begins at byte {array.offset_bytes} of the dynamic memory, no multiple of {need}"
            return Refusal("misaligned", what, array.line, "begin every piece at a multiple of 16 bytes")
        if ring and array.total_bytes % pitch:
            what = f"a stage of `{array.name}` has {array.total_bytes} bytes, no multiple of {pitch}"
            return Refusal("misaligned", what, array.line, "pad the array")
        return None

    def unusable(self, ring: bool) -> Refusal | None:
        """Why the staged arrays cannot become rings, or cannot even be aligned where they are."""
        kernel = self.kernel
        lost = next((a for a in kernel.staged if a.pool is not None and self.pool is None), None)
        if ring and lost is not None:
            what = f"how many bytes of dynamic shared memory lie around `{lost.name}` is not known"
            return Refusal("not_understood", what, lost.line, "say `shared_bytes` in the sidecar, by constants alone")
        if ring and kernel.outside.refusal is not None:
            return kernel.outside.refusal
        for array in kernel.staged:
            refused = self.misaligned(array, ring)
            if refused is not None:
                return refused
        return self._undividable() if ring and self.dynamic_bytes else None

    def _undividable(self) -> Refusal | None:
        """A dynamic ring needs the dynamic memory for itself, and every array in a declaration of its own."""
        text = lexical.without_comments(self.kernel.text)
        other = _EXTERN.search(text)
        if other is not None:
            line = lexical.line_of(text, other.start())
            what = "a ring above 48 KiB needs the dynamic shared memory, which the file uses already"
            return Refusal("not_understood", what, line, "ask for fewer stages")
        for array in self.kernel.staged:
            before = text[line_start(text, array.declaration.start) : array.declaration.start].strip()
            if not array.alone or (before and not before.startswith((b"alignas", b"__align__"))):
                what = f"`{array.name}` shares its declaration; a ring above 48 KiB needs its own"
                return Refusal("not_understood", what, array.line, "declare every array in a statement of its own")
        return None

    # -- declarations ---------------------------------------------------------------------------------
    def declarations(self, ring: bool) -> list[Edit]:
        """The staged arrays as rings of stages (renamed, outside the K-loop too), or aligned in place."""
        out: list[Edit] = self._renamed_outside() if ring else []
        if ring and self.dynamic_bytes:
            return [*out, *self._dynamic()]
        text = self.kernel.text
        aligned: set[int] = set()
        if ring and self.pool is not None:
            out += self._laid_out(self.pool)
        for array in (a for a in self.kernel.staged if a.pool is None):
            if ring:
                at = self.kernel.symbols[array.symbol].span.start
                name = f"{self.ring[array.symbol]}[{self.stages_name}]"
                out.append(Edit(at, at + len(array.name.encode()), name))
            if not array.alignment and array.declaration.start not in aligned:
                aligned.add(array.declaration.start)
                word = text.find(b"__shared__", array.declaration.start, array.declaration.end) + len(b"__shared__")
                out.append(Edit(word, word, f" __align__({self.alignment_bytes()})"))
        lines = self._stages_lines() if ring else self._made_for() if self.kernel.steps else []
        if lines:
            out.append(self._before_declarations(lines))
        return out

    def _laid_out(self, pool: Pool) -> list[Edit]:
        """The arrays of the launch's own dynamic memory, the staged ones as rings."""
        out: list[Edit] = []
        for array in (a for a in self.kernel.shared if a.pool is not None):
            ring = self.ring.get(array.symbol)
            if ring is not None:
                line = declaration(pool, array, ring, f"[{self.stages_name}]")
            elif pool.offsets[array.symbol] != array.offset_bytes:
                line = declaration(pool, array, array.name)
            else:
                continue
            out.append(Edit(array.declaration.start, array.declaration.end, line))
        return out

    def _stages_lines(self) -> list[str]:
        lines = [f"constexpr int {self.stages_name} = {self.stages};", *self._made_for()]
        if self.pool is not None and any(a.pool is not None for a in self.kernel.staged):
            size, before = self.pool.total_bytes, self.pool.original_bytes
            grown = f"// Launch with {size} bytes of dynamic shared memory; the original had {before}."
            lines.append(grown if size != before else f"// The rings fit into the {size} bytes of the launch.")
        return lines

    def _made_for(self) -> list[str]:
        """Another instantiation, or other constants, would need a proof of their own."""
        lines: list[list[str]] = []
        for condition in self.kernel.made_for:
            if not lines or len(" && ".join([*lines[-1], condition])) > _CONDITION_WIDTH:
                lines.append([])
            lines[-1].append(condition)
        return [f'static_assert({" && ".join(x)}, "rewritten for these arguments only");' for x in lines]

    def _before_declarations(self, lines: list[str]) -> Edit:
        """In front of the first staged array, on lines of their own where its line holds nothing else."""
        text = self.kernel.text
        first = min(self._declaration_start(a) for a in self.kernel.staged)
        start, indent = line_start(text, first), indent_at(text, first)
        if text[start:first].strip():
            return Edit(first, first, "".join(f"{line}\n{indent}    " for line in lines))
        return Edit(start, start, "".join(f"{indent}{line}\n" for line in lines))

    def _declaration_start(self, array: SharedArray) -> int:
        """Where the declaration begins, an alignment in front of it included."""
        text = self.kernel.text
        start = line_start(text, array.declaration.start)
        before = text[start : array.declaration.start]
        for word in (b"alignas", b"__align__"):
            at = before.rfind(word)
            if at >= 0 and not set(b";{}") & set(before[at:]):
                return start + at
        return array.declaration.start

    def _dynamic(self) -> list[Edit]:
        """One dynamic buffer, cut into the rings."""
        text = self.kernel.text
        arrays = sorted(self.kernel.staged, key=lambda a: a.declaration.start)
        align = max([_DYNAMIC_ALIGNMENT, *(self._own_alignment(a) or 0 for a in arrays)])
        out: list[Edit] = []
        offset = ""
        for array in arrays:
            start = line_start(text, array.declaration.start)
            indent = indent_at(text, array.declaration.start)
            dims = "".join(f"[{self.source(d)}]" for d in self._dims(array))
            ring = self.ring[array.symbol]
            kind = f"{array.type_text} (*)[{self.stages_name}]{dims}"
            lines = [f"auto &{ring} = *reinterpret_cast<{kind}>({self.buffer_name}{offset});"]
            if not out:
                lines = [
                    *self._stages_lines(),
                    f"// Above 48 KiB, so dynamic: launch with {self.dynamic_bytes} bytes, and raise the kernel's",
                    "// cudaFuncAttributeMaxDynamicSharedMemorySize first (cudaFuncSetAttribute).",
                    f"extern __shared__ __align__({align}) unsigned char {self.buffer_name}[];",
                    *lines,
                ]
            offset += f" + sizeof({ring})"
            out.append(Edit(start, array.declaration.end, "\n".join(indent + line for line in lines)))
        return out

    def _dims(self, array: SharedArray) -> tuple[ir.Expr, ...]:
        return self.kernel.symbols[array.symbol].dims

    def _renamed_outside(self) -> list[Edit]:
        """The arrays' names outside the K-loop; in front of it the stage that the last tile has where there is none."""
        out: list[Edit] = []
        for name in self.kernel.outside.uses:
            assert name.symbol is not None
            front = name.span.start < self.kernel.loop.stmt.span.start
            new = f"{self.ring[name.symbol]}[{self.stages_name} - 1]" if front else self.last[name.symbol]
            out.append(Edit(name.span.start, name.span.end, new))
        return out

    def last_views(self, stage: str) -> list[str]:
        """``auto &As_last = As_ring[stage];`` for every array that is used behind the K-loop; [] without any.

        Args:
            stage: of the last tile; the last stage where there was no tile.
        """
        out = [f"auto &{name} = {self.ring[symbol]}[{stage}];" for symbol, name in self.last.items()]
        return ["// Behind the K-loop these arrays held the last tile: here, its stage.", *out] if out else []

    def views(self, stage: str) -> list[str]:
        """``auto &As = As_ring[stage];`` for every staged array: inside, the old name means the right stage."""
        return [f"auto &{a.name} = {self.ring[a.symbol]}[{stage}];" for a in self.kernel.staged]
