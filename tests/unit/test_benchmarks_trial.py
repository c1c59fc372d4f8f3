"""Trials of candidates: what is built for them, without a card."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from test_benchmarks_ladder import INFO

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
trial = pytest.importorskip("ladder_trial")


def test_candidates_take_their_defines_and_leave_out_what_does_not_fit() -> None:
    sizes = {"R": 128, "C": 1024, "ld_x": 1024}
    candidates = [["09_one_barrier", {"WORKERS": 64, "PIECES": 4}], ["08_lanes", {}], ["06_cluster", {}]]
    one = {"family": "softmax", "dtype": "float32", "sizes": [sizes, {**sizes, "C": 4096, "ld_x": 4096}]}
    rungs = trial.rungs_of({**one, "candidates": candidates}, sizes, INFO)
    assert list(rungs) == ["shipped", "09_one_barrier WORKERS=64 PIECES=4", "08_lanes", "06_cluster"]
    assert rungs["09_one_barrier WORKERS=64 PIECES=4"].defines["WORKERS"] == 64
    assert rungs["shipped"].name == "09_one_barrier"
    assert "08_lanes" not in trial.rungs_of({**one, "candidates": candidates}, one["sizes"][1], INFO)
    made = list(trial.jobs([{**one, "candidates": candidates}], INFO))
    assert len({msgspec.json.encode([j[2].name, dict(j[2].defines)]) for j in made}) == len(made)
    assert trial.build(made[0]) == ""
