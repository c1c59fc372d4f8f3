"""The receipt as text: what a person reads first. Drawn from the record alone: it can say no more than the JSON."""

from __future__ import annotations

import shlex

from tilewright.receipt.checklist import judged_variant
from tilewright.receipt.drawing import LABEL_WIDTH, Pen, kib, number, printable
from tilewright.receipt.evidence import Measurement, Proof, Resources, Verification
from tilewright.receipt.record import Decision, Loop, Phase, Receipt, Tile
from tilewright.receipt.variants_text import attribution_lines, excerpt_lines, refusal_lines, variants_table

_DECISIONS = {
    "pipeline": "pipeline it",
    "try_both": "build both and time them",
    "do_not_pipeline": "do not pipeline",
}


def render(receipt: Receipt, *, width: int = 100, color: bool = False, verbose: bool = False) -> str:
    """The whole receipt as text, no line of a table wider than ``width``; escape codes only if ``color``."""
    pen = Pen(width, color)
    lines = [*_head(receipt, pen), *_loop(receipt.loop, pen)]
    if receipt.refusal is not None:
        lines += refusal_lines("refused", receipt.kernel.file, receipt.refusal, pen)
    lines += _preconditions(receipt, pen, verbose)
    lines += _baseline(receipt, pen)
    lines += _budget(receipt, pen)
    lines += _decision(receipt.decision, pen)
    if receipt.variants:
        lines += ["", *variants_table(receipt, pen)]
    lines += attribution_lines(receipt, pen)
    lines += excerpt_lines(receipt, pen, verbose)
    if receipt.variants:
        lines += ["", *_checklist(receipt, pen, verbose)]
    if receipt.assumptions:
        lines += pen.bullets("assumed", receipt.assumptions)
    if receipt.notes:
        lines += pen.bullets("notes", receipt.notes)
    lines += _next(receipt)
    lines += _summary(receipt, pen)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(receipt: Receipt, pen: Pen) -> list[str]:
    reason = f": {receipt.arch_reason.rstrip('.')}" if receipt.arch_reason else ""
    kernel = receipt.kernel
    place = f"{kernel.file}:{kernel.line}" if kernel.line is not None else kernel.file
    facts = [*_tile_facts(receipt.tile), *_resource_facts(receipt.baseline.resources)]
    return [
        *pen.labelled("arch", f"{receipt.arch}{reason}"),
        *pen.labelled("kernel", f"{kernel.name}  {place}", "bold"),
        *(pen.listed("", _with_commas(facts)) if facts else []),
    ]


def _with_commas(parts: list[str]) -> list[str]:
    return [f"{part}," for part in parts[:-1]] + parts[-1:]


def tile_text(tile: Tile) -> str:
    """``int8 wmma 64x64x32, 128 threads``."""
    return ", ".join(_tile_facts(tile))


def _tile_facts(tile: Tile | None) -> list[str]:
    if tile is None:
        return []
    elements = list(dict.fromkeys(tile.elements.values()))
    extents = "x".join(str(extent) for extent in (tile.BM, tile.BN, tile.BK) if extent is not None)
    words = [elements[0] if elements else "", tile.math, extents]
    facts = [" ".join(word for word in words if word)]
    if len(elements) > 1:
        facts[0] += f" ({', '.join(f'{operand} {element}' for operand, element in tile.elements.items())})"
    facts += [f"{tile.threads} threads"] if tile.threads is not None else []
    return [fact for fact in facts if fact]


def _resource_facts(resources: Resources) -> list[str]:
    facts = [f"{kib(resources.smem_bytes)} shared"] if resources.smem_bytes is not None else []
    facts += [f"{resources.registers} registers"] if resources.registers is not None else []
    return facts + ([f"{resources.spill_bytes} B spilled"] if resources.spill_bytes else [])


def _loop(loop: Loop | None, pen: Pen) -> list[str]:
    return [] if loop is None else pen.labelled("K-loop", loop_text(loop))


def loop_text(loop: Loop) -> str:
    """``88-131: load 90-109 | sync | compute 112-128 | sync, 128 tiles``."""
    phases = " | ".join(_phase(phase) for phase in loop.phases)
    tiles = f", {loop.num_tiles} tiles at the default sizes" if loop.num_tiles is not None else ""
    return (
        f"{loop.first_line}-{loop.last_line}: {phases}{tiles}"
        if phases
        else f"{loop.first_line}-{loop.last_line}{tiles}"
    )


