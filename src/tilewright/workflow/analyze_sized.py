"""The launch that `tilewright analyze` looks at: its shape and sizes, and what it does, counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.analyze.record import Launch
from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device
from tilewright.arch.occupancy import occupancy
from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch
from tilewright.workflow.analyze_counts import (
    MAX_BYTES,
    Depths,
    LaunchAt,
    Work,
    array_bytes,
    count_work,
    launch_of,
)
from tilewright.workflow.analyze_subject import Say, Subject
from tilewright.workflow.analyze_tiled import Tiled
from tilewright.workflow.analyzing import AnalyzeOptions

# A K-loop of more tiles than this is counted in two short runs.
LONG_LOOP = 12
# What a draft's sizes are multiplied by, until the launch has so many waves (on as many SMs, where no card is known).
SCALES = (2, 4, 8, 16, 32, 64, 256, 1024, 4096)
WAVES = 4
SOME_SMS = 128


@dataclass(frozen=True)
class Sized:
    """The launch that is analysed: shape, sizes, and what is bound to them where a sidecar says so.

    ``is_given``: grid, block or shared bytes were given, and are not the sidecar's.
    """

    launch: Launch
    sizes: Mapping[str, int]
    bound: BoundLaunch | None = None
    notes: tuple[str, ...] = ()
    is_given: bool = False


def sized_launch(subject: Subject, given: AnalyzeOptions, arch: Arch, device: Device | None) -> Sized:
    """The launch, of the sidecar's default set unless sizes were given."""
    if subject.spec is None:
        source = "as given" if given.block or given.grid else ""
        block = given.block or ((subject.threads, 1, 1) if subject.threads else None)
        if given.block is None and subject.threads:
            source = f"block: {subject.threads_source}"
        shared = subject.shared_bytes if given.shared_bytes is None else given.shared_bytes
        return Sized(Launch(given.grid, block, shared, source), dict(given.sizes))
    sizes = {**subject.spec.sizes["default"], **given.sizes}
    unknown = sorted(set(given.sizes) - set(subject.spec.sizes["default"]))
    if unknown:
        have = ", ".join(subject.spec.sizes["default"])
        message = f"The sidecar has no size {', '.join(unknown)}; it has {have}."
        raise TilewrightError("analyze/unknown_size", message, {"file": str(subject.spec.path)}, "Name one of these.")
    if subject.is_drafted and not given.sizes and not given.grid:
        return _filling(subject, sizes, given, arch, device)
    return _bound(subject, sizes, given, "the sidecar at its default sizes" if not given.sizes else "the sidecar")


def _filling(
    subject: Subject, sizes: Mapping[str, int], given: AnalyzeOptions, arch: Arch, device: Device | None
) -> Sized:
    """A draft's sizes are small, and nobody's: so many times as large that the launch fills the card."""
    own = _bound(subject, sizes, given, "a drafted sidecar")
    threads = own.launch.threads or 1
    smem_bytes = subject.smem_bytes + own.launch.shared_bytes
    places = (device.sms if device is not None else SOME_SMS) * max(
        1, occupancy(arch, threads, subject.registers, smem_bytes).blocks_per_sm
    )
    best = own
    for times in SCALES:
        if (best.launch.blocks or 0) > WAVES * places:
            break
        try:
            larger = _bound(subject, {name: n * times for name, n in sizes.items()}, given, "a drafted sidecar")
        except TilewrightError:
            break  # a size that the launch cannot have
        if larger.bound is None or array_bytes(larger.bound) > MAX_BYTES:
            break
        note = f"The drafted sizes are taken {times} times as large, so that the launch fills the card: --size."
        best = replace(larger, notes=(note,))
    return best


def _bound(subject: Subject, sizes: Mapping[str, int], given: AnalyzeOptions, source: str) -> Sized:
    assert subject.spec is not None
    bound = launch_of(subject.spec, sizes, subject.constants or {}, given.grid, given.block, given.shared_bytes)
    changed = [name for name in ("grid", "block", "shared_bytes") if getattr(given, name) is not None]
    told = f"{source}, {' and '.join(changed)} as given" if changed else source
    launch = Launch(bound.grid, bound.block, bound.shared_bytes, told)
    return Sized(launch, dict(sizes), bound, is_given=bool(changed))


def counted_work(subject: Subject, sized: Sized, given: AnalyzeOptions, tiled: Tiled, say: Say) -> tuple[Sized, Work]:
    """Counters at the sizes asked for; where those take too long, everything at a smaller set of the sidecar."""
    if sized.bound is None or subject.spec is None:
        return sized, Work(problem="there is no sidecar, so nothing can be run")
    if not subject.program.ptx:
        return sized, Work(problem="there is no PTX to run")
    say("counting accesses")
    at = LaunchAt(subject.spec, subject.constants or {}, sized.bound)
    name = Path(subject.kernel.file).name
    work = Work(problem=f"its arrays take more than {MAX_BYTES >> 20} MiB")
    depths, here = _depths(sized, tiled), array_bytes(sized.bound)
    short = at(depths.more) if depths is not None else sized.bound
    if array_bytes(short) <= MAX_BYTES:
        work = count_work(subject.program, sized.bound, depths, at, name)
    if work.problem and depths is not None and here <= MAX_BYTES:
        work = count_work(subject.program, sized.bound, None, at, name)
    if not work.problem or given.sizes or given.grid:
        return sized, work
    if subject.is_drafted and sized.notes:  # the kernel does not handle larger sizes than those it was drafted for
        sized = _bound(subject, subject.spec.sizes["default"], given, "a drafted sidecar")
        assert sized.bound is not None
        return sized, count_work(subject.program, sized.bound, None, at, name)
    sets = sorted(subject.spec.sizes.items(), key=lambda item: array_bytes(at(item[1])))
    for other, sizes in sets[::-1]:
        smaller = _bound(subject, sizes, given, f"the sidecar at its sizes '{other}'")
        if smaller.bound is None:
            break
        if array_bytes(smaller.bound) < min(here, MAX_BYTES):
            say(f"counting accesses at {other}")
            found = count_work(subject.program, smaller.bound, None, at, name)
            if not found.problem:
                note = f"At the default sizes nothing could be counted ({work.problem}): all figures are for '{other}'."
                return replace(smaller, notes=(note,)), found
            break
    return sized, work


def _depths(sized: Sized, tiled: Tiled) -> Depths | None:
    """Two short runs for a K-loop of many tiles."""
    tiles, name, step = tiled.num_tiles, tiled.reduction, tiled.step
    if tiles is None or name is None or not step or tiles <= LONG_LOOP:
        return None
    return Depths({**sized.sizes, name: 3 * step}, 3, {**sized.sizes, name: 6 * step}, 6, tiles)
