"""Writes the table of docs/skeletons.md from results/h200-skeletons.json: no figure is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "h200-skeletons.json"
PAGE = ROOT / "docs" / "skeletons.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"
RUNS = ("ragged", "large")


def is_right(row: dict[str, Any]) -> bool:
    """At both sizes: every element within its tolerance, and nothing written beside the outputs."""
    return "error" not in row and all(row[run]["right"] and row[run]["guards_hold"] for run in RUNS)


def table(record: dict[str, Any]) -> str:
    """Markdown: one row a skeleton, with what ran and how many were right above it."""
    rows = record["rows"]
    head = (
        f"{record['card']}, PyTorch {record['torch']}: {sum(map(is_right, rows))} of {len(rows)} right at both sizes."
    )
    lines = [head, "", "| skeleton | large size | µs | PyTorch, µs | PyTorch / skeleton |", "|---|---|---|---|---|"]
    return "\n".join(lines + [_row(row) for row in rows])


def _row(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {row['name']} | – | did not run | – | – |"
    size = ", ".join(f"{name} {extent:,}" for name, extent in row["sizes"]["large"].items())
    ours, theirs = row["us"]["skeleton"], row["us"]["torch"]
    name = row["name"] if is_right(row) else f"{row['name']}: **wrong**"
    return f"| {name} | {size} | {ours:,.1f} | {theirs:,.1f} | {theirs / ours:.2f} |"


def with_table(page: str, record: dict[str, Any]) -> str:
    head, rest = page.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return f"{head}{BEGIN}\n{table(record)}\n{END}{tail}"


def main() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
