"""What a launch does, counted in the emulator, and the bytes that its arguments are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from tilewright.analyze.demand import Traffic
from tilewright.analyze.record import Count
from tilewright.analyze.roof import PRECISIONS
from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.executor import Program
from tilewright.launch.inputs import make_inputs, poisoned_outputs

if TYPE_CHECKING:
    from tilewright.emulator.counters.mix import Counters
    from tilewright.launch.spec import LaunchSpec

# An analysis answers in seconds: larger arrays, and longer runs, are left to smaller size sets.
MAX_BYTES = 384 << 20
MAX_SECONDS = 12.0
SEED = 1
POISON = 0xA5
WARP = 32
MOST_LINES = 3


@dataclass(frozen=True)
class Depths:
    """Two size sets that differ in the number of tiles alone, and the number that is wanted."""

    few: Mapping[str, int]
    few_tiles: int
    more: Mapping[str, int]
    more_tiles: int
    wanted: int


@dataclass(frozen=True)
class Work:
    """One block's work, averaged over the blocks that ran, and the launch's.

    Attributes:
        traffic: of a block. operations: of the launch, by precision of the card's peaks (or the emulator's own kind).
        read_bytes: of global memory, by a block. source: which run. lines: what wastes most, in words.
        problem: why nothing was counted.
    """

    traffic: Traffic | None = None
    operations: Mapping[str, float] = field(default_factory=dict)
    read_bytes: float = 0.0
    source: str = ""
    lines: tuple[str, ...] = ()
    problem: str = ""


def launch_of(
    spec: LaunchSpec,
    sizes: Mapping[str, int],
    constants: Mapping[str, int | float],
    grid: tuple[int, int, int] | None,
    block: tuple[int, int, int] | None,
    shared_bytes: int | None,
) -> BoundLaunch:
    """The sidecar's launch at some sizes, with what was asked for in its place."""
    launch = bind(spec, sizes, constants)
    return replace(
        launch,
        grid=grid or launch.grid,
        block=block or launch.block,
        shared_bytes=launch.shared_bytes if shared_bytes is None else shared_bytes,
    )


def unique_bytes(launch: BoundLaunch) -> tuple[float, float]:
    """(all, written): every buffer read once, written once, or both, as its role says."""
    read = sum(_bytes(a) for a in launch.buffers if a.is_read_first)
    written = sum(_bytes(a) for a in launch.buffers if a.is_written)
    return float(read + written), float(written)


def array_bytes(launch: BoundLaunch) -> int:
    return sum(_bytes(a) for a in launch.buffers)


def _bytes(array: object) -> int:
    from tilewright.launch.bind import BoundArray

    assert isinstance(array, BoundArray)
    return prod(array.shape) * array.dtype.item_bytes


def count_work(program: Program, launch: BoundLaunch, depths: Depths | None, at: LaunchAt, file: str) -> Work:
    """Run corner blocks and the middle one, and scale what they do to a block and to the launch.

    Args:
        launch: the one that is analysed. depths: where its K-loop is long: two short runs, and the line through them.
        at: the launch at other sizes. file: name of the source, for its lines.
    """
    if not program.ptx:
        return Work(problem="there is no PTX to run")
    blocks = prod(launch.grid)
    if depths is None:
        ran = _run(program, launch, file)
        if isinstance(ran, str):
            return Work(problem=ran)
        return _work(*ran, blocks, f"emulator, {ran[1]:,} of {blocks:,} blocks")
    few, more = (_run(program, at(sizes), file) for sizes in (depths.few, depths.more))
    if isinstance(few, str) or isinstance(more, str):
        return Work(problem=few if isinstance(few, str) else str(more))
    scale = (depths.wanted - depths.more_tiles) / (depths.more_tiles - depths.few_tiles)
    whole = _sum(more[0], _sum(more[0], few[0], -1.0), scale)
    tiles = f"{depths.few_tiles} and {depths.more_tiles} tiles, extended to {depths.wanted}"
    source = f"emulator, {more[1]:,} of {blocks:,} blocks, {tiles}"
    return _work(whole, more[1], blocks, source)