def _phase(phase: Phase) -> str:
    if phase.kind == "sync":
        return "sync"
    return f"{phase.kind} {phase.first_line}-{phase.last_line}"


def _preconditions(receipt: Receipt, pen: Pen, verbose: bool) -> list[str]:
    """All of them when asked, otherwise those that do not hold."""
    texts = []
    for condition in receipt.preconditions:
        if verbose or condition.holds is False:
            facts = ", ".join(f"{name} {value}" for name, value in condition.facts.items())
            verdict = {True: "yes", False: "NO", None: "not known"}[condition.holds]
            texts.append(f"{condition.name}: {verdict}{f' ({facts})' if facts else ''}")
    return pen.bullets("needs", texts) if texts else []


def _baseline(receipt: Receipt, pen: Pen) -> list[str]:
    base = receipt.baseline
    if base == type(base)():
        return []
    parts = [verify_text(base.verify), proof_text(base.proof), measure_text(base.measure)]
    lines = pen.labelled("baseline", ", ".join(parts))
    for hazard in base.hazards:
        place = f"{receipt.kernel.file}:{hazard.line}: " if hazard.line is not None else ""
        lines += pen.labelled("", f"{place}{hazard.kind}: {hazard.message}", "bad")
    return lines


def verify_text(verify: Verification) -> str:
    """``verified (gpu: small, default), same bits``."""
    where = f" ({verify.executor}: {', '.join(verify.sizes)})" if verify.executor else ""
    if verify.verdict == "not_run":
        return "not verified"
    if verify.verdict == "failed":
        return f"FAILED{where}{f': {verify.reason}' if verify.reason else ''}"
    told = "".join(f", {text}" for text in (verify.tolerance, verify.reason) if text)
    return f"verified{where}{told}"


def proof_text(proof: Proof) -> str:
    """``overlap: 1 tile in flight, 16 math instructions per tile``."""
    if proof.verdict == "unknown":
        return f"overlap unknown{f' ({proof.reason})' if proof.reason else ''}"
    tiles = proof.tiles_in_flight
    flight = "" if tiles is None else f", {tiles} {'tile' if tiles == 1 else 'tiles'} in flight"
    return f"{proof.verdict.replace('_', ' ')}{flight}"


def measure_text(measure: Measurement) -> str:
    """``812 us, 169,000 GFLOPS``."""
    if measure.median_us is None:
        return "not timed"
    rate = f", {measure.gflops:,.0f} GFLOPS" if measure.gflops is not None else ""
    rate += f", {measure.gbps:,.0f} GB/s" if measure.gflops is None and measure.gbps is not None else ""
    share = f", {measure.roofline_share:.0%} of the roofline" if measure.roofline_share is not None else ""
    spread = f" (iqr {number(measure.iqr_us)}, {measure.samples} samples)" if measure.iqr_us is not None else ""
    return f"{measure.median_us:,.1f} us{spread}{rate}{share}"


def _budget(receipt: Receipt, pen: Pen) -> list[str]:
    if not receipt.budget:
        return []
    parts: list[str] = []
    named = False
    for row in receipt.budget:
        text = f"{row.stages}: {row.blocks_per_sm}" if row.fits else f"{row.stages}: does not fit"
        if not parts:
            text = f"stages {text} blocks/SM" if row.fits else f"stages {text}"
        if row.crosses_cliff and not named and row.cliff_bytes is not None:
            text += f" (cliff at {kib(row.cliff_bytes)})"
            named = True
        parts.append(text)
    lines = pen.listed("budget", parts)
    texts = [
        f"{way.kind}, stages {way.stages}: {way.blocks_per_sm} blocks/SM at {kib(way.smem_bytes)}. {way.cost}"
        for way in receipt.proposals
    ]
    return lines + (pen.bullets("instead", texts) if texts else [])


def _decision(decision: Decision | None, pen: Pen) -> list[str]:
    if decision is None:
        return []
    ratio = [
        f"{number(decision.flop_per_byte)} FLOP per byte (flop_per_byte, from the tile)",
        f"{number(decision.ops_per_load)} math instructions per global load (ops_per_load, from the SASS)",
    ]
    lines = pen.labelled("ratios", "; ".join(ratio))
    style = "warn" if decision.verdict == "do_not_pipeline" else "bold"
    lines += pen.labelled("decision", _DECISIONS[decision.verdict], style)
    return lines + (pen.bullets("", decision.reasons) if decision.reasons else [])


