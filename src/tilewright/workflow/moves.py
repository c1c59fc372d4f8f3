"""The variants that pay without pipelining: wider loads alone, registers capped, half a tile. Each built and gated."""

from __future__ import annotations

from dataclasses import replace

from tilewright.arch.occupancy import register_cliff
from tilewright.build.artifact import CompileFailure
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.receipt import record
from tilewright.rewrite import widen
from tilewright.rewrite.result import RewrittenSource
from tilewright.source.edits import unified_diff
from tilewright.workflow.bench import Bench
from tilewright.workflow.records import refusal_record
from tilewright.workflow.study import StudiedVariant
from tilewright.workflow.variants import Attempt, does_not_compile, proof_of, refused, studied, wanting


def widened(bench: Bench, kernel: TiledKernel) -> StudiedVariant:
    """The baseline with 16-byte loads and nothing else."""
    written = widen.rewrite(kernel)
    if isinstance(written, Refusal):
        return refused("widen", 1, refusal_record(written))
    attempt = built(written, bench)
    if isinstance(attempt, record.Refusal):
        return refused("widen", 1, attempt)
    bad = wanting(attempt, bench, ())
    return refused("widen", 1, bad) if bad is not None else studied("widen", 1, attempt, bench)


def capped(bench: Bench) -> StudiedVariant:
    """The baseline with one more block per SM asked for, where registers alone stand in the way of it."""
    baseline = bench.opened.baseline
    written = _cap(bench)
    if isinstance(written, record.Refusal):
        return refused("cap_registers", 1, written)
    source, cap, blocks = written
    attempt = built(source, bench)
    if isinstance(attempt, record.Refusal):
        return refused("cap_registers", 1, attempt)
    used, before = attempt.artifact.resources, baseline.resources
    spilled = max(used.spill_bytes - before.spill_bytes, used.stack_bytes - before.stack_bytes, 0)
    fit = bench.fit(attempt.artifact, source.launch)
    bad: record.Refusal | None
    if spilled:
        what = f"held to {cap} registers, for {blocks} blocks per SM, the compiler spills {spilled} bytes a thread"
        bad = record.Refusal("budget_exceeded", what, bench.opened.function.line, "a smaller tile a thread needs fewer")
    elif used.registers >= before.registers or fit is None or fit.blocks_per_sm < blocks:
        what = f"the compiler kept {used.registers} registers; {blocks} blocks per SM need {cap} or fewer"
        bad = record.Refusal("budget_exceeded", what, bench.opened.function.line)
    else:
        bad = wanting(attempt, bench, ())
    if bad is not None:
        return refused("cap_registers", 1, bad)
    note = f"{used.registers} registers instead of {before.registers}: {blocks} blocks per SM instead of {blocks - 1}"
    return studied("cap_registers", 1, attempt, bench, notes=(note,))


def _cap(bench: Bench) -> tuple[RewrittenSource, int, int] | record.Refusal:
    """(the source, the registers it may use, the blocks per SM it asks for)."""
    opened, arch = bench.opened, bench.arch
    baseline, line = opened.baseline, opened.function.line
    source = RewrittenSource("cap_registers", 1, "", "", 2)
    fit = bench.fit(baseline, source.launch)
    if fit is None or fit.blocks_per_sm < 1:
        why = "how many threads a block has is not known" if fit is None else f"no block fits on an SM of {arch.name}"
        return record.Refusal("not_needed", why, line)
    others = {name: blocks for name, blocks in fit.limits.items() if name != "registers"}
    tightest = min(others, key=lambda name: others[name])
    blocks = fit.blocks_per_sm + 1
    if others[tightest] < blocks:
        what = f"registers are not all that keeps a {_ordinal(blocks)} block off an SM of {arch.name}: "
        return record.Refusal("not_needed", f"{what}{tightest} allow {others[tightest]}", line)
    warps = fit.warps_per_sm // fit.blocks_per_sm
    cap = register_cliff(arch, warps * arch.warp_size, blocks)
    text = bench.bounded(opened.source.text.decode(), blocks, source.launch)
    if isinstance(text, Refusal):
        return refusal_record(text)
    file = opened.source.file
    diff = unified_diff(opened.source.text.decode(), text, file, f"{file} (cap_registers)")
    return replace(source, text=text, diff=diff), cap, blocks


def built(written: RewrittenSource, bench: Bench) -> Attempt | record.Refusal:
    """Built and disassembled."""
    outcome = bench.compiler.build(written.text)
    if isinstance(outcome, CompileFailure):
        return does_not_compile(outcome)
    return Attempt(written, outcome, proof_of(outcome, bench.compiler))


def _ordinal(n: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th") if n % 100 not in (11, 12, 13) else "th"
    return f"{n}{ending}"
