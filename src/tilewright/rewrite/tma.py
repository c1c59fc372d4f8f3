"""cp.async.bulk.tensor with S stages: one thread copies boxes of matrices, an mbarrier counts their bytes (sm_90).

A tensor map a matrix comes as a parameter behind the kernel's own, and behind them a flag: where the host cannot make
the maps at these sizes (a pitch that is no multiple of 16 bytes, an empty matrix), it passes 0, and all threads copy
the tiles as the original does.
"""

from __future__ import annotations

import itertools
import re

from tilewright.kloop.boxes import TARGET_ALIGNMENT_BYTES
from tilewright.kloop.kernel import Refusal, SharedArray, TiledKernel
from tilewright.kloop.row_map import Box, RowMap
from tilewright.launch.bind import LaunchChange
from tilewright.launch.host_code import Instantiation, instantiations_of
from tilewright.launch.tensor_maps import FlagArg, TensorMapArg
from tilewright.rewrite.bulk import MAX_EXPECTED_BYTES, led_back, rows_of
from tilewright.rewrite.context import Context
from tilewright.rewrite.mbarrier import RESERVED_BYTES
from tilewright.rewrite.mbarrier_ring import RingWriter, refusal
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.source import lexical
from tilewright.source.edits import Edit, finish, line_start, unified_diff

_ALIGNED = re.compile(rb"\b(?:alignas|__align__)\s*\(\s*([^()]*?)\s*\)")
# A copy moves bytes, zeros outside: the elements travel as unsigned integers of their width.
_DTYPES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def rewrite(
    kernel: TiledKernel, stages: int, static_limit_bytes: int, remedy: Remedy | None = None
) -> RewrittenSource | Refusal:
    """The kernel with a ring of ``stages`` buffers (2 or more), filled by copies of boxes.

    ``static_limit_bytes``: what a block may declare statically (48 KiB); a larger ring becomes dynamic.
    """
    slack = TARGET_ALIGNMENT_BYTES * (len(kernel.shared) + 1)
    context = _Context(kernel, stages, remedy or Remedy(), static_limit_bytes - RESERVED_BYTES - slack)
    refused = refusal(context, "copies")
    if refused is not None:
        return refused
    boxes = _boxes(kernel)
    if isinstance(boxes, Refusal):
        return boxes
    place = _parameters(kernel)
    if isinstance(place, Refusal):
        return place
    instances = _instantiations(kernel)
    if isinstance(instances, Refusal):
        return instances
    writer = _Writer(context, boxes, place, instances)
    text = finish(kernel.text, writer.edits())
    diff = unified_diff(kernel.handed_in, text, kernel.file, f"{kernel.file} (tma, {stages} stages)")
    return RewrittenSource("tma", stages, text, diff, 1, context.launch_bytes, context.remedy, change=writer.change())


def _boxes(kernel: TiledKernel) -> tuple[tuple[RowMap, Box], ...] | Refusal:
    rows = rows_of(kernel)
    if isinstance(rows, Refusal):
        return rows
    out: list[tuple[RowMap, Box]] = []
    for m in rows:
        if isinstance(m.box, Refusal):
            return led_back(kernel, m.box)
        if m.box.element_bytes not in _DTYPES:
            return Refusal("unsupported_width", f"elements of {m.box.element_bytes} bytes", m.line)
        out.append((m, m.box))
    for (a, box), (b, _) in itertools.pairwise(out):
        # A box fills the padding of its rows too.
        if a.array == b.array and b.first_bytes < a.first_bytes + a.pitch_bytes * box.height:
            return Refusal("not_contiguous", f"the boxes of `{a.name}` overlap", b.line)
    if sum(box.width * box.height * box.element_bytes for _, box in out) > MAX_EXPECTED_BYTES:
        return Refusal("budget_exceeded", "a tile has more bytes than an mbarrier counts", kernel.line)
    return tuple(out)


def _parameters(kernel: TiledKernel) -> tuple[int, int] | Refusal:
    """Where the parentheses around the kernel's parameters stand."""
    text = lexical.without_comments(kernel.text)
    limit = kernel.loop.stmt.span.start
    found = re.finditer(rb"\b%s\s*\(" % re.escape(kernel.name.encode()), text)
    declared = [m for m in found if _is_declaration(text, m.start())]
    if len(declared) != 1 or declared[0].start() > limit:
        what = f"`{kernel.name}` is declared more than once: its parameters would have to change everywhere"
        return Refusal("not_understood", what, kernel.line, "keep the definition only")
    depth = 0
    for at in range(declared[0].end() - 1, limit):
        depth += (text[at : at + 1] == b"(") - (text[at : at + 1] == b")")
        if depth == 0:
            return declared[0].end() - 1, at
    return Refusal("not_understood", "the kernel's parameters are not understood", kernel.line)


def _instantiations(kernel: TiledKernel) -> tuple[Instantiation, ...] | Refusal:
    """The explicit instantiations, which name the same parameters."""
    made = instantiations_of(kernel.text.decode("latin-1"), kernel.name)  # a byte is a character: offsets stay
    for each in (i for i in made if i.in_macro):
        what = f"a macro instantiates `{kernel.name}`: its parameters would have to change there, too"
        return Refusal("not_understood", what, kernel.line_of(each.start), "write the instantiation out")
    return tuple(i for i in made if i.end is not None)