def _checklist(receipt: Receipt, pen: Pen, verbose: bool) -> list[str]:
    """One line per judgement; one line per item, with its reason, when asked."""
    if not receipt.checklist:
        return []
    names = ((True, "holds", "good"), (False, "fails", "bad"), (None, "not known", "warn"))
    lines: list[str] = ["checklist"] if verbose else []
    for holds, name, style in names:
        items = [item for item in receipt.checklist if item.holds is holds]
        if verbose:
            for item in items:
                lines += pen.labelled(
                    "  unknown" if holds is None else f"  {name}",
                    f"{item.item} ({item.reason})" if item.reason else item.item,
                    style,
                )
        elif items:
            label = "" if lines else "checklist"
            lines += pen.labelled(label, f"{name}: {', '.join(item.item for item in items)}", style)
    return lines


def _next(receipt: Receipt) -> list[str]:
    """The command to review with, and the run that is still missing. Never wrapped: a command is there to be copied."""
    best = judged_variant(receipt)
    if best is None:
        return []
    file, name = _path(receipt.kernel.file), shlex.quote(receipt.kernel.name)
    commands: list[tuple[str, str]] = []
    if best.source_path:
        commands.append(("review", f"git diff --no-index {file} {_path(best.source_path)}"))
    else:
        commands.append(("write", f"tilewright pipeline {file} --kernel {name} --out out"))
    if not _ran(receipt):
        again = f"tilewright pipeline {file} --kernel {name} --arch {receipt.arch}"
        has_sidecar = not any("sidecar" in v.verify.reason for v in receipt.variants)
        before = (
            "verify it (no GPU is needed)" if has_sidecar else "say how it is launched, in a sidecar, and verify it"
        )
        commands.append(("next", f"{before}: {again}"))
    return [label.ljust(LABEL_WIDTH) + printable(command) for label, command in commands]


def _path(path: str) -> str:
    """Quoted for a shell; one that starts with a dash would be read as an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _ran(receipt: Receipt) -> bool:
    return any(v.verify.verdict != "not_run" for v in receipt.variants)


def _summary(receipt: Receipt, pen: Pen) -> list[str]:
    """What this run amounts to, in a sentence that nobody can misread, and how long it took."""
    sentences = [_result(receipt)]
    built = [v for v in receipt.variants if v.status == "built"]
    if built and not _ran(receipt):
        reason = next((v.verify.reason for v in built if v.verify.reason), "no GPU here").rstrip(".")
        text = f"Not verified and not timed: {reason}. Sources are *.unverified.cu; do not ship them."
        sentences.append((text, "warn"))
    lines: list[str] = []
    for text, style in sentences:
        if text:
            lines += pen.labelled("" if lines else "result", text, style)
    total = receipt.timings_s.get("total")
    return [*lines, *(pen.labelled("time", f"{total:.1f} s", "dim") if total is not None else [])]


def _result(receipt: Receipt) -> tuple[str, str]:
    """The outcome and its style; empty where only the missing run is left to be said."""
    failed = [v.label for v in receipt.variants if v.status == "failed"]
    accepted = [v for v in receipt.variants if v.status == "accepted"]
    base = receipt.baseline
    if receipt.refusal is not None:
        return f"Refused [{receipt.refusal.code}]: no variant was made.", "warn"
    if base.hazards or base.verify.verdict == "failed":
        return "The baseline itself failed its check: nothing can be compared with it.", "bad"
    if failed:
        others = f" {', '.join(v.label for v in accepted)} passed." if accepted else ""
        return f"A check failed: {', '.join(failed)}. Do not use it.{others}", "bad"
    if receipt.choice is not None:
        return f"Take {receipt.choice.label}: {receipt.choice.reason}", "good"
    if receipt.decision is not None and receipt.decision.verdict == "do_not_pipeline":
        return "Keep the baseline.", "warn"
    if accepted:
        timed = any(v.measure.verdict != "not_run" for v in accepted)
        return (
            "Keep the baseline: no variant was faster." if timed else "Verified, not timed: nothing is chosen."
        ), "warn"
    if receipt.variants and all(v.status == "refused" for v in receipt.variants):
        return "Every variant was refused: no source was made.", "warn"
    return "", ""
