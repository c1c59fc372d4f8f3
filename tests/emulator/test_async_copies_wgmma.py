"""wgmma, TMA stores and clusters: kernels of the table, each with one thing wrong, and what is said about it."""

from __future__ import annotations

import pytest
from kernel_table import BY_NAME
from run_kernels import Twin

from tilewright.emulator.options import EmulatorOptions

WGMMA, SPECIALISED, CLUSTER = (BY_NAME[n] for n in ("gemm_wgmma", "gemm_wgmma_specialised", "cluster_multicast"))
FULL_WAIT = "mbarrier_wait(shared_address(&full[stage]), t / STAGES & 1);"
WAIT_ONE, WAIT_ALL = "wgmma_wait<1>();", "wgmma_wait<0>();"
EMPTY_WAIT = "if (t >= STAGES) mbarrier_wait_cluster(shared_address(&empty[stage]), (t / STAGES - 1) & 1);"

TWINS = {
    "wgmma: waits for one group too few": Twin(
        WGMMA, (WAIT_ONE, "wgmma_wait<2>();"), (("async_read_in_flight", "&a_map, t * BK"),), "add wgmma.wait_group",
    ),
    "wgmma: wait in the loop dropped": Twin(
        WGMMA, (WAIT_ONE, ";"), (("async_read_in_flight", "&a_map, t * BK"),), "add wgmma.wait_group",
    ),
    "wgmma: last wait dropped": Twin(
        WGMMA, (WAIT_ALL, ";"), (("async_read_in_flight", "] = sum[i];"),), "add wgmma.wait_group",
    ),
    "wgmma: commit dropped": Twin(
        WGMMA, ("wgmma_commit();", ";"), (("async_read_in_flight", "] = sum[i];"),), "wgmma.commit_group",
    ),
    "wgmma: full wait dropped": Twin(
        WGMMA, ("mbarrier_wait(shared_address(&full[t % STAGES]), t / STAGES & 1);", ";"),
        (("copy_never_waited", "&a_map, t * BK"),), "is still in flight",
    ),
    "specialised: wait dropped": Twin(
        SPECIALISED, (WAIT_ALL, ";"), (("async_read_in_flight", "&a_map, t * BK"),), "add wgmma.wait_group",
    ),
    "specialised: empty wait dropped": Twin(
        SPECIALISED, ("mbarrier_wait_in_ptx(shared_address(&empty[stage]), (t / STAGES & 1) ^ 1);", ";"),
        (("write_in_flight", "&a_map, t * BK"), ("mbarrier_misuse", "mbarrier_arrive_expect(")),
    ),
    "store: proxy fence dropped": Twin(
        SPECIALISED, ("    fence_proxy_async();\n    named_sync", "    ;\n    named_sync"),
        (("missing_proxy_fence", "tma_store("),), "add fence.proxy.async",
    ),
    "store: barrier dropped": Twin(
        SPECIALISED, ("named_sync(1 + half, 128);", ";"), (("race_read_after_write", "tma_store("),)
    ),
    "store: wait dropped": Twin(
        SPECIALISED, ("bulk_wait<0>();", ";"), (("copy_never_waited", "tma_store("),), "cp.async.bulk.wait_group",
    ),
    "cluster: full wait dropped": Twin(CLUSTER, (FULL_WAIT, ";"), (("read_in_flight", "ldmatrix_x4("),)),
    "cluster: empty wait dropped": Twin(CLUSTER, (EMPTY_WAIT, ";"), (("race_write_after_read", "&a_map, t * BK"),)),
    "cluster: bytes of the other block not expected": Twin(
        CLUSTER, ("expect(barrier, A_BYTES + B_BYTES);", "expect(barrier, A_BYTES + B_BYTES / 2);"),
        (("mbarrier_misuse", "tma_load_multicast("),), "1024 bytes more than expect_tx announced",
    ),
    "cluster: arrives only at home": Twin(
        CLUSTER, ("if (lane < BLOCKS) mbarrier_arrive_in_cluster(in_block(shared_address(&empty[stage]), lane));",
                  "if (lane == 0) mbarrier_arrive(shared_address(&empty[stage]));"),
        (("deadlock", EMPTY_WAIT),), "phase 0 still lacks 4 of 8 arrivals",
    ),
    "cluster: multicast to a block that is not there": Twin(
        CLUSTER, ("(1 << BLOCKS) - 1)", "7)"), (("bad_multicast", "tma_load_multicast("),), "has no block 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_reported(name: str) -> None:
    twin = TWINS[name]
    twin.check(twin.run(EmulatorOptions(max_seconds=20)))


@pytest.mark.parametrize(
    "name", ["wgmma: last wait dropped", "specialised: wait dropped", "store: proxy fence dropped"]
)
@pytest.mark.parametrize("schedule", ["warp_serial", "random"])
def test_whatever_the_order_of_warps(name: str, schedule: str) -> None:
    ran = TWINS[name].run(EmulatorOptions(schedule=schedule, max_seconds=20))  # type: ignore[arg-type]
    assert TWINS[name].found[0][0] in ran.kinds
