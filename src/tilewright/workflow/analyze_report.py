"""The report of `tilewright analyze`, from a subject and what its caller knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright import __version__
from tilewright.analyze.demand import PASS_BYTES, SECTOR_BYTES, Rates, demand_of
from tilewright.analyze.facts import Facts
from tilewright.analyze.floors import Setting
from tilewright.analyze.from_sass import tiled_from_sass
from tilewright.analyze.hot_loop import GLOBAL_LOADS, HotLoop, hot_loop, width_bytes
from tilewright.analyze.ncu import read_ncu
from tilewright.analyze.record import AnalyzeReport, Baseline, Count, Launch, Memory, Ratios, Residency, Sass
from tilewright.analyze.residency import residency, shared_cliff
from tilewright.analyze.roof import precision_of, roofline
from tilewright.analyze.serial import serial
from tilewright.analyze.setmaxnreg import dropped
from tilewright.analyze.strategies.ranking import ranked
from tilewright.analyze.tables import mix_rows
from tilewright.analyze.verdict import verdict
from tilewright.analyze.warnings import warnings_for
from tilewright.arch.arch import Arch, canonical_arch, load_arch
from tilewright.arch.devices import Device
from tilewright.arch.roofline import Level
from tilewright.arch.told import corrected
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.launch.bind import BoundLaunch
from tilewright.receipt import record
from tilewright.sass.operands import access_bytes
from tilewright.sass.proof import OverlapProof, prove
from tilewright.workflow.analyze_counts import (
    MAX_BYTES,
    Depths,
    LaunchAt,
    Work,
    array_bytes,
    count_work,
    flops_of,
    launch_of,
    unique_bytes,
)
from tilewright.workflow.analyze_subject import Asked, Say, Subject, open_subject
from tilewright.workflow.analyze_tiled import Tiled, capped_build, tiled_of
from tilewright.workflow.analyzing import AnalyzeOptions, card_for
from tilewright.workflow.reading import read_file

# A K-loop of more tiles than this is counted in two short runs.
LONG_LOOP = 12


@dataclass(frozen=True)
class Sized:
    """The launch that is analysed: shape, sizes, and what is bound to them where a sidecar says so."""

    launch: Launch
    sizes: Mapping[str, int]
    bound: BoundLaunch | None = None
    notes: tuple[str, ...] = ()


def make_report(
    asked: Asked, given: AnalyzeOptions, card: Device | None, gpu: GpuInfo | None, say: Say
) -> AnalyzeReport:
    """Open, measure on paper, count, judge."""
    subject = open_subject(asked, say)
    arch, differences = _arch_of(subject, gpu)
    device, reason = (card, "as asked with --device") if card is not None else card_for(arch.name, gpu)
    if device is not None and load_arch(device.arch).name != arch.name:
        message = f"The code is for {arch.name}, and {device.name} runs {device.arch}."
        raise TilewrightError(
            "analyze/other_arch", message, {"file": str(asked.path)}, "Name a card of that architecture."
        )
    say("reading the machine code")
    loop, proof = hot_loop(subject.function), prove(subject.function)
    sized = _sized(subject, given)
    tiled = tiled_of(subject, proof, sized.bound, sized.launch.threads, device.sms if device is not None else None)
    sized, work = _counted(subject, sized, given, tiled, say)
    if sized.launch.threads is None:
        raise _no_block(asked.path)
    facts = _facts(subject, arch, device, loop, proof, sized, work, tiled, given)
    residence, fit = residency(arch, device, facts.threads, facts.registers, facts.smem_bytes, facts.blocks)
    facts = replace(facts, fit=fit, capped=capped_build(subject, fit, facts.threads, say))
    report = _report(subject, facts, sized, work, given, tiled, reason, residence)
    return replace(report, notes=(*report.notes, *differences))


def _arch_of(subject: Subject, gpu: GpuInfo | None) -> tuple[Arch, tuple[str, ...]]:
    """(the architecture, what the GPU here says otherwise): where there is one, its own answers win."""
    arch = load_arch(subject.target.arch)
    if gpu is None or canonical_arch(gpu.arch) != arch.name:
        return arch, ()
    told = {
        "smem_per_sm_bytes": gpu.smem_per_sm_bytes,
        "smem_optin_max_bytes": gpu.smem_per_block_bytes,
        "smem_reserved_bytes": gpu.reserved_smem_bytes,
        "registers_per_sm": gpu.registers_per_sm,
        "max_threads_per_sm": gpu.threads_per_sm,
        "max_blocks_per_sm": gpu.blocks_per_sm,
    }
    found, differences = corrected(arch, told)
    return found, tuple(f"{difference.text}: the card's is used." for difference in differences)


def _sized(subject: Subject, given: AnalyzeOptions) -> Sized:
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
    return _bound(subject, sizes, given, "the sidecar at its default sizes" if not given.sizes else "the sidecar")


def _bound(subject: Subject, sizes: Mapping[str, int], given: AnalyzeOptions, source: str) -> Sized:
    assert subject.spec is not None
    bound = launch_of(subject.spec, sizes, subject.constants or {}, given.grid, given.block, given.shared_bytes)
    changed = [name for name in ("grid", "block", "shared_bytes") if getattr(given, name) is not None]
    told = f"{source}, {' and '.join(changed)} as given" if changed else source
    return Sized(Launch(bound.grid, bound.block, bound.shared_bytes, told), dict(sizes), bound)


def _counted(subject: Subject, sized: Sized, given: AnalyzeOptions, tiled: Tiled, say: Say) -> tuple[Sized, Work]:
    """Counters at the sizes asked for; where those take too long, everything at a smaller set of the sidecar."""
    if sized.bound is None or subject.spec is None:
        return sized, Work(problem="there is no sidecar, so nothing can be run")
    if not subject.program.ptx:
        return sized, Work(problem="there is no PTX to run")
    say("counting accesses")
    at = LaunchAt(subject.spec, subject.constants or {}, sized.bound)
    name = Path(subject.kernel.file).name
    work = Work(problem=f"its arrays take more than {MAX_BYTES >> 20} MiB")
    depths = _depths(sized, tiled)
    short = at(depths.more) if depths is not None else sized.bound
    if array_bytes(short) <= MAX_BYTES:
        work = count_work(subject.program, sized.bound, depths, at, name)
    if not work.problem or given.sizes or given.grid:
        return sized, work
    sets = sorted(subject.spec.sizes.items(), key=lambda item: array_bytes(at(item[1])))
    for other, sizes in sets[::-1]:
        smaller = _bound(subject, sizes, given, f"the sidecar at its sizes '{other}'")
        assert smaller.bound is not None
        if array_bytes(smaller.bound) < min(array_bytes(sized.bound), MAX_BYTES):
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


def _facts(
    subject: Subject,
    arch: Arch,
    device: Device | None,
    loop: HotLoop,
    proof: OverlapProof,
    sized: Sized,
    work: Work,
    tiled: Tiled,
    given: AnalyzeOptions,
) -> Facts:
    launch = sized.launch
    threads = launch.threads or 1
    smem_bytes = subject.smem_bytes + launch.shared_bytes
    trips = _trips(loop, proof, tiled, work, threads)
    warps = -(-threads // arch.warp_size)
    demand = demand_of(loop, arch, device, warps, trips, work.traffic, Rates.load())
    flops, operations = _flops(work, given, loop)
    dram, output = _dram(sized, work, launch.blocks, given)
    metrics: dict[str, float] = {}
    if given.ncu is not None:
        text = read_file(given.ncu).decode("utf-8", "replace")
        metrics = read_ncu(text, subject.kernel.name, str(given.ncu))
    plan = (tiled.facts, tiled.budget)
    if plan[0] is None:
        sms = device.sms if device is not None else None
        found = tiled_from_sass(loop, proof, arch, threads, subject.registers, smem_bytes, launch.blocks, sms)
        plan = found if found is not None else (None, None)
    inputs = {a.name: a.dtype.item_bytes for a in sized.bound.arrays if a.is_read_first} if sized.bound else {}
    facts = Facts(
        arch=arch,
        device=device,
        loop=loop,
        proof=proof,
        threads=threads,
        registers=subject.registers,
        smem_bytes=smem_bytes,
        blocks=launch.blocks,
        fit=None,
        demand=demand,
        setting=Setting(arch, device, launch.blocks, 1, dram.value),
        flops=flops,
        dram_bytes=dram,
        spill_bytes=subject.spill_bytes or 0,
        traffic=work.traffic,
        traffic_source=work.source,
        operations=operations,
        output_bytes=output,
        inputs=inputs,
        tiled=plan[0],
        budget=plan[1],
        metrics=metrics,
    )
    blocks_per_sm = max(
        1, residency(arch, device, threads, subject.registers, smem_bytes, launch.blocks)[1].blocks_per_sm
    )
    reuse = facts.sector_reuse
    # What a block asks for twice may come from L1: between all of it and none, where no tile is staged.
    share = 1 - reuse**-0.5 if reuse is not None and reuse > 1 and not facts.stages_tiles else 0.0
    return replace(facts, setting=replace(facts.setting, blocks_per_sm=blocks_per_sm, l1_share=share))


def _trips(loop: HotLoop, proof: OverlapProof, tiled: Tiled, work: Work, threads: int) -> float | None:
    """Trips of the hot loop per block: from the sizes, or from the bytes that were counted."""
    if loop.kind == "straight":
        return 1.0
    if tiled.num_tiles is not None and loop.kind == "k_loop":
        return tiled.num_tiles / max(proof.tiles_per_trip, 1)
    loads = loop.of(GLOBAL_LOADS | {"LDGSTS"})
    read = threads * sum(map(access_bytes, loads))
    if work.traffic is None or not read:
        return None
    return max(1.0, work.read_bytes / read)


def _flops(work: Work, given: AnalyzeOptions, loop: HotLoop) -> tuple[Count, dict[str, float]]:
    if given.flops is not None:
        kind = precision_of(loop)
        return Count(given.flops, "given with --flops"), {kind: given.flops} if kind else {}
    if work.traffic is None:
        return Count(None, f"not derived: {work.problem}"), {}
    return flops_of(work.operations, work.source), dict(work.operations)


def _dram(sized: Sized, work: Work, blocks: int | None, given: AnalyzeOptions) -> tuple[Count, float]:
    """(unique bytes, of them written)."""
    if given.bytes is not None:
        return Count(given.bytes, "given with --bytes"), 0.0
    if sized.bound is None:
        return Count(None, "not derived: there is no sidecar with the arguments' shapes"), 0.0
    total, written = unique_bytes(sized.bound)
    if work.traffic is not None and blocks is not None and work.traffic.sectors * SECTOR_BYTES * blocks < 0.9 * total:
        touched = work.traffic.sectors * SECTOR_BYTES * blocks
        source = f"{work.source}: fewer than the arguments hold, so not all of them is used"
        return Count(touched, source), min(written, touched)
    return Count(total, "shapes of the arguments in the sidecar, outputs included"), written


def _no_block(path: Path) -> TilewrightError:
    return TilewrightError(
        "analyze/no_block",
        "How many threads a block has is not known: neither sidecar nor launch bounds say it.",
        {"file": str(path)},
        "Name it: --block 256, or --block 16,16.",
    )


def _report(
    subject: Subject,
    facts: Facts,
    sized: Sized,
    work: Work,
    given: AnalyzeOptions,
    tiled: Tiled,
    device_reason: str,
    residence: Residency,
) -> AnalyzeReport:
    assert facts.fit is not None
    seconds = given.time_us / 1e6 if given.time_us is not None else None
    moved: dict[Level, float] = {}
    if facts.traffic is not None and facts.blocks is not None:
        moved["l2"] = facts.traffic.sectors * SECTOR_BYTES * facts.blocks
        moved["shared"] = facts.traffic.wavefronts * PASS_BYTES * facts.blocks
    roof = roofline(facts.flops, facts.dram_bytes, facts.operations, moved, facts.arch, facts.device, seconds)
    registers = dropped(
        subject.program.ptx, subject.program.kernel, subject.log, frozenset(i.opcode for i in facts.loop.whole)
    )
    strategies, aside = ranked(facts)
    counted = () if facts.traffic is not None else (f"Accesses were not counted: {work.problem}.",)
    return AnalyzeReport(
        tool=record.Tool(__version__, subject.toolchain, "nvdisasm"),
        kernel=subject.kernel,
        input=subject.kind,
        arch=facts.arch.name,
        arch_reason=_arch_reason(subject, device_reason),
        device=facts.device.name if facts.device is not None else "",
        device_reason=device_reason,
        baseline=Baseline(
            sized.launch,
            dict(sized.sizes),
            subject.registers,
            facts.smem_bytes,
            subject.spill_bytes,
            subject.stack_bytes,
            given.time_us,
            "given with --time-us" if given.time_us is not None else "",
        ),
        roofline=roof,
        residency=residence,
        ratios=_ratios(facts, tiled),
        sass=_sass(facts, registers),
        shared_cliff=shared_cliff(facts.arch, facts.threads, facts.registers, facts.smem_bytes, facts.fit),
        memory=_memory(facts, work),
        metrics=dict(facts.metrics),
        verdict=verdict(facts),
        strategies=strategies,
        set_aside=aside,
        warnings=warnings_for(facts, roof, seconds, registers),
        assumptions=subject.assumptions,
        notes=(*subject.notes, *sized.notes, *counted, *tiled.notes),
    )


def _arch_reason(subject: Subject, device_reason: str) -> str:
    """`target_for` knows of a default architecture only that it is the GPU's."""
    named = device_reason.startswith("as asked") and subject.target.reason == "the GPU's"
    return "the named card's" if named else subject.target.reason


