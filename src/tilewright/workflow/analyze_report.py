"""The report of `tilewright analyze`, from a subject and what its caller knows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tilewright import __version__
from tilewright.analyze.demand import PASS_BYTES, SECTOR_BYTES, demand_of
from tilewright.analyze.facts import Facts
from tilewright.analyze.floors import Setting
from tilewright.analyze.from_sass import tiled_from_sass
from tilewright.analyze.hot_loop import GLOBAL_LOADS, HotLoop, hot_loop, width_bytes
from tilewright.analyze.ncu import read_ncu
from tilewright.analyze.record import AnalyzeReport, Baseline, Count, Memory, Ratios, Residency, Sass
from tilewright.analyze.residency import residency, shared_cliff
from tilewright.analyze.roof import precision_of, roofline
from tilewright.analyze.serial import serial
from tilewright.analyze.setmaxnreg import dropped
from tilewright.analyze.strategies.ranking import ranked
from tilewright.analyze.tables import mix_rows
from tilewright.analyze.verdict import verdict
from tilewright.analyze.warnings import warnings_for
from tilewright.arch.arch import Arch, canonical_arch, load_arch
from tilewright.arch.card import Card, assumed_card, card_here, card_of
from tilewright.arch.devices import Device
from tilewright.arch.occupancy import occupancy
from tilewright.arch.roofline import Level
from tilewright.arch.told import corrected
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.receipt import record
from tilewright.sass.operands import access_bytes
from tilewright.sass.proof import OverlapProof, prove
from tilewright.workflow.analyze_counts import (
    Work,
    flops_of,
    unique_bytes,
)
from tilewright.workflow.analyze_predicted import decision_of
from tilewright.workflow.analyze_sized import Sized, counted_work, sized_launch
from tilewright.workflow.analyze_subject import Asked, Say, Subject, open_subject
from tilewright.workflow.analyze_tiled import Tiled, capped_build, tiled_of
from tilewright.workflow.analyzing import AnalyzeOptions, card_for
from tilewright.workflow.reading import read_file

_DYNAMIC = re.compile(rb"\bextern\s+(__align__\s*\([^)]*\)\s*)?__shared__\b")


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
    sized = sized_launch(subject, given, arch, device)
    planned_for = _card(card, arch, gpu)
    tiled = tiled_of(subject, proof, sized.bound, sized.launch.threads, planned_for.sms)
    asked_for = sized
    sized, work = counted_work(subject, sized, given, tiled, say)
    if sized is not asked_for:  # at other sizes the K-loop has other trips
        tiled = tiled_of(subject, proof, sized.bound, sized.launch.threads, planned_for.sms)
    if sized.launch.threads is None:
        raise _no_block(asked.path)
    facts = _facts(subject, arch, device, loop, proof, sized, work, tiled, given)
    residence, fit = residency(arch, device, facts.threads, facts.registers, facts.smem_bytes, facts.blocks)
    facts = replace(
        facts,
        fit=fit,
        capped=capped_build(subject, fit, facts.threads, say),
        decision=decision_of(subject, tiled, proof, sized, planned_for, say),
    )
    report = _report(subject, facts, sized, work, given, tiled, reason, residence)
    return replace(report, notes=(*report.notes, *differences))


def _card(asked: Device | None, arch: Arch, gpu: GpuInfo | None) -> Card:
    """What the decision is for: the card that was asked for, the GPU here, with or without a table, or the assumed."""
    if asked is not None:
        return card_of(asked, "as asked with --device")
    if gpu is None:
        return assumed_card(arch.name)
    return card_here(arch.name, gpu.name, gpu.arch, gpu.sms, gpu.memory_bytes)


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
    demand = demand_of(loop, arch, device, warps, trips, work.traffic)
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
        can_rewrite=tiled.kernel is not None,
        metrics=metrics,
    )
    blocks_per_sm = max(1, occupancy(arch, threads, subject.registers, smem_bytes).blocks_per_sm)
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
        "Name it: --block 256, or --block 16,16; or write a sidecar, so that accesses can be counted, too.",
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
        assumptions=(*subject.assumptions, *_taken(subject, facts, given)),
        notes=(*subject.notes, *sized.notes, *counted, *tiled.notes),
    )


def _taken(subject: Subject, facts: Facts, given: AnalyzeOptions) -> tuple[str, ...]:
    """What is taken for granted where nobody says it."""
    found: list[str] = []
    if facts.traffic is None:
        found.append("every access is coalesced, conflicts with none, and misses L1")
    text = subject.opened.source.text if subject.opened is not None else None
    may_be_dynamic = subject.kind == "cubin" or (text is not None and _DYNAMIC.search(text) is not None)
    if subject.spec is None and given.shared_bytes is None and may_be_dynamic:
        found.append("the launch asks for no dynamic shared memory: --shared-bytes says how much")
    return tuple(found)


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
