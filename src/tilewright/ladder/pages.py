"""A page a family, in Markdown, from what the emulator counted, the compiler said and a card was timed at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.arch.devices import find_device
from tilewright.ladder.bench_text import markdown_points
from tilewright.ladder.claims import Evidence
from tilewright.ladder.family import Family
from tilewright.ladder.judging import record_of
from tilewright.ladder.plot import plot
from tilewright.ladder.predicting import precision_of
from tilewright.ladder.ratio_plot import plot_ratios
from tilewright.ladder.report import LadderBench, RungRecord, TimedRung
from tilewright.ladder.specs import figure
from tilewright.ladder.sustained import SustainedBench, markdown_sustained

SIZE = "small"
# heading → counter
_COUNTED = {
    "instructions": "instructions",
    "sectors a load": "global_load_sectors_per_request",
    "sectors a store": "global_store_sectors_per_request",
    "bank conflicts": "shared_conflicts",
}


@dataclass(frozen=True)
class Page:
    """``text`` in Markdown, and the pictures beside it, in SVG: ``ratios`` to peers is "" where none was timed."""

    text: str
    picture: str
    ratios: str = ""


def page(
    family: Family, evidence: Evidence, measured: LadderBench | None = None, sustained: SustainedBench | None = None
) -> Page:
    """The page of a family.

    Args:
        measured: times on a card; None where there is no record of any. sustained: those under load, with joules.

    Raises:
        ValueError: a rung does not pass, or does not show what it claims: no page is made of that.
    """
    dtype = family.dtypes[0]
    rows = [record_of(family, rung, dtype, SIZE, evidence) for rung in family.rungs]
    bad = [row for row in rows if row.verdict == "failed" or not all(c.holds for c in row.claims)]
    if bad:
        raise ValueError(f"{family.name}/{bad[0].rung}: {bad[0].message or 'a claim does not hold'}")
    sizes = ", ".join(f"{name} = {value}" for name, value in family.sizes[SIZE].items())
    lines = [
        f"# {family.title}",
        "",
        f"`{family.op}`, in {_listed(family.dtypes)}. `tilewright ladder show {family.name}` prints the sources.",
        "",
        f"<!-- made by benchmarks/ladder_pages.py with {_toolchain(family, evidence, dtype)}: not to be edited -->",
        "",
        f"Counted in the emulator at {sizes}, {dtype}:",
        "",
        *_table(rows),
        "",
        f"![What each rung costs, as a share of the first one]({family.name}.svg)",
    ]
    if measured is not None:
        lines += ["", *_times(family, measured)]
    for row in rows:
        lines += ["", f"## {row.rung}: {row.technique}", "", row.changes]
        if row.message:
            lines += ["", f"Not run here: {row.message}."]
        if row.claims:
            lines += ["", *(f"- {claim.claim}: {_figure(claim.found)}" for claim in row.claims)]
    ratios = plot_ratios(family.title, measured.points) if measured is not None else ""
    if measured is not None:
        lines += markdown_points(measured)
    if ratios:
        lines += ["", f"![The fastest peer's time over ours, by bytes of a call]({family.name}-peers.svg)"]
    if sustained is not None:
        lines += ["", *markdown_sustained(sustained)]
    return Page("\n".join(lines) + "\n", plot(family.title, rows, measured), ratios)


def _toolchain(family: Family, evidence: Evidence, dtype: str) -> str:
    rung = next(rung for rung in family.rungs if dtype in rung.dtypes)
    return evidence.compiled(family, rung, dtype).artifacts[0].toolchain


def _table(rows: list[RungRecord]) -> list[str]:
    heads = ["rung", "technique", *_COUNTED, "registers", "shared bytes", "target"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        counted = [_of(row.counters, name) for name in _COUNTED.values()]
        resources = ["-" if x is None else f"{x:,}" for x in (row.registers, row.smem_bytes)]
        lines.append("| " + " | ".join([row.rung, row.technique, *counted, *resources, row.arch or "-"]) + " |")
    return lines


def _times(family: Family, measured: LadderBench) -> list[str]:
    lines = [f"Measured on {measured.card} (driver {measured.driver}, {measured.date}), interleaved, from a cold L2:"]
    groups: dict[tuple[str, str], list[TimedRung]] = {}
    for rung in measured.rungs:
        groups.setdefault((rung.dtype, rung.size), []).append(rung)
    for (dtype, _), rungs in groups.items():
        sizes = ", ".join(f"{name} = {value:,}" for name, value in rungs[0].sizes.items())
        lines += [
            "",
            f"{sizes}, {dtype}. {_floor(family, rungs[0], measured)}",
            "",
            "| rung | median us | GB/s | GFLOPS | speedup | predicted us | bound |",
            "|---|---|---|---|---|---|---|",
        ]
        for rung in rungs:
            figures = (rung.median_us, rung.gbps, rung.gflops, rung.speedup, rung.predicted_us)
            cells = ["-" if x is None else _figure(x) for x in figures]
            cells.append(rung.predicted_bound or "-")
            lines.append("| " + " | ".join([rung.rung, *cells]) + " |")
    return lines


def _floor(family: Family, rung: TimedRung, measured: LadderBench) -> str:
    """What any kernel needs: bytes once from memory, operations at the peak of the table."""
    total, flops = (figure(text, family, rung.sizes, rung.dtype) for text in (family.bytes, family.flops))
    told = f"It moves {_figure(total / 1e6)} MB at the least"
    if measured.copy_gbps:
        told += (
            f" ({_figure(total / measured.copy_gbps / 1e3)} us at the rate of a copy, {measured.copy_gbps:,.0f} GB/s)"
        )
    precision, device = precision_of(family, rung.dtype), find_device(measured.card)
    if flops:
        told += f" and takes {_figure(flops / 1e9)} billion operations"
    if flops and device is not None and precision in device.peaks:
        peak = device.peaks[precision]
        told += f" ({_figure(flops / peak * 1e6)} us at {peak / 1e12:,.0f} T/s, the peak of {precision})"
    return told + ":"


def _of(counters: Mapping[str, float], name: str) -> str:
    return _figure(counters[name]) if name in counters else "-"


def _figure(value: float) -> str:
    """Whole numbers as they are, others with three digits."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
