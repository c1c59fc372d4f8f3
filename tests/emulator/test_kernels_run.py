"""Every kernel of the table in the emulator: the right values and not one false alarm, whatever the order of warps."""

from __future__ import annotations

from functools import cache

import pytest
from kernel_table import BY_NAME, TABLE, TestKernel
from run_kernels import check_values, ptx_of, run_case

from tilewright.emulator.options import EmulatorOptions, Schedule

ASYNCHRONOUS = (
    "ring_cp_async_mbarrier",
    "ring_cp_async_groups",
    "ring_bulk",
    "ring_tma",
    "gemm_wgmma",
    "cluster_multicast",
)
each = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)


@cache
def ptx(name: str) -> str:
    return ptx_of(BY_NAME[name])


def runs_clean(case: TestKernel, options: EmulatorOptions) -> None:
    ran = run_case(case, options, ptx(case.name))
    assert ran.emulation.error is None
    assert ran.emulation.hazards == ()
    check_values(case, ran)


@each
@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_it_runs_clean(case: TestKernel, schedule: Schedule) -> None:
    runs_clean(case, EmulatorOptions(schedule=schedule, max_seconds=30))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_other_orders(name: str, seed: int) -> None:
    runs_clean(BY_NAME[name], EmulatorOptions(schedule="random", seed=seed, max_seconds=30))


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_bytes_may_land_at_once(name: str) -> None:
    runs_clean(BY_NAME[name], EmulatorOptions(lands="eager", max_seconds=30))


@each
def test_checks_change_no_value(case: TestKernel) -> None:
    ran = run_case(case, EmulatorOptions(checks=False, max_seconds=30), ptx(case.name))
    assert ran.emulation.error is None
    assert ran.emulation.hazards == ()
    check_values(case, ran)
