"""`tilewright ladder`: families listed, rungs shown, run in the emulator, timed on a card."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import EXIT_CHECK_FAILED, EXIT_MISSING, EXIT_OK, TilewrightError
from tilewright.ladder.claims import Evidence
from tilewright.ladder.family import Family, Rung, load_families, load_family
from tilewright.ladder.judging import record_of
from tilewright.ladder.report import (
    FamilyEntry,
    LadderBench,
    LadderList,
    LadderRun,
    LadderShow,
    RungRecord,
    ShownRung,
)
from tilewright.ladder.writing import only_rung, write_rung
from tilewright.settings import Settings

if TYPE_CHECKING:
    from tilewright.gpu.device import GpuInfo
    from tilewright.ladder.compiled_peers import PeerOptions
    from tilewright.measure.turns import Turns

Progress = Callable[[str], None]
DEFAULT_SIZE = "small"
RUNG_SHARE = 5  # the rungs of a family may take that many times as long at a set of sizes as the best one and its peers


@dataclass(frozen=True)
class ClimbOutcome:
    """What a run or a bench came to, and the exit code: 0, or 1 where a rung failed or does not show its claims."""

    report: LadderRun | LadderBench
    exit_code: int


def list_families() -> LadderList:
    """Every family that the package holds."""
    return LadderList(
        tuple(FamilyEntry(f.name, f.title, f.op, f.dtypes, tuple(r.name for r in f.rungs)) for f in load_families())
    )


def show_family(name: str, rung: str | None = None, *, out: Path | None = None, dtype: str | None = None) -> LadderShow:
    """A family's rungs with their sources, each against the one before; or one of them.

    Args:
        out: write the rung into this folder, for an element type; None for the rung's first.

    Raises:
        TilewrightError: ``ladder/no_family``, ``ladder/no_rung``, ``ladder/no_dtype``.
    """
    family = load_family(name)
    rungs = (family.rung(rung),) if rung else family.rungs
    written: tuple[Path, ...] = ()
    if out is not None:
        one = only_rung(family, rung)
        written = write_rung(family, one, dtype or one.dtypes[0], out)
    shown = tuple(_shown(family, r) for r in rungs)
    return LadderShow(family.name, family.title, family.op, shown, tuple(map(str, written)))


def _shown(family: Family, rung: Rung) -> ShownRung:
    before = family.before(rung)
    source = rung.file.read_text("utf-8")
    diff = ""
    if before is not None:
        old = before.file.read_text("utf-8").splitlines()
        diff = "\n".join(difflib.unified_diff(old, source.splitlines(), before.file.name, rung.file.name, lineterm=""))
    return ShownRung(
        rung.name,
        f"{family.name}/{rung.file.name}",
        rung.technique,
        rung.changes,
        before.name if before else None,
        rung.generated_from,
        rung.min_arch,
        rung.dtypes,
        tuple(claim.text for claim in rung.claims),
        source,
        diff,
    )


def run_family(
    name: str,
    *,
    rung: str | None = None,
    dtype: str | None = None,
    size: str | None = None,
    arch: str | None = None,
    settings: Settings,
    progress: Progress = lambda _: None,
) -> ClimbOutcome:
    """Run rungs in the emulator, with counters, and check what they claim.

    Args:
        rung: one of them; None for all. dtype: None for the family's first. size: name of a set; None for ``small``.
            ``all`` for every dtype, or every set that is emulated.

    Raises:
        TilewrightError: ``ladder/no_family``, ``ladder/no_rung``, ``ladder/no_dtype``, ``ladder/no_size``; what
            building raises.
    """
    family = load_family(name)
    rungs = (family.rung(rung),) if rung else family.rungs
    evidence = Evidence(settings, arch)
    records: list[RungRecord] = []
    for kind in _chosen(dtype, family.dtypes, family.dtypes[0], "dtype"):
        for at in _chosen(size, family.emulated_sets(), DEFAULT_SIZE, "size"):
            for one in rungs:
                progress(f"{family.name} {one.name}, {kind}, {at}")
                records.append(record_of(family, one, kind, at, evidence))
    report = LadderRun(family.name, family.title, family.op, "emulator", tuple(records))
    ran = [r for r in records if r.verdict != "not_run"]
    return ClimbOutcome(report, EXIT_OK if all(r.holds for r in ran) else EXIT_CHECK_FAILED)


def _chosen(asked: str | None, known: Iterable[str], default: str, what: str) -> tuple[str, ...]:
    known = tuple(known)
    if asked == "all":
        return known
    names = tuple(dict.fromkeys((asked or default).split(",")))
    for name in names:
        if name not in known:
            raise TilewrightError(
                f"ladder/no_{what}", f"there is no {what} '{name}'.", {}, f"There are: all, {', '.join(known)}."
            )
    return names


def bench_family(
    name: str,
    *,
    rung: str | None = None,
    dtype: str | None = None,
    size: str | None = None,
    peers: PeerOptions | None = None,
    sweep: bool = False,
    build_only: bool = False,
    records: Path | None = None,
    at_most_s: float = math.inf,
    turns: Turns | None = None,
    settings: Settings,
    progress: Progress = lambda _: None,
) -> ClimbOutcome:
    """Time rungs on this machine's GPU, interleaved, each after it has passed at the small sets there.

    Args:
        size: name of a set; None for ``default``.
        dtype: None for the family's first, ``all`` for every one, ``float32,float16`` for some.
        peers: whom to time the best rungs against; None for nobody.
        sweep: peers at the sizes of the sweep, too.
        build_only: build and count what this will need, into the cache, and time nothing.
        records: where ``ladder-FAMILY-DTYPE.json`` is written once an element type is done; None for nowhere.
        at_most_s: sets of sizes for peers that were not begun by then are left out. Each element type gets its share
            of what is left once it has begun; where that is short, fewer rounds of all sets.
        turns: with other processes at this card.

    Raises:
        TilewrightError: ``gpu/none`` (exit 3) where there is no GPU; else as `run_family`.
    """
    family = load_family(name)
    rungs = (family.rung(rung),) if rung else family.rungs
    dtypes = _chosen(dtype, family.dtypes, family.dtypes[0], "dtype")
    chosen = _chosen(size, family.sizes, "default", "size")
    from tilewright.gpu.device import find_gpu

    info = find_gpu()
    if info is None:
        hint = "nvidia-smi shows why; `tilewright ladder run` needs none."
        raise TilewrightError("gpu/none", "Times need a GPU, and none was found.", {}, hint, EXIT_MISSING)
    sets = _sets(family, chosen, sweep)
    if peers is not None:
        from tilewright.ladder.peer_bench import need_torch

        need_torch()  # before anything is timed in vain
    if build_only:
        return _built(family, rungs, dtypes, sets, info, peers, settings, progress)
    from tilewright.ladder.report import joined

    done, end = [], time.monotonic() + at_most_s
    for left, one in zip(range(len(dtypes), 0, -1), dtypes, strict=True):
        done.append(_timed(family, rungs, one, chosen, sets, info, peers, settings, progress, turns, end, left))
        if records is not None:
            _write(done[-1], records / f"ladder-{family.name}-{one}.json")
    report = joined(done)
    failed = any(r.verdict == "failed" for r in report.rungs)
    return ClimbOutcome(report, EXIT_CHECK_FAILED if failed else EXIT_OK)


def _timed(
    family: Family,
    rungs: tuple[Rung, ...],
    dtype: str,
    chosen: tuple[str, ...],
    sets: list[tuple[str, Mapping[str, int]]],
    info: GpuInfo,
    peers: PeerOptions | None,
    settings: Settings,
    progress: Progress,
    turns: Turns | None,
    end: float,
    left: int,
) -> LadderBench:
    """One element type of those that are left: the rungs at the sets that were chosen, then the peers at all."""
    from tilewright.ladder.peer_bench import bench_peers
    from tilewright.ladder.timing import bench
    from tilewright.measure.measure import Plan

    plan = Plan(min_rounds=10, budget_s=RUNG_SHARE * peers.seconds) if peers is not None else None
    report = bench(family, rungs, (dtype,), chosen, info, settings, progress, plan, turns)
    if peers is None:
        return report
    found = bench_peers(family, (dtype,), sets, info, settings, peers, progress, end, left, turns)
    return replace(
        report,
        points=found.points,
        torch=found.torch,
        triton=found.triton,
        compiled=peers.compiled + (", and autotuned" if peers.autotune else ""),
        copy_gbps=found.copy_gbps,
        launch_us=found.launch_us,
    )


def _write(report: LadderBench, file: Path) -> None:
    """In one step: who reads it finds all of it, or nothing."""
    from tilewright.receipt.record import to_json

    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_suffix(".new")
    own.write_text(to_json(report), "utf-8")
    own.replace(file)


def _sets(family: Family, chosen: Iterable[str], sweep: bool) -> list[tuple[str, Mapping[str, int]]]:
    """The sets for peers, by name; those of the sweep have none."""
    sets: list[tuple[str, Mapping[str, int]]] = [(name, family.sizes[name]) for name in chosen]
    if sweep:
        from tilewright.ladder.sweep import sweep_sizes

        known = [dict(sizes) for _, sizes in sets]
        sets += [("", sizes) for sizes in sweep_sizes(family) if sizes not in known]
    return sets


def _built(
    family: Family,
    rungs: tuple[Rung, ...],
    dtypes: tuple[str, ...],
    sets: list[tuple[str, Mapping[str, int]]],
    info: GpuInfo,
    peers: PeerOptions | None,
    settings: Settings,
    progress: Progress,
) -> ClimbOutcome:
    """What a bench will need, in the caches, and an empty report."""
    from tilewright.ladder.building import build_one, builds_of
    from tilewright.ladder.peer_bench import warm_peers
    from tilewright.ladder.yardstick import build_copy

    for build in builds_of(family, rungs, dtypes, sets, info):
        progress(build.title)
        build_one(build, info, settings)  # what is wrong with it is told when it is timed
    if peers is not None:
        build_copy(info.arch, settings)
        warm_peers(family, dtypes, sets, settings, peers)
    return ClimbOutcome(LadderBench(family.name, family.title, info.name, info.driver, "", ()), EXIT_OK)