class LaunchAt:
    """The launch at other sizes."""

    def __init__(self, spec: LaunchSpec, constants: Mapping[str, int | float], like: BoundLaunch) -> None:
        self._spec, self._constants, self._like = spec, constants, like

    def __call__(self, sizes: Mapping[str, int]) -> BoundLaunch:
        return launch_of(self._spec, sizes, self._constants, self._like.grid, self._like.block, self._like.shared_bytes)


def _run(program: Program, launch: BoundLaunch, file: str) -> tuple[Counters, int] | str:
    from tilewright.emulator.executor import EmulatorExecutor
    from tilewright.emulator.options import EmulatorOptions

    options = EmulatorOptions(schedule="lockstep", checks=False, counters=True, max_seconds=MAX_SECONDS)
    executor = EmulatorExecutor(program.arch, options, file)
    try:
        arrays = {**make_inputs(launch, SEED), **poisoned_outputs(launch, POISON)}
    except (TilewrightError, MemoryError) as error:
        return str(error)
    ran, done = executor.run_counted(program, launch, arrays, part="corners")
    if done is None or done.counters is None:
        return ran.error or "the run came to nothing"
    return done.counters, done.blocks


def _sum(one: Counters, other: Counters, factor: float) -> Counters:
    """``one + factor * other``, line by line and kind by kind."""
    from tilewright.emulator.counters.mix import LineTraffic

    scaled = other.times(factor)

    def both(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
        return {k: a.get(k, 0.0) + b.get(k, 0.0) for k in {**a, **b}}

    lines = {
        k: one.lines.get(k, LineTraffic()).plus(scaled.lines.get(k, LineTraffic()))
        for k in {**one.lines, **scaled.lines}
    }
    return replace(
        one,
        lines=lines,
        mix=both(one.mix, scaled.mix),
        thread_instructions=one.thread_instructions + scaled.thread_instructions,
        operations=both(one.operations, scaled.operations),
        global_bytes_read=one.global_bytes_read + scaled.global_bytes_read,
        global_bytes_written=one.global_bytes_written + scaled.global_bytes_written,
        shared_bytes=one.shared_bytes + scaled.shared_bytes,
    )


def _work(counters: Counters, ran: int, blocks: int, source: str) -> Work:
    share = 1 / max(ran, 1)
    lines = counters.lines.values()
    traffic = Traffic(
        requests=sum(x.requests for x in lines) * share,
        sectors=sum(x.sectors for x in lines) * share,
        ideal_sectors=sum(x.ideal_sectors for x in lines) * share,
        wavefronts=sum(x.wavefronts for x in lines) * share,
        ideal_wavefronts=sum(x.ideal_wavefronts for x in lines) * share,
        instructions=counters.thread_instructions * share / WARP,
        requested_bytes=(counters.global_bytes_read + counters.global_bytes_written) * share,
    )
    operations: dict[str, float] = {}
    for kind, n in counters.operations.items():
        name = PRECISIONS.get(kind, kind)
        operations[name] = operations.get(name, 0.0) + n * share * blocks
    return Work(traffic, operations, counters.global_bytes_read * share, source, _wasteful(counters))


def _wasteful(counters: Counters) -> tuple[str, ...]:
    """The source lines that touch most sectors, or make most passes, beyond need."""
    found: list[tuple[float, str]] = []
    for line, x in counters.lines.items():
        where = f"line {line}" if line is not None else "an unknown line"
        if x.requests and x.sectors > 1.25 * x.ideal_sectors:
            told = f"{x.sectors / x.requests:.1f} sectors per request, {x.ideal_sectors / x.requests:.1f} would do"
            found.append((x.sectors - x.ideal_sectors, f"{where}: {told}"))
        if x.ideal_wavefronts and x.wavefronts > 1.1 * x.ideal_wavefronts:
            told = f"{x.wavefronts / x.ideal_wavefronts:.1f} passes over shared memory where 1 would do"
            found.append((x.wavefronts - x.ideal_wavefronts, f"{where}: {told}"))
    return tuple(text for _, text in sorted(found, reverse=True)[:MOST_LINES])


def flops_of(operations: Mapping[str, float], source: str) -> Count:
    """All operations of a launch, those of integer tensor cores among them."""
    total = sum(operations.values())
    return Count(total or None, f"{source} x the grid" if total else "no operation of a kind that is counted")