def _ratios(facts: Facts, tiled: Tiled) -> Ratios:
    per_byte = tiled.facts.flop_per_byte if tiled.facts is not None else None
    source = "2*BM*BN*BK / ((BM*BK + BK*BN) * element bytes), the tile alone" if per_byte is not None else ""
    per_load = facts.proof.ops_per_load
    told = f"{facts.proof.math_kind} per global load in the hot loop, SASS" if per_load is not None else ""
    return Ratios(per_byte, source, per_load, told)


def _sass(facts: Facts, registers: str) -> Sass:
    loop, proof = facts.loop, facts.proof
    one = serial(loop.trip, facts.arch, loop.kind != "straight")
    known = proof.verdict != "unknown"
    return Sass(
        loop.kind,
        loop.line,
        len(loop.trip),
        one.cycles,
        one.issue,
        one.global_wait,
        one.near_wait,
        one.loads_in_flight,
        width_bytes(loop.of(GLOBAL_LOADS | {"LDGSTS"})),
        proof.verdict,
        proof.tiles_in_flight if known else None,
        mix_rows(loop),
        registers,
    )


def _memory(facts: Facts, work: Work) -> Memory | None:
    t = facts.traffic
    if t is None:
        return None
    return Memory(
        work.source,
        t.requests,
        t.sectors / t.requests if t.requests else None,
        t.ideal_sectors / t.requests if t.requests else None,
        t.wavefronts / t.ideal_wavefronts if t.ideal_wavefronts else None,
        facts.reuse,
        work.lines,
    )
