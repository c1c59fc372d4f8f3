"""The picture of a family: shares of the first rung, and what has no value is left out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tilewright.ladder.plot import Series, plot, series_of
from tilewright.ladder.report import LadderBench, RungRecord, TimedRung


def row(name: str, **counters: float) -> RungRecord:
    return RungRecord(name, "A & B", "", "float32", "small", {}, "sm_86", "passed", counters=counters)


ROWS = [row("01_a", instructions=200, global_sectors=8, shared_wavefronts=0), row("02_b", instructions=50), row("03_c")]


def test_shares_are_of_the_first_rung() -> None:
    assert Series("x", (200, 50, None)).shares == (1.0, 0.25, None)
    assert Series("x", (0, 50, 25)).shares == (0.0, 1.0, 0.5)
    assert Series("x", (None,)).shares == (None,)


def test_what_is_drawn() -> None:
    timed = [
        TimedRung(n, "", "float16", "default", {}, "passed", median_us=t) for n, t in (("01_a", 10.0), ("02_b", 5.0))
    ]
    report = LadderBench(
        "f", "F", "card", "580", "2026", (*timed, TimedRung("01_a", "", "float32", "default", {}, "passed"))
    )
    names = [(s.name, s.values) for s in series_of(ROWS, report)]
    assert names == [
        ("instructions", (200, 50, None)),
        ("global sectors", (8, None, None)),
        ("measured time, float16", (10.0, 5.0, None)),
    ]
    assert len(series_of(ROWS, None)) == 2


def test_it_is_svg_with_a_bar_a_value() -> None:
    root = ElementTree.fromstring(plot("R & S", ROWS))
    kind = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{kind}svg"
    widths = [float(r.get("width", "0")) for r in root.iter(f"{kind}rect")][3:]  # behind the ground and two legends
    assert widths == pytest.approx([480, 480, 120])
