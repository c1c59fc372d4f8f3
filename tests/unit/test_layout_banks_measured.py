"""Passes of shared memory as they are counted, held against the clock of an H200: every request of the record."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.emulator.counters import banks as emulated
from tilewright.layout import banks

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks" / "results" / "h200-bank-passes.json").read_text(encoding="utf-8"))
Request = Sequence[int]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


BENCHMARK = script("bank_passes")


def by_layout(request: Request, width: int, is_load: bool) -> int:
    return banks.passes(request, width, is_load=is_load).total


def by_emulator(request: Request, width: int, is_load: bool) -> int:
    found = emulated.bank_conflicts(np.array([request]), np.ones((1, 32), bool), width, is_load)
    return int(found[0][0])


def wrong(count: Callable[[Request, int, bool], int]) -> list[str]:
    """Requests of the record whose cycles are not so many."""
    found = []
    for row in RECORD["rows"]:
        width, _ = BENCHMARK.KINDS[row["kind"]]
        request = BENCHMARK.requests(width, "matrix" in row["kind"])[row["pattern"]]
        if count(request, width, row["kind"].startswith("ld.")) != round(row["cycles"]):
            found.append(f"{row['kind']} {row['pattern']}")
    return found


def test_the_record_is_whole_numbers_of_passes() -> None:
    assert len(RECORD["rows"]) >= 150
    assert all(abs(row["cycles"] - round(row["cycles"])) < 0.25 for row in RECORD["rows"])


@pytest.mark.parametrize("count", [by_layout, by_emulator])
def test_every_measured_request_takes_what_is_counted(count: Callable[[Request, int, bool], int]) -> None:
    assert wrong(count) == []


@pytest.mark.parametrize("count", [by_layout, by_emulator])
def test_without_the_rule_loads_in_pairs_are_wrong(count: Callable[[Request, int, bool], int]) -> None:
    found = wrong(lambda request, width, is_load: count(request, width, False))
    assert {"ld.8 one place", "ld.8 pairs share", "ld.16 one place", "ld.16 pairs share"} <= set(found)


@pytest.mark.parametrize("count", [by_layout, by_emulator])
def test_the_rule_on_stores_and_matrices_is_wrong(count: Callable[[Request, int, bool], int]) -> None:
    found = wrong(lambda request, width, is_load: count(request, width, True))
    assert {"st.16 one place", "st.16 pairs share", "ldmatrix.x4 one place", "ldmatrix.x4 pairs share"} <= set(found)


@pytest.mark.parametrize("count", [by_layout, by_emulator])
@pytest.mark.parametrize(
    ("rule", "caught"),
    [
        ({"partner": 16}, "ld.8 halves share"),
        ({"partner": 8}, "ld.16 quarters share"),
        ({"partner": 16}, "ld.16 pairs share"),
        ({"partner": 2}, "ld.8 pairs share"),
        ({"widths_bytes": [16]}, "ld.8 one place"),
        ({"widths_bytes": [8]}, "ld.16 one place"),
    ],
)
def test_another_rule_is_wrong(
    rule: dict[str, Any], caught: str, count: Callable[[Request, int, bool], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = deepcopy(dict(banks.shared_memory()))
    data["sharing"] |= rule
    for room in (banks, emulated):
        monkeypatch.setattr(room, "shared_memory", lambda: data)
    assert caught in wrong(count)


def test_pairs_must_all_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_pair(request: Sequence[Any], width: int, is_load: bool) -> int:
        some = any(request[lane] == request[lane ^ 1] for lane in range(len(request)))
        return banks.lanes_per_phase(width) * (2 if some and is_load and width > 4 else 1)

    monkeypatch.setattr(banks, "lanes_together", any_pair)
    assert wrong(by_layout)


def test_lanes_that_take_no_part() -> None:
    """A pair that is out as a whole leaves the others theirs; a lane alone shares with nobody."""
    pairs: list[int | None] = [lane // 2 * 8 for lane in range(32)]
    without_a_pair = [None, None, *pairs[2:]]
    without_a_lane = [None, *pairs[1:]]
    assert banks.passes(without_a_pair, 8, is_load=True).phases == (1,)
    assert banks.passes(without_a_lane, 8, is_load=True).phases == (1, 1)
    assert banks.passes(pairs[:18], 8, is_load=True).phases == (1,)
    assert banks.passes(pairs[:17], 8, is_load=True).phases == (1, 1)


def test_a_merged_phase_has_conflicts_of_its_own() -> None:
    far_apart = [lane // 2 * 128 for lane in range(32)]
    assert banks.passes(far_apart, 16, is_load=True).phases == (8, 8)
    assert banks.passes(far_apart, 16, is_load=False).phases == (4, 4, 4, 4)
