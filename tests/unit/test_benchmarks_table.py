"""The README's measured table is drawn from benchmarks/results: a figure typed by hand, or a stale one, fails here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_shows_the_recorded_figures() -> None:
    readme = (ROOT / "README.md").read_text()
    assert script("table").with_table(readme) == readme


def test_a_changed_figure_is_noticed() -> None:
    table = script("table")
    results = table.load()
    assert results
    drawn = table.table(results)
    results[0]["variants"][0]["measured"]["speedup"] += 0.5
    assert table.table(results) != drawn


@pytest.mark.parametrize("result", script("table").kernels(), ids=lambda r: r["kernel"])
def test_a_result_carries_its_protocol(result: dict[str, Any]) -> None:
    for key in ("card", "driver", "date", "size", "tool"):
        assert result[key]
    for entry in (result["baseline"], *result["variants"]):
        measured = entry["measured"]
        assert measured["samples"] >= 30
        assert 0 < measured["min_us"] <= measured["median_us"]
        assert measured["iqr_us"] >= 0
        assert entry["verify"]["verdict"] == "passed"
    for variant in result["variants"]:
        assert variant["verify"]["bit_identical"] is True


def test_a_receipt_without_measurements_is_not_recorded() -> None:
    receipt = {"baseline": {"measure": {"verdict": "not_run", "reason": "no GPU here"}}}
    with pytest.raises(SystemExit, match="no GPU here"):
        script("record").record(receipt)
