"""Counters for `tilewright verify`: one more run in the emulator, of a few blocks, without checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Executor, Program
from tilewright.launch.inputs import poisoned_outputs
from tilewright.receipt.verify_report import Counted, LineTraffic, PerTile
from tilewright.verification.baseline import BaselineRecord, SetRecord
from tilewright.verification.runs import POISONS

if TYPE_CHECKING:
    from tilewright.emulator.counters.mix import Counters
    from tilewright.emulator.run import Emulation

LaunchAt = Callable[[Mapping[str, int]], BoundLaunch]


def count(
    program: Program,
    kept: BaselineRecord,
    runner: Executor,
    *,
    launch_at: LaunchAt | None = None,
    reduction: str | None = None,
    extra_sets: Mapping[str, Mapping[str, int]] | None = None,
) -> Counted | None:
    """Count what a kernel does at the set ``small``, or at the smallest one, and per tile of its K-loop.

    Args:
        program: what is counted; it has passed verification.
        kept: of the baseline; its inputs are used again.
        runner: the executor of the verification. launch_at: the program's launch, where it is not the baseline's.
        reduction: the size that the K-loop runs over; None where it is not known.
        extra_sets: sizes at whole numbers of tiles, one tile among them.

    Returns:
        None where the runner is not the emulator, or a run came to nothing.
    """
    from tilewright.emulator.executor import EmulatorExecutor

    if not isinstance(runner, EmulatorExecutor):
        return None
    options = replace(runner.options, checks=False, counters=True)
    executor = EmulatorExecutor(runner.arch, options, runner.main_file)
    own = [record for record in kept.sets if record.name in kept.spec.sizes]
    if not own:
        return None
    chosen = next((record for record in own if record.name == "small"), own[0])
    done = _run(executor, program, chosen, launch_at)
    if done is None or done.counters is None:
        return None
    per_tile = None
    pair = _two_depths(chosen, kept, reduction, extra_sets or {})
    if pair is not None:
        runs = [done if record is chosen else _run(executor, program, record, launch_at) for record, _ in pair]
        per_tile = _per_tile(runs, pair[0][1] - pair[1][1])
    return _counted(chosen.name, done, done.counters, per_tile)


def _run(executor: Executor, program: Program, record: SetRecord, launch_at: LaunchAt | None) -> Emulation | None:
    from tilewright.emulator.executor import EmulatorExecutor

    assert isinstance(executor, EmulatorExecutor)
    launch = record.launch if launch_at is None else launch_at(record.sizes)
    arrays = {**record.inputs, **poisoned_outputs(record.launch, POISONS[0])}
    return executor.run_counted(program, launch, arrays, part="corners")[1]


def _two_depths(
    chosen: SetRecord, kept: BaselineRecord, reduction: str | None, extra: Mapping[str, Mapping[str, int]]
) -> tuple[tuple[SetRecord, int], tuple[SetRecord, int]] | None:
    """Two sets that differ in the number of tiles alone, and these numbers, the larger one first."""
    if reduction is None:
        return None
    depth = min((sizes[reduction] for sizes in extra.values() if sizes.get(reduction, 0) > 0), default=0)
    if not depth:
        return None
    found: dict[int, SetRecord] = {}
    for record in kept.sets:
        tiles, rest = divmod(record.sizes.get(reduction, 1), depth)
        if not rest and tiles and {**record.sizes, reduction: 0} == {**chosen.sizes, reduction: 0}:
            found.setdefault(tiles, record)
    if chosen.sizes.get(reduction, 1) % depth == 0:
        found[chosen.sizes[reduction] // depth] = chosen
    most = sorted(found, reverse=True)[:2]
    return ((found[most[0]], most[0]), (found[most[1]], most[1])) if len(most) == 2 else None


def _counted(size: str, done: Emulation, counters: Counters, per_tile: PerTile | None) -> Counted:
    return Counted(
        size,
        done.blocks,
        tuple(
            LineTraffic(
                line,
                int(x.requests),
                int(x.sectors),
                int(x.ideal_sectors),
                int(x.wavefronts),
                int(x.ideal_wavefronts),
                int(x.bytes),
            )
            for line, x in sorted(counters.lines.items(), key=lambda item: item[0] or 0)
        ),
        dict(counters.mix),
        counters.thread_instructions,
        dict(counters.operations),
        counters.global_bytes_read,
        counters.global_bytes_written,
        counters.shared_bytes,
        per_tile,
    )


def _per_tile(runs: list[Emulation | None], tiles: int) -> PerTile | None:
    """What one tile adds to one block."""
    longer, shorter = runs
    if longer is None or shorter is None or longer.counters is None or shorter.counters is None:
        return None
    share = 1 / (tiles * longer.blocks)
    more, less = longer.counters, shorter.counters

    def line(name: str) -> float:
        both = (sum(getattr(x, name) for x in counters.lines.values()) for counters in (more, less))
        return float(next(both) - next(both)) * share

    flops = {kind: (n - less.operations.get(kind, 0)) * share for kind, n in more.operations.items()}
    return PerTile(
        line("requests"),
        line("sectors"),
        line("ideal_sectors"),
        line("wavefronts"),
        line("ideal_wavefronts"),
        (more.global_bytes_read - less.global_bytes_read) * share,
        (more.global_bytes_written - less.global_bytes_written) * share,
        (more.shared_bytes - less.shared_bytes) * share,
        (more.thread_instructions - less.thread_instructions) * share,
        {kind: n for kind, n in flops.items() if n},
    )
