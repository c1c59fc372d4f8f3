"""benchmarks/emulator_speed.py: its arithmetic and its record. The times are taken by hand, on a quiet machine."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def speed() -> Iterator[ModuleType]:
    yield script(BENCHMARKS / "emulator_speed.py", "emulator_speed")
    del sys.modules["emulator_speed"]


def some_taken(speed: ModuleType) -> dict[Any, Any]:
    """Times of four runs: numba's at 64, the emulator's and Triton's at 512."""

    def taken(*wall_s: float) -> Any:
        return speed.Taken(1.5, list(wall_s), list(wall_s), 100 << 20, 50 << 20, {"numpy": "2"})

    return {
        speed.VALUES: taken(0.1, 0.2, 0.1),
        speed.CHECKS: taken(0.2, 0.4, 0.2),
        speed.NUMBA: taken(4.0, 8.0, 2.0),
        speed.TRITON: taken(2.0, 4.0, 1.0),
    }


def test_a_ratio_is_taken_round_by_round_a_multiply_add(speed: ModuleType) -> None:
    found = speed.ratios(some_taken(speed))
    assert found["triton_512_to_values_512"] == {"median": 20.0, "min": 10.0, "max": 20.0, "samples": 3}
    # numba's product is smaller by 8**3: each of its multiply-adds is worth as many.
    assert found["numba_64_to_values_512"]["median"] == pytest.approx(40.0 * 512)
    assert "triton_512_large_blocks_to_values_512" not in found, "a run that was not made has no ratio"


def test_only_rounds_that_both_ran_count(speed: ModuleType) -> None:
    taken = some_taken(speed)
    taken[speed.NUMBA].wall_s.pop()
    assert speed.ratios(taken)["numba_64_to_checks_512"]["samples"] == 2


def test_the_spread_is_the_interquartile_range(speed: ModuleType) -> None:
    assert speed.spread([5.0, 1.0, 2.0, 3.0, 4.0]) == {"median_s": 3.0, "min_s": 1.0, "iqr_s": 2.0, "samples": 5}


@pytest.mark.parametrize(
    ("times", "enough"),
    [([1.0] * 9, True), ([1.0] * 8, False), ([30.0, 30.0], False), ([20.0, 20.0, 20.0], True)],
)
def test_a_long_run_gets_fewer_rounds_but_not_too_few(speed: ModuleType, times: list[float], enough: bool) -> None:
    assert speed.is_enough(times, 9, 45.0) is enough


def test_a_target_is_met_missed_or_not_measured(speed: ModuleType) -> None:
    taken = some_taken(speed)
    by_name = {t["what"]: t for t in speed.targets(taken, speed.ratios(taken))}
    assert by_name["values_512_s"] == {"what": "values_512_s", "at_most": 0.4, "measured": 0.1, "met": True}
    assert by_name["checks_warp_serial_512_s"]["met"] is None
    assert by_name["numba_64_to_values_512"]["met"] is True
    assert by_name["peak_bytes"]["measured"] == 100 << 20

    taken[speed.VALUES].wall_s[:] = [0.5, 0.5, 0.5]
    taken[speed.NUMBA].wall_s[:] = [0.5, 0.5, 0.5]
    taken[speed.CHECKS].peak_bytes = 3 << 30
    by_name = {t["what"]: t["met"] for t in speed.targets(taken, speed.ratios(taken))}
    assert (by_name["values_512_s"], by_name["numba_64_to_values_512"], by_name["peak_bytes"]) == (False,) * 3


def test_every_ratio_is_of_runs_that_take_turns(speed: ModuleType) -> None:
    compared = speed.groups()[0]
    for slow, fast in speed.RATIOS.values():
        assert {slow, fast} <= set(compared)
    runs = [run for group in speed.groups() for run in group]
    assert len(set(runs)) == len(runs)


def check_shape(result: dict[str, Any]) -> None:
    assert result["benchmark"] == "emulator_speed"
    assert result["machine"]["cpu"]
    assert result["machine"]["cores_used"] == 1
    assert result["date"]
    assert {"version", "python", "numpy"} <= result["tool"].keys()
    for run in result["runs"]:
        assert run["samples"] >= 3
        assert 0 < run["min_s"] <= run["median_s"]
        assert run["iqr_s"] >= 0
        assert run["ns_per_multiply_add"] == pytest.approx(run["median_s"] / run["size"] ** 3 * 1e9)
        assert 0 < run["peak_bytes_before"] <= run["peak_bytes"]
    for ratio in result["ratios"].values():
        assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]


def test_a_record_carries_its_protocol(speed: ModuleType) -> None:
    missing = {"triton": speed.INSTALL["triton"]}
    machine = {"cpu": "a processor", "cores": 2, "cores_used": 1}
    result = speed.record(some_taken(speed), missing, machine, "2026-01-01T00:00:00+00:00")
    check_shape(json.loads(json.dumps(result)))
    assert result["missing"] == missing
    assert [r["contender"] for r in result["runs"]] == ["emulator", "emulator", "numba", "triton"]


@pytest.mark.skipif(not (BENCHMARKS / "results" / "emulator-speed.json").exists(), reason="not measured yet")
def test_the_recorded_measurement_meets_its_targets() -> None:
    result = json.loads((BENCHMARKS / "results" / "emulator-speed.json").read_text())
    check_shape(result)
    assert [t["what"] for t in result["targets"] if t["met"] is not True] == []


def test_a_wrong_product_is_no_contender() -> None:
    product = script(BENCHMARKS / "contenders" / "product.py", "contenders_product")
    a, b = product.operands(64)
    c = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float32) * product.SCALE
    assert product.is_exact(c, 64)
    c[63, 63] = np.nextafter(c[63, 63], np.float32(np.inf))
    assert not product.is_exact(c, 64)
