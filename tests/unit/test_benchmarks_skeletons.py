"""The record of the skeletons on a card, and the table that docs/skeletons.md draws from it."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("skeleton_table", ROOT / "benchmarks" / "skeleton_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


table = _script()
PAGE = table.PAGE.read_text(encoding="utf-8")
RECORD: dict[str, Any] = json.loads(table.RECORD.read_text(encoding="utf-8"))


def test_the_page_shows_the_record() -> None:
    assert table.with_table(PAGE, RECORD) == PAGE
    assert len(RECORD["rows"]) == 18
    assert all(map(table.is_right, RECORD["rows"]))
    for row in RECORD["rows"]:
        assert f"| {row['name']} |" in PAGE


@pytest.mark.parametrize(("side", "factor"), [("skeleton", 1.1), ("torch", 0.9)])
@pytest.mark.parametrize("at", [0, 9, 17])
def test_another_time_is_noticed(side: str, factor: float, at: int) -> None:
    changed = copy.deepcopy(RECORD)
    changed["rows"][at]["us"][side] *= factor
    assert table.with_table(PAGE, changed) != PAGE


@pytest.mark.parametrize("run", ["ragged", "large"])
@pytest.mark.parametrize("key", ["right", "guards_hold"])
def test_a_wrong_skeleton_is_said_to_be_wrong(run: str, key: str) -> None:
    changed = copy.deepcopy(RECORD)
    changed["rows"][3][run][key] = False
    drawn = table.table(changed)
    assert "17 of 18 right" in drawn
    assert f"{RECORD['rows'][3]['name']}: **wrong**" in drawn


def test_one_that_did_not_run_is_not_right() -> None:
    changed = copy.deepcopy(RECORD)
    changed["rows"][0] = {"name": "gemm fp16", "error": "no"}
    drawn = table.table(changed)
    assert "17 of 18 right" in drawn
    assert "| gemm fp16 | – | did not run | – | – |" in drawn
