"""mbarriers: kernels of the table, each with one thing wrong, and what is said about it."""

from __future__ import annotations

import pytest
from kernel_table import BY_NAME
from run_kernels import Twin

from tilewright.emulator.options import EmulatorOptions

TMA, GROUPS, BULK = BY_NAME["ring_tma"], BY_NAME["ring_cp_async_mbarrier"], BY_NAME["ring_bulk"]
FULL_WAIT = "mbarrier_wait_in_ptx(shared_address(&full[stage]), t / STAGES & 1);"
EMPTY_WAIT = "if (t >= STAGES) mbarrier_wait_in_ptx(shared_address(&empty[stage]), (t / STAGES - 1) & 1);"
EXPECT = "mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);"
ARRIVE = "if (lane == 0) mbarrier_arrive(shared_address(&empty[stage]));"
POLL = "mbarrier_poll(shared_address(&full[stage]), t / STAGES & 1);"

TWINS = {
    "full wait dropped": Twin(
        TMA, (FULL_WAIT, ";"),
        (("read_in_flight", "ldmatrix_x4("), ("copy_never_waited", "&a_map, t * BK")),
    ),
    "empty wait dropped": Twin(TMA, (EMPTY_WAIT, ";"), (("race_write_after_read", "&a_map, t * BK"),)),
    "expect_tx dropped": Twin(TMA, (EXPECT, "mbarrier_arrive(barrier);"), (("read_in_flight", "ldmatrix_x4("),)),
    "too few bytes expected": Twin(
        TMA, (EXPECT, "mbarrier_arrive_expect(barrier, A_BYTES);"), (("mbarrier_misuse", "&b_map, t * BK"),),
        "more than expect_tx announced",
    ),
    "too many bytes expected": Twin(
        TMA, (EXPECT, "mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES + 16);"), (("deadlock", FULL_WAIT),),
        "0 of 1 arrivals and 16 bytes",
    ),
    "wrong parity": Twin(
        TMA, (FULL_WAIT, FULL_WAIT.replace("t / STAGES & 1", "(t / STAGES & 1) ^ 1")),
        (("read_in_flight", "ldmatrix_x4("), ("mbarrier_misuse", EXPECT)),
    ),
    "the same parity always": Twin(
        TMA, (FULL_WAIT, FULL_WAIT.replace("t / STAGES & 1", "0")), (("read_in_flight", "ldmatrix_x4("),)
    ),
    "every lane arrives": Twin(
        TMA, (ARRIVE, "mbarrier_arrive(shared_address(&empty[stage]));"), (("mbarrier_misuse", ARRIVE),),
        "128 arrivals, 4 were missing of its count of 4",
    ),
    "nobody arrives": Twin(
        TMA, (ARRIVE, ";"), (("deadlock", EMPTY_WAIT),), "phase 0 still lacks 4 of 4 arrivals",
    ),
    "never initialised": Twin(
        TMA, ("mbarrier_init(shared_address(&empty[s]), WARPS);", ";"),
        (("mbarrier_misuse", EMPTY_WAIT), ("mbarrier_misuse", ARRIVE)), "is not initialised",
    ),
    "count too large": Twin(
        TMA, ("mbarrier_init(shared_address(&full[s]), 1);", "mbarrier_init(shared_address(&full[s]), 2);"),
        (("deadlock", FULL_WAIT),), "phase 0 still lacks 1 of 2 arrivals",
    ),
    "no barrier behind the initialisation": Twin(
        TMA, ("__syncthreads();", ";"), (("race_read_after_write", FULL_WAIT),)
    ),
    "cp.async: full wait dropped": Twin(
        GROUPS, (POLL, ";"),
        (("read_in_flight", "sum[j] = fmaf"), ("copy_never_waited", "cp_async_16(shared_address(&a")),
    ),
    "cp.async: arrival does not wait for the copies": Twin(
        GROUPS, ("cp_async_arrive(shared_address(&full[stage]));", "mbarrier_arrive(shared_address(&full[stage]));"),
        (("read_in_flight", "sum[j] = fmaf"),),
    ),
    "cp.async: empty wait dropped": Twin(
        GROUPS, ("if (t >= STAGES) mbarrier_poll(shared_address(&empty[stage]), (t / STAGES - 1) & 1);", ";"),
        (("race_write_after_read", "cp_async_16(shared_address(&a"),),
    ),
    "cp.async: count too large": Twin(
        GROUPS, ("&full[thread]), THREADS)", "&full[thread]), THREADS + 1)"), (("deadlock", POLL),),
        "phase 0 still lacks 1 of 65 arrivals",
    ),
    "bulk: full wait dropped": Twin(
        BULK, ("mbarrier_wait(shared_address(&full[stage]), t / STAGES & 1);", ";"),
        (("read_in_flight", "u32 *)&a_tile"), ("copy_never_waited", "bulk_load(shared_address(&a_tile")),
    ),
    "bulk: expect_tx dropped": Twin(
        BULK, ("mbarrier_arrive_expect(barrier, (BM + BN) * BK * 2);", "mbarrier_arrive(barrier);"),
        (("read_in_flight", "u32 *)&a_tile"),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_reported(name: str) -> None:
    twin = TWINS[name]
    twin.check(twin.run(EmulatorOptions(max_seconds=20)))


@pytest.mark.parametrize(
    "name", ["full wait dropped", "expect_tx dropped", "nobody arrives", "cp.async: full wait dropped"]
)
@pytest.mark.parametrize("schedule", ["warp_serial", "random"])
def test_whatever_the_order_of_warps(name: str, schedule: str) -> None:
    ran = TWINS[name].run(EmulatorOptions(schedule=schedule, max_seconds=20))  # type: ignore[arg-type]
    assert TWINS[name].found[0][0] in ran.kinds


def test_a_hang_ends_with_an_error() -> None:
    ran = TWINS["count too large"].run(EmulatorOptions(max_seconds=20))
    assert ran.emulation.error == "the kernel hangs"
