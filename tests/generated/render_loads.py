"""The load phase of a random tiled kernel: how its operands come into shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from choices import Choices

ZERO = {"float": "0.0f", "__half": "__float2half(0.0f)", "signed char": "0"}
VECTOR = {"float": "float4", "__half": "uint4", "signed char": "int4"}


@dataclass(frozen=True)
class Side:
    """One operand: its tile and where it comes from."""

    name: str  # A, B
    array: str  # As, Bs
    copy: str
    rows: str
    columns: str
    pitch: str  # the leading dimension in global memory
    row0: str  # global row and column of the tile's corner
    column0: str
    limit_rows: str
    limit_columns: str


class Loads:
    """Writes the load phase of one kernel, and names the elements of its tiles."""

    def __init__(self, choices: Choices) -> None:
        self.c = choices
        moved = choices.pointers in ("bump", "bump_late")
        k = "0" if moved else "k0"
        row, column = "block_row * BM", "block_column * BN"
        self.a = Side(
            "A", "As", choices.copy_a, "BM", "BK", "K", "0" if moved else row, "k_at" if self.carried else k, "M", "K"
        )
        self.b = Side(
            "B",
            "Bs",
            choices.copy_b,
            "BK",
            "BN",
            "N",
            "k_at" if self.carried else k,
            "0" if moved else column,
            "K",
            "N",
        )

    @property
    def carried(self) -> bool:
        return self.c.pointers == "carried"

    # -- the load phase ---------------------------------------------------------------------------------
    def _guard(self, s: Side, row: str, column: str) -> str:
        if self.c.guard == "none":
            return ""
        k = "k0" if not self.carried else "k_at"
        grow = f"block_row * BM + {row}" if s.name == "A" else f"{k} + {row}"
        gcol = f"{k} + {column}" if s.name == "A" else f"block_column * BN + {column}"
        return f"{grow} < {s.limit_rows} && {gcol} < {s.limit_columns}"

    def _source(self, s: Side, row: str, column: str) -> str:
        at_row = row if s.row0 == "0" else f"({s.row0} + {row})"
        at_column = column if s.column0 == "0" else f"{s.column0} + {column}"
        return f"{s.name}[{at_row} * {s.pitch} + {at_column}]"

    def _place(self, s: Side, row: str, column: str) -> str:
        if self.transposed(s):
            row, column = column, row
        return self.element(s.array, row, column)

    def transposed(self, s: Side) -> bool:
        return s.name == "A" and s.copy in ("vector_transposed", "array")

    def pitch(self, array: str) -> str:
        wide = ("BM" if self.transposed(self.a) else "BK") if array == "As" else "BN"
        return f"({wide} + PAD)" if self.c.shared == "padded" else wide

    @property
    def is_flat(self) -> bool:
        return self.c.shared in ("flat", "dynamic", "dynamic_bytes")

    def element(self, array: str, row: str, column: str) -> str:
        if self.is_flat:
            tight = row if row.isidentifier() or row.isdigit() else f"({row})"
            return f"{array}[{tight} * {self.pitch(array)} + {column}]"
        return f"{array}[{row}][{column}]"

    def _copy(self, s: Side, r: str, c: str) -> list[str]:
        """One element, guarded as the kernel's idiom is."""
        guard, source, place = self._guard(s, r, c), self._source(s, r, c), self._place(s, r, c)
        zero, kind = ZERO[self.c.element], self.c.element
        if s.copy == "initialised":
            read = f"if ({guard}) value = {source};" if guard else f"value = {source};"
            return [f"{kind} value{{{zero}}};", read, f"{place} = value;"]
        if s.copy == "typed_local":
            value = f"({guard}) ? {source} : {zero}" if guard else source
            return [f"{kind} value = {value};", f"{place} = value;"]
        if not guard:
            return [f"{place} = {source};"]
        if s.copy == "if_else":
            return [f"if ({guard}) {{", f"    {place} = {source};", "} else {", f"    {place} = {zero};", "}"]
        return [f"{place} = ({guard}) ? {source} : {zero};"]

    def load_side(self, s: Side) -> list[str]:
        lines = self._load_plainly(s)
        if self.c.unroll and lines[0].startswith("for"):
            lines = ["#pragma unroll", *lines]
        if self.c.trap == "stale_fill" and s.name == "B":  # of every second tile, B is that of the one before
            k = "k_at" if self.carried else "k0"
            lines = [f"if ({k} / BK % 2 == 0) {{", *("    " + x for x in lines), "}"]
        if self.c.partial and s.name == "A":
            lines = ["if (tid / 32 < THREADS / 64) {", *("    " + x for x in lines), "}"]
        return lines

    def _loaders(self, s: Side) -> str:
        return "(THREADS / 64 * 32)" if self.c.partial and s.name == "A" else "THREADS"

    def _load_plainly(self, s: Side) -> list[str]:
        total, across, index = f"{s.rows} * {s.columns}", "(BN / TN)", self.c.index
        if s.copy == "each":
            at = (f"row_{s.name}", f"col_{s.name}")
            return [
                f"const {index} {at[0]} = tid / {s.columns};",
                f"const {index} {at[1]} = tid % {s.columns};",
                *self._copy(s, *at),
            ]
        if s.copy == "rows":
            head = f"for ({index} r = tid / {s.columns}; r < {s.rows}; r += THREADS / {s.columns}) {{"
            inner = [f"{index} c = tid % {s.columns};", *self._copy(s, "r", "c")]
            return [head, *("    " + x for x in inner), "}"]
        if s.copy == "nested":
            inner = self._copy(s, "r", "c")
            return [
                f"for ({index} r = threadIdx.y; r < {s.rows}; r += THREADS / {across}) {{",
                f"    for ({index} c = threadIdx.x; c < {s.columns}; c += {across}) {{",
                *("        " + x for x in inner),
                "    }",
                "}",
            ]
        if s.copy in ("vector", "vector_transposed", "array"):
            return self._load_vectors(s, total)
        inner = [f"{index} r = i / {s.columns};", f"{index} c = i % {s.columns};", *self._copy(s, "r", "c")]
        return [f"for ({index} i = tid; i < {total}; i += {self._loaders(s)}) {{", *("    " + x for x in inner), "}"]

    def _load_vectors(self, s: Side, total: str) -> list[str]:
        vector, width, index = VECTOR[self.c.element], self.c.vector, self.c.index
        source, guard = self._source(s, "r", "c"), self._guard(s, "r", "c")
        read = f"*reinterpret_cast<const {vector} *>(&{source})"
        head = [
            f"for ({index} i = tid * {width}; i < {total}; i += {self._loaders(s)} * {width}) {{",
            f"    {index} r = i / {s.columns};",
            f"    {index} c = i % {s.columns};",
        ]
        zero = f"make_{vector}(0, 0, 0, 0)"
        if s.copy == "vector":
            value = f"({guard}) ? {read} : {zero}" if guard else read
            return [*head, f"    *reinterpret_cast<{vector} *>(&{self._place(s, 'r', 'c')}) = {value};", "}"]
        lanes = [f"    {self._place(s, 'r', f'c + {j}')} = " for j in range(width)]
        if s.copy == "vector_transposed":
            value = f"({guard}) ? {read} : {zero}" if guard else read
            stores = [f"{x}held.{'xyzw'[j]};" for j, x in enumerate(lanes)]
            return [*head, f"    {vector} held = {value};", *stores, "}"]
        held = [f"    {self.c.element} held[{width}];"]
        if guard:
            held += [f"    VECTOR(held[0]) = {zero};", f"    if ({guard}) VECTOR(held[0]) = {read};"]
        else:
            held += [f"    VECTOR(held[0]) = {read};"]
        return [*head, *held, *(f"{x}held[{j}];" for j, x in enumerate(lanes)), "}"]

    def load(self) -> list[str]:
        """The load phase inside the loop."""
        c = self.c
        if c.wrap in ("helper", "template_helper"):
            name = "load_tiles<BM, BN, BK, THREADS>" if c.wrap == "template_helper" else "load_tiles"
            k0 = "0" if c.loop == "pointer" else "k0"
            lines = [f"{name}(As, Bs, A, B, M, N, K, {k0}, block_row, block_column, tid);"]
        elif c.wrap == "macro":
            lines = ["LOAD_TILES();"]
        else:
            lines = self.side(self.a) + self.side(self.b)
        if c.trap == "address_from_shared":
            lines = ["const int jump = hops[tid % 4];", *lines, "A += jump;"]
        if c.pointers == "bump" and c.loop != "pointer":
            lines += ["A += BK;", "B += BK * N;"]
        if self.carried:
            lines.append("k_at += BK;")
        return lines

    def side(self, s: Side) -> list[str]:
        part = self.load_side(s)
        return ["{", *("    " + x for x in part), "}"] if self.c.wrap == "block" else part
