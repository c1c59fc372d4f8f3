"""Vectors of a copy that converts: 16 bytes are loaded, every element is converted as before, and all are stored."""

from __future__ import annotations

from tilewright.kloop.kernel import Copy, Element
from tilewright.kloop.widen import VECTOR_BYTES, stored_elements
from tilewright.rewrite.context import Context
from tilewright.rewrite.quoting import one_line
from tilewright.source.edits import Edit, apply

_WORDS = {2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}


class ConvertedVectors:
    """Names and lines for the copies of one widened loop that convert; ``lane`` counts the elements of a vector."""

    def __init__(self, context: Context, copies: list[Copy], lanes: int, lane: str) -> None:
        self.c = context
        self.lanes = lanes
        self.converting = [x for x in copies if x.element is not None]
        fresh, arrays = context.names.fresh, {a.symbol: a.name for a in context.kernel.staged}
        self.lane = lane
        self._loaded = {x.array: fresh(f"{arrays[x.array]}_loaded") for x in self.converting}
        self._stored = {x.array: fresh(f"{arrays[x.array]}_converted") for x in self.converting}

    def load_lines(self) -> list[str]:
        """Every vector into registers, one load each."""
        out = (
            [f"// {VECTOR_BYTES} bytes are loaded at once; every element is converted as before."]
            if self.converting
            else []
        )
        for x in self.converting:
            assert x.element is not None
            name = self._loaded[x.array]
            out.append(f"__align__({VECTOR_BYTES}) {x.element.type_text} {name}[{self.lanes}];")
            vector = f"*reinterpret_cast<const uint4 *>({self.c.address(x.source)})"
            out.append(f"*reinterpret_cast<uint4 *>({name}) = {vector};")
        return out

    def store_lines(self) -> list[str]:
        """Element by element through the conversion of the original, then to shared memory as vectors."""
        out: list[str] = []
        for x in self.converting:
            assert x.element is not None
            name, unit = self._stored[x.array], stored_elements(x, self.lanes)
            value = self._value(x.element, f"{self._loaded[x.array]}[{self.lane}]")
            out += [
                f"__align__({unit * x.width_bytes}) {x.type_text} {name}[{self.lanes}];",
                "#pragma unroll",
                f"for (int {self.lane} = 0; {self.lane} < {self.lanes}; ++{self.lane}) {{",
                f"{self.c.unit}{name}[{self.lane}] = {value};",
                "}",
                *self._vectors(x, name, unit * x.width_bytes),
            ]
        return out

    def _vectors(self, x: Copy, name: str, store_bytes: int) -> list[str]:
        word, target = _WORDS[store_bytes], self.c.address(x.target)
        to, of = f"reinterpret_cast<{word} *>({target})", f"reinterpret_cast<const {word} *>({name})"
        count = self.lanes * x.width_bytes // store_bytes
        return [f"*{to} = *{of};"] if count == 1 else [f"{to}[{i}] = {of}[{i}];" for i in range(count)]

    def _value(self, element: Element, loaded: str) -> str:
        """The text of the conversion with the loaded element in it, as it is where the guard holds."""
        text, source, kept = self.c.kernel.text, element.source.span, element.kept.span
        taken = apply(text, kept, [Edit(source.start, source.end, loaded)])
        value, chosen = element.value.span, element.chosen.span
        before, after = text[value.start : chosen.start].decode(), text[chosen.end : value.end].decode()
        before = before.rstrip() if before.rstrip().endswith("(") else before
        return one_line(before + taken + (after.lstrip() if after.lstrip().startswith(")") else after))
