"""What the emulator counts of a rung is counted once, for all processes that share a cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.gpu.device import GpuInfo
from tilewright.ladder import counted
from tilewright.ladder.building import Build, build_one
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

INFO = GpuInfo(
    0, "a card", "sm_90", "580", (13, 0), 132, 60 << 20, 1 << 37, 1980, 227 << 10, 228 << 10, 1 << 10, 65536, 2048, 32
)  # fmt: skip


def test_what_was_built_beforehand_is_not_emulated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, relu, runs = Settings(tmp_path), load_family("relu"), list[object]()
    emulated = counted.run_emulated

    def watched(*given: Any, **more: Any) -> Any:
        runs.append(given)
        return emulated(*given, **more)

    monkeypatch.setattr(counted, "run_emulated", watched)
    rung = relu.rungs[0]
    assert build_one(Build("relu", rung.name, "float32", is_counted=True), INFO, settings) == ""
    assert len(runs) == len(counted.COUNTED_AT)
    found = counted.counted(relu, rung, "float32", settings)
    assert len(runs) == len(found) == len(counted.COUNTED_AT)
    assert all(run.counters["instructions"] > 0 for run in found)
    counted.counted(relu, rung, "float16", settings)  # of other code, nothing is known
    assert len(runs) == 2 * len(counted.COUNTED_AT)


def test_counts_of_a_small_tile_say_nothing_of_a_cards_tile() -> None:
    family = load_family("hgemm")
    rung = family.rung("08_cp_async4")
    runs = counted.counted(family, rung, "float16", Settings.from_environment())
    here = compile_rung(rung_spec(family, rung, "float16"), Settings.from_environment())
    assert runs
    assert counted.of_this_tile(runs, here) == runs
    small = {**here.constants, "BM": here.constants["BM"] / 2}
    assert counted.of_this_tile(runs, replace(here, constants=small)) == ()
    relu = load_family("relu")  # nobody's tile: runs of any number of threads do
    built = compile_rung(rung_spec(relu, relu.rungs[0], "float32"), Settings.from_environment())
    whole = counted.counted(relu, relu.rungs[0], "float32", Settings.from_environment())
    assert counted.of_this_tile(whole, replace(built, constants={**built.constants, "THREADS": 1})) == whole