def _instantiated(kernel: TiledKernel, each: Instantiation, types: list[str]) -> list[Edit]:
    """An instantiation with more parameters; where it leaves ``__global__`` out, no compiler takes them without it."""
    end, begin = each.end or each.start, each.start + len("template")
    more = [] if b"__global__" in kernel.text[begin:end] else [Edit(begin, begin, " __global__")]
    return [*more, Edit(end, end, "".join(f", {t}" for t in types))]


def _is_declaration(text: bytes, at: int) -> bool:
    """Whether a name in front of a parenthesis is a kernel's, and no call of something."""
    start = max(text.rfind(mark, 0, at) for mark in (b";", b"}", b"{", b"#"))
    return b"__global__" in text[start + 1 : at]


class _Context(Context):
    """A ring whose stages lie at multiples of 128 bytes."""

    def alignment_bytes(self) -> int:
        return TARGET_ALIGNMENT_BYTES

    def misaligned(self, array: SharedArray, ring: bool) -> Refusal | None:
        if array.alignment and (self._own_alignment(array) is None or self._alignment_text(array) is None):
            return Refusal("misaligned", f"the alignment of `{array.name}` is not understood", array.line)
        if array.total_bytes % max(TARGET_ALIGNMENT_BYTES, self._own_alignment(array) or 0):
            what = f"a stage of `{array.name}` has {array.total_bytes} bytes, no multiple of {TARGET_ALIGNMENT_BYTES}"
            return Refusal("misaligned", what, array.line, "pad the array")
        return None

    def _alignment_text(self, array: SharedArray) -> tuple[int, int] | None:
        """Where the number in the declaration's ``alignas(…)`` or ``__align__(…)`` stands."""
        start, end = self._declaration_start(array), self.kernel.symbols[array.symbol].span.start
        found = list(_ALIGNED.finditer(self.kernel.text, start, end))
        return found[0].span(1) if len(found) == 1 else None

    def declarations(self, ring: bool) -> list[Edit]:
        out = super().declarations(ring)
        if self.dynamic_bytes:
            return out
        places = {
            self._alignment_text(a)
            for a in self.kernel.staged
            if a.alignment and (self._own_alignment(a) or 0) < TARGET_ALIGNMENT_BYTES
        }
        return [*out, *(Edit(*place, str(TARGET_ALIGNMENT_BYTES)) for place in places if place is not None)]


class _Writer:
    def __init__(
        self,
        context: Context,
        boxes: tuple[tuple[RowMap, Box], ...],
        place: tuple[int, int],
        instances: tuple[Instantiation, ...],
    ) -> None:
        self.c = context
        self.boxes = boxes
        self.opening, self.end = place
        self.instances = instances
        self.ring = RingWriter(context, tensor=True)
        n = context.names
        self.maps = [n.fresh(f"{m.name}_map") for m, _ in boxes]
        self.flag = n.fresh("use_maps")

    def edits(self) -> list[Edit]:
        edits = self.ring.edits(self)
        kind = self.ring.f["map"]
        added = [f"const __grid_constant__ {kind} {name}" for name in self.maps]
        # On lines of their own, below the first parameter.
        text, opening = self.c.kernel.text, self.opening
        column = len(text[line_start(text, opening) : opening + 1].decode().expandtabs(8))
        lines = "".join(f",\n{' ' * column}{a}" for a in [*added, f"int {self.flag}"])
        types = [f"const __grid_constant__ {kind}"] * len(added) + ["int"]
        made = [edit for each in self.instances for edit in _instantiated(self.c.kernel, each, types)]
        return [*edits, Edit(self.end, self.end, lines), *made]

    def change(self) -> LaunchChange:
        """The maps, the flag that says whether they could be made, and what else the flag depends on."""
        maps: list[TensorMapArg] = []
        needs = [f"encodable({', '.join(self.maps)})"]
        for (_, box), name in zip(self.boxes, self.maps, strict=True):
            pitch = f"{box.pitch} * {box.element_bytes}"
            dims, size = (box.columns, box.rows), (box.width, box.height)
            maps.append(TensorMapArg(name, box.pointer, _DTYPES[box.element_bytes], dims, (pitch,), size))
            needs += [f"({need})" for need in box.needs]
        condition = " * ".join(dict.fromkeys(needs))
        return LaunchChange(tensor_maps=tuple(maps), flags=(FlagArg(self.flag, condition),))

    def condition(self) -> list[str]:
        tests = list(dict.fromkeys(check for _, box in self.boxes for check in box.checks))
        line = f"const bool {self.ring.whole} = {' && '.join([f'{self.flag} != 0', *tests])};"
        return ["// Without maps (the host could not make them) threads copy; the same for all of them.", line]

    def issue(self) -> list[str]:
        f, ring, u = self.ring.f, self.ring, self.c.unit
        barrier = f"&{ring.full}[{ring.stage}]"
        sizes = " + ".join(f"{b.width} * {b.height} * {b.element_bytes}" for _, b in self.boxes)
        lines = [
            f"if ({ring.thread} == 0) {{",
            f"{u}{f['fence']}();",
            f"{u}{f['expect']}({barrier}, {sizes});",
        ]
        for (m, box), name in zip(self.boxes, self.maps, strict=True):
            target = f"&{m.name}" if not m.first_bytes else f"reinterpret_cast<char *>(&{m.name}) + {m.first_bytes}"
            lines.append(f"{u}{f['copy']}({target}, &{name}, {box.x}, {box.y}, {barrier});")
        return [*lines, "}"]
