"""The table of all families: from the records, and nothing left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from tilewright.ladder.overview import overview
from tilewright.ladder.report import LadderBench

ROOT = Path(__file__).parents[2]
RECORDS = [
    msgspec.json.decode(file.read_bytes(), type=LadderBench)
    for file in sorted((ROOT / "benchmarks" / "results").glob("ladder-*.json"))
    if file.name != "ladder-compile.json"
]


def test_the_page_is_what_the_records_say() -> None:
    told = "run: python benchmarks/ladder_pages.py"
    assert overview(RECORDS) == (ROOT / "docs" / "ladder" / "peers.md").read_text("utf-8"), told


def test_a_loss_is_counted_and_listed() -> None:
    report = next(r for r in RECORDS if r.family == "add")
    first = next(p for p in report.points if p.ratio is not None)
    before, after = (overview([replace(report, points=(replace(first, ratio=ratio),))]) for ratio in (0.97, 0.969))
    assert "| add |" not in before.partition("## Losses")[2]
    assert after.partition("## Losses")[2].count("| add |") == 1
    assert "; 0 have less" in before
    assert "; 1 have less" in after
