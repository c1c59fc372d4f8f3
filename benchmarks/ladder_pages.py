"""Writes docs/ladder/: a page a family, from the emulator, the compiler, and the records of cards under results/.

    python benchmarks/ladder_pages.py [FAMILY ...]

A record is what ``tilewright ladder bench FAMILY --json`` prints, saved as ``results/ladder-FAMILY.json``. All of them
together give ``peers.md``. ``results/h200-FAMILY-sustained.json`` has times under load (``hgemm_sustained.py``).
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tilewright.ladder.claims import Evidence
from tilewright.ladder.family import load_families, load_family
from tilewright.ladder.overview import overview
from tilewright.ladder.pages import page
from tilewright.ladder.report import LadderBench
from tilewright.ladder.sustained import SustainedBench
from tilewright.settings import Settings

RESULTS = Path(__file__).with_name("results")
PAGES = Path(__file__).parent.parent / "docs" / "ladder"


def measured(family: str) -> LadderBench | None:
    """The record of a family's times; None where none was made."""
    file = RESULTS / f"ladder-{family}.json"
    return msgspec.json.decode(file.read_bytes(), type=LadderBench) if file.is_file() else None


def under_load(family: str) -> SustainedBench | None:
    """The record of a family's times under load; None where none was made."""
    file = RESULTS / f"h200-{family}-sustained.json"
    return msgspec.json.decode(file.read_bytes(), type=SustainedBench) if file.is_file() else None


def main(names: list[str]) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    evidence = Evidence(Settings.from_environment())
    for family in map(load_family, names) if names else load_families():
        made = page(family, evidence, measured(family.name), under_load(family.name))
        (PAGES / f"{family.name}.md").write_text(made.text, "utf-8")
        (PAGES / f"{family.name}.svg").write_text(made.picture, "utf-8")
        if made.ratios:
            (PAGES / f"{family.name}-peers.svg").write_text(made.ratios, "utf-8")
        print(f"docs/ladder/{family.name}.md")
    told = [report for family in load_families() if (report := measured(family.name)) is not None]
    (PAGES / "peers.md").write_text(overview(told), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
