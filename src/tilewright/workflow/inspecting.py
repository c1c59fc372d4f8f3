"""`tilewright inspect`: what is understood of a source, or why not. Nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import __version__
from tilewright.errors import EXIT_OK, EXIT_REFUSED, TilewrightError
from tilewright.launch.kernel_names import is_same_kernel
from tilewright.receipt import record, reports
from tilewright.settings import Settings
from tilewright.workflow.reading import read_file, sidecar_for

if TYPE_CHECKING:
    from tilewright.kloop.kernel import Copy, CopyLoop, LaneStore, LoadItem, TiledKernel
    from tilewright.launch.spec import LaunchSpec
    from tilewright.source.reader import KernelFunction, KernelSource


@dataclass(frozen=True)
class InspectOutcome:
    """Exit code 0: a K-loop was understood; 4: none was."""

    report: reports.InspectReport
    exit_code: int


def inspect(path: Path, *, kernel: str | None = None, settings: Settings) -> InspectOutcome:
    """Kernels, K-loops, phases, tiles and copies of a source.

    Raises:
        TilewrightError: no such file or kernel, a file that is not text, a template without arguments.
    """
    from tilewright.workflow.opening import read_with_headers

    source = read_with_headers(read_file(path), path, sidecar_for(path, None, None))
    source.kernel(kernel or (source.kernels[0].name if source.kernels else None))
    chosen = [k for k in source.kernels if kernel is None or k.name == kernel]
    inspected = tuple(_kernel(source, k, path) for k in chosen)
    report = reports.InspectReport(tool=record.Tool(__version__), file=str(path), kernels=inspected)
    return InspectOutcome(report, EXIT_OK if any(k.refusal is None for k in inspected) else EXIT_REFUSED)


def _kernel(source: KernelSource, function: KernelFunction, path: Path) -> reports.InspectedKernel:
    from dataclasses import replace

    from tilewright.kloop.kernel import Refusal
    from tilewright.kloop.trips import trip_count
    from tilewright.launch.bind import bind
    from tilewright.source.reader import open_kernel
    from tilewright.workflow.opening import _values
    from tilewright.workflow.records import loop_record, refusal_record, tile_record
    from tilewright.workflow.template_arguments import template_arguments
    from tilewright.workflow.understanding import understand

    spec = _sidecar(path, function.name)
    try:
        arguments = template_arguments(source, function, spec).values
    except TilewrightError as error:
        why = record.Refusal("not_understood", error.message, function.line, error.hint)
        return reports.InspectedKernel(function.name, function.line, why)
    values, aliases = _values(function, arguments, spec)
    opened = open_kernel(replace(source, aliases={**source.aliases, **aliases}), function, values)
    launch = bind(spec, "default", opened.constants.names()) if spec is not None else None
    understood = understand(
        opened,
        launch.block if launch is not None else None,
        launch.shared_bytes if launch is not None else None,
        spec is not None and spec.no_alias,
    )
    if isinstance(understood, Refusal):
        return reports.InspectedKernel(function.name, function.line, refusal_record(understood))
    compute = understood.text[understood.compute_span.start : understood.compute_span.end]
    math = "wmma" if b"mma_sync" in compute else ""
    tiles = trip_count(understood, launch.scalars) if launch is not None else None
    return reports.InspectedKernel(
        function.name,
        function.line,
        None,
        tile_record(understood, math),
        loop_record(understood, tiles),
        (*_copies(understood, understood.loads), *_streamed(understood)),
        understood.assumptions,
    )


def _sidecar(path: Path, name: str) -> LaunchSpec | None:
    spec = sidecar_for(path, None, None)
    return spec if spec is not None and is_same_kernel(spec.kernel, name) else None


def _copies(kernel: TiledKernel, items: Iterable[LoadItem], loop: CopyLoop | None = None) -> Iterable[reports.Copy]:
    from tilewright.kloop.kernel import Copy, CopyLoop, LaneStore

    for item in items:
        if isinstance(item, CopyLoop):
            yield from _copies(kernel, item.body, item)
        elif isinstance(item, Copy | LaneStore):
            yield _copy(kernel, item, loop)


def _streamed(kernel: TiledKernel) -> Iterable[reports.Copy]:
    """The stores of a load phase that is taken as a whole."""
    from tilewright.kloop.load_stream import Source
    from tilewright.source.effects import root

    for store in kernel.stream.stores if kernel.stream is not None else ():
        array = next(a for a in kernel.shared if a.symbol == store.array)
        source = store.source if isinstance(store.source, Source) else None
        lvalue = source.lvalue if source is not None else None
        if source is not None and source.register is not None and kernel.stream is not None:
            found = kernel.stream.registers[source.register].definitions
            lvalue = next((d[1] for d in found if d[1] is not None), None)
        name = root(lvalue) if lvalue is not None else None
        note = "computed or not loaded" if source is None else "through registers" if source.register else ""
        line = kernel.line_of(store.stmt.span.start)
        width = store.width_bytes
        yield reports.Copy(name.id if name else "?", array.name, line, array.type_text, width, None, note)


def _copy(kernel: TiledKernel, item: Copy | LaneStore, loop: CopyLoop | None) -> reports.Copy:
    from tilewright.kloop.kernel import CopyLoop, Fetch, LaneStore, Refusal, Widening
    from tilewright.source.effects import root

    array = next(a for a in kernel.shared if a.symbol == item.array)
    line = kernel.line_of(item.stmt.span.start)
    if isinstance(item, LaneStore):
        fetch = next(f for f in kernel.loads if isinstance(f, Fetch) and f.symbol.id == item.fetched)
        name = root(fetch.source)
        return reports.Copy(
            name.id if name else "?", array.name, line, array.type_text, item.width_bytes, None, "through registers"
        )
    name = root(item.source)
    notes = ["guarded"] if item.guard is not None else []
    wide = None
    if loop is not None and isinstance(loop.widening, Widening):
        wide = loop.widening.elements * item.width_bytes
        notes.append("can be widened")
    elif loop is not None and isinstance(loop.converting, CopyLoop):
        wide = 16
        notes.append("can be widened, element by element through its conversion")
    elif loop is not None and isinstance(loop.widening, Refusal) and item.width_bytes < 16:
        notes.append(f"cannot be widened: {loop.widening.message}")
    return reports.Copy(
        name.id if name else "?", array.name, line, item.type_text, item.width_bytes, wide, ", ".join(notes)
    )
