"""The record of the tile model's choices, the docs that show it, and the model that made them hold together."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright import workflow
from tilewright.arch.arch import load_arch
from tilewright.arch.devices import find_device
from tilewright.receipt.tile_text import render_tile
from tilewright.settings import Settings
from tilewright.skeleton.gemm import GemmTile
from tilewright.tile.gemm import label, timed_space
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Gemm
from tilewright.tile.parameters import load_parameters

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


REGRET = script("tile_regret")
RECORD: dict[str, Any] = json.loads(REGRET.RECORD.read_text("utf-8"))


def test_the_docs_show_the_recorded_choices() -> None:
    docs = (ROOT / "docs" / "tile.md").read_text("utf-8")
    assert REGRET.text(RECORD, "test") in docs


def test_a_changed_figure_is_noticed() -> None:
    changed = copy.deepcopy(RECORD)
    next(row for row in changed["shapes"] if row["list"] == "test")["best_us"] *= 2
    assert REGRET.text(changed, "test") not in (ROOT / "docs" / "tile.md").read_text("utf-8")


def test_the_record_carries_its_protocol() -> None:
    for key in ("card", "driver", "date", "arch", "protocol"):
        assert RECORD[key]
    for row in RECORD["shapes"]:
        assert row["best_samples"] >= 2
        assert row["best_iqr_us"] >= 0
        assert row["cublas_us"] > 0
        assert row["legal"] >= row["measured"] > 500


def test_the_lists_are_disjoint_and_all_of_them_were_judged() -> None:
    lists = REGRET.lists()
    assert {len(names) for names in lists.values()} == {12}
    assert not set(lists["calibration"]) & set(lists["test"])
    assert {(row["list"], row["name"]) for row in RECORD["shapes"]} == {
        (which, name) for which, names in lists.items() for name in names
    }


def test_the_summary_follows_from_the_rows() -> None:
    assert REGRET.summary(RECORD["shapes"]) == RECORD["summary"]
    for row in RECORD["shapes"]:
        if row["regret"] is not None:
            assert row["regret"] == pytest.approx(row["chosen_us"] / row["best_us"] - 1)


def test_the_acceptance_holds() -> None:
    assert RECORD["summary"]["test"]["within_10_percent"] >= 10


@pytest.mark.parametrize("row", RECORD["shapes"], ids=lambda row: row["name"])
def test_the_model_still_chooses_what_was_measured(row: dict[str, Any]) -> None:
    device = find_device(RECORD["card"])
    assert device is not None
    machine = Machine(load_arch(RECORD["arch"]), device)
    timed = timed_space(Gemm(row["m"], row["n"], row["k"], row["batch"]), machine, load_parameters())
    # Measured before tiles that spill, or take every register, were no longer legal: neither of the two is one.
    assert 0.95 * row["legal"] < len(timed.tiles) <= row["legal"]
    assert GemmTile(*row["best"]) in timed.tiles
    assert label(timed.best) == row["chosen"]
    assert float(timed.time.seconds[timed.order[0]]) * 1e6 == pytest.approx(row["predicted_us"], rel=1e-6)


def test_the_calibration_reads_no_test_shape() -> None:
    calibrate = script("tile_calibrate")
    lists = REGRET.lists()
    assert calibrate.calibration_names() == set(lists["calibration"])
    device = find_device(RECORD["card"])
    assert device is not None
    shape = {"batch": 1, "m": 512, "n": 512, "k": 512}
    rows = [{"config": [64, 64, 32, 2, 2, 3, 1, 1], "median_us": 7.0}]
    report = {"shapes": [{"name": name, **shape, "rows": rows} for names in lists.values() for name in names]}
    found = calibrate.cases(report, calibrate.calibration_names(), Machine(load_arch(RECORD["arch"]), device))
    assert {case.name for case in found} == set(lists["calibration"])


def test_the_worked_example_is_what_the_command_prints() -> None:
    docs = (ROOT / "docs" / "tile.md").read_text("utf-8")
    options: dict[str, Any] = {"device": "h200", "settings": Settings.from_environment()}
    fixed = workflow.tile("gemm", ("M=4096", "N=4096", "K=4096"), dtype="fp16", top=5, **options).report
    assert render_tile(fixed) in docs
    dynamic = render_tile(workflow.tile("gemm", ("M=1..4096", "N=4096", "K=4096"), **options).report)
    first = dynamic.index("M from")
    table = dynamic[first : dynamic.index("\n\n", first)]
    assert table in docs
