"""Writes the measured table of README.md from benchmarks/results/*.json: no figure is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")
BEGIN, END = "<!-- measured -->", "<!-- end -->"
ORDER = ("igemm_wmma", "hgemm_mma", "sgemm_float4", "hgemm_wmma")


def kernels() -> list[dict[str, Any]]:
    """Every result of a kernel on a card; the emulator's speed lies beside them."""
    found = [json.loads(p.read_text()) for p in sorted(RESULTS.glob("*.json"))]
    return [r for r in found if "kernel" in r]


def load() -> list[dict[str, Any]]:
    """The results of the shipped examples, in the README's order."""
    found = {Path(r["kernel"]).stem: r for r in kernels()}
    return [found[name] for name in ORDER if name in found]


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: one row a kernel, with the card, the driver and the dates above it."""
    cards = sorted({f"{r['card']}, driver {r['driver']}" for r in results})
    dates = sorted({r["date"][:10] for r in results})
    lines = [
        f"{'; '.join(cards)}; {', '.join(dates)}; each kernel at 4096³, baseline and variants interleaved, L2 cold.",
        "All have the baseline's bits at every size set and trip count. In brackets: the range predicted before.",
        "",
        "| kernel | baseline | ldg | ldg_single | cp_async 2 | cp_async 3 | cp_async 4 | taken | of the gain |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [row(r) for r in results]
    return "\n".join(lines)


def row(result: dict[str, Any]) -> str:
    by = {v["variant"]: v for v in result["variants"]}
    cells = [cell(by.get(label)) for label in ("ldg", "ldg_single", "cp_async2", "cp_async3", "cp_async4")]
    base = result["baseline"]["measured"]
    taken, chosen = "none", None
    if choice := result["choice"]:
        taken = choice["variant"] + (f" {choice['stages']}" if choice["variant"] == "cp_async" else "")
        chosen = by.get(taken.replace(" ", ""))
    baseline = f"{base['median_us'] / 1000:.2f} ms, {base['gflops'] / 1000:.1f} T"
    return "| " + " | ".join([f"`{result['kernel']}`", baseline, *cells, taken, gain(chosen)]) + " |"


def cell(variant: dict[str, Any] | None) -> str:
    if variant is None:
        return "–"
    predicted = variant["predicted"]
    span = f" ({predicted['low']:.2f}–{predicted['high']:.2f})" if predicted else ""
    return f"{variant['measured']['speedup']:.2f}×{span}"


def gain(variant: dict[str, Any] | None) -> str:
    parts = variant["attribution"] if variant else None
    if not parts:
        return "–"
    names = (("width", "width"), ("async_copy", "async copy"), ("overlap", "overlap"), ("stages", "stages"))
    return " × ".join(f"{label} {parts[key]:.2f}" for key, label in names if parts[key] is not None)


def with_table(readme: str) -> str:
    head, rest = readme.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return f"{head}{BEGIN}\n{table(load())}\n{END}{tail}"


def main() -> None:
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text()))


if __name__ == "__main__":
    main()
