"""Every hazard in shared memory by the shortest sequence that has it, and the same sequence made right: silent."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.emulator.checks.reports import Finding, Reporter
from tilewright.emulator.checks.shared_shadow import SharedShadow, bytes_needed
from tilewright.emulator.checks.wording import describe

BLOCKS, WARPS, SMEM = 2, 2, 1024
PER = WARPS * 32
SYMBOLS = (("tile_a", 0, 512), ("tile_b", 512, 512))
NAMES = {64: "cp.async.cg.shared.global", 65: "cp.async.bulk.tensor.2d", 66: "wgmma.mma_async.sync", 67: "st.async"}
ALL = np.arange(BLOCKS * PER)


class Bench:
    """A shadow with calls in terms of a warp, lanes and an offset, made in every block (``spread``) or in block 1."""

    def __init__(self, spread: bool, granule: int = 4) -> None:
        self.reporter = Reporter()
        self.shadow = SharedShadow(BLOCKS, WARPS, SMEM, granule, SYMBOLS, self.reporter)
        self.slots = np.arange(BLOCKS) if spread else np.array([1])

    def threads(self, warp: int, lanes: range = range(32)) -> np.ndarray:
        return (self.slots[:, None] * PER + warp * 32 + np.array(lanes)).reshape(-1)

    def bytes(self, offset: int, lanes: range = range(32), size: int = 4) -> np.ndarray:
        return (self.slots[:, None] * SMEM + offset + np.arange(len(lanes)) * size).reshape(-1)

    def go(self, what: str, warp: int, offset: int, site: int, lanes: range = range(32), size: int = 4, **more) -> None:
        getattr(self.shadow, what)(self.threads(warp, lanes), self.bytes(offset, lanes, size), size, site, **more)

    def land(self, offset: int, site: int, clock, lanes: range = range(32), bulk: bool = True) -> None:
        where = self.bytes(offset, lanes)
        self.shadow.land_async(where // SMEM, where, 4, site, clock, bulk=bulk)

    def both(self) -> np.ndarray:
        return np.concatenate([self.threads(0), self.threads(1)]) if len(self.slots) == 1 else ALL

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.reporter.findings}

    def only(self) -> Finding:
        (finding,) = self.reporter.findings
        return finding


@pytest.fixture(params=["all_blocks", "one_block"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param == "all_blocks")


def text(finding: Finding) -> str:
    hazard = describe(finding, lambda site: site, lambda site: NAMES.get(site, "st.shared"))
    assert (hazard.kind, hazard.line) == (finding.kind, finding.site)
    return hazard.message


def test_read_of_what_nobody_wrote(bench: Bench) -> None:
    bench.go("write", 0, 0, 60)
    bench.go("read", 0, 0, 61)
    assert not bench.kinds
    bench.shadow.barrier_all()
    bench.go("read", 0, 64, 62)
    finding = bench.only()
    assert finding.kind == "uninitialised_read"
    assert finding.count == 16 * len(bench.slots)
    assert finding.detail.offset == 128
    assert "tile_a[128..131] is read at line 62 by thread 16" in text(finding)


@pytest.mark.parametrize(
    ("first", "then", "kind"),
    [
        ("write", "read", "race_read_after_write"),
        ("write", "write", "race_write_after_write"),
        ("read", "write", "race_write_after_read"),
        ("write", "atomic", "race_read_after_write"),
        ("read", "atomic", "race_write_after_read"),
        ("atomic", "read", "race_read_after_write"),
        ("atomic", "write", "race_write_after_write"),
        ("read", "issue", "race_write_after_read"),
        ("write", "issue", "race_write_after_write"),
    ],
)
@pytest.mark.parametrize("order", ["none", "barrier", "barrier_all", "mbarrier", "other_way", "unwaited"])
def test_race_between_warps(bench: Bench, first: str, then: str, kind: str, order: str) -> None:
    shadow = bench.shadow
    bench.go("write", 0, 512, 50)
    shadow.barrier_all()
    bench.go(first, 0, 512, 60)
    clock = shadow.new_mbarrier()
    if order == "barrier":
        shadow.barrier(bench.both())
    elif order == "barrier_all":
        shadow.barrier_all()
    elif order in ("mbarrier", "unwaited"):
        shadow.arrive(clock, bench.threads(0))
        shadow.complete(clock, bench.slots)
        if order == "mbarrier":
            shadow.acquire(clock, bench.threads(1))
    elif order == "other_way":  # bar.arrive of the later one, bar.sync of the earlier
        shadow.barrier(bench.both(), bench.threads(0))
    bench.go(then, 1, 512, 71)
    if order in ("barrier", "barrier_all", "mbarrier"):
        assert not bench.kinds
    else:
        finding = bench.only()
        assert (finding.kind, finding.site, finding.other_site) == (kind, 71, 60)
        assert finding.count == 32 * len(bench.slots)
        assert (finding.detail.thread, finding.detail.other_thread) == (32, 0)
        message = text(finding)
        assert "tile_b[0..3]" in message
        assert "at line 60 by thread 0 (warp 0)" in message
        assert "at line 71 by thread 32 (warp 1), no barrier between: add __syncthreads()" in message


@pytest.mark.parametrize(("first", "then"), [("write", "read"), ("read", "write"), ("write", "write")])
def test_race_inside_a_warp(bench: Bench, first: str, then: str) -> None:
    bench.go("write", 0, 0, 50)
    bench.shadow.barrier_all()
    bench.go(first, 0, 0, 60, range(16))
    bench.go(then, 0, 0, 61, range(16))  # the same lanes, the same bytes
    bench.shadow.converge(bench.threads(0))
    bench.go(then, 0, 4, 62, range(15))
    assert not bench.kinds
    bench.go(first, 0, 256, 63, range(16))
    assert bench.kinds <= {"uninitialised_read"}
    bench.go(then, 0, 260, 64, range(15))
    (finding,) = [each for each in bench.reporter.findings if each.kind.startswith("race")]
    assert finding.site == 64
    assert "add __syncwarp() between them" in text(finding)


def test_converge_of_everybody_orders_lanes_only() -> None:
    bench = Bench(True)
    bench.go("write", 0, 0, 60)
    bench.shadow.converge(ALL)
    bench.go("read", 0, 4, 61, range(31))
    assert not bench.kinds
    bench.go("read", 1, 0, 62)
    assert bench.kinds == {"race_read_after_write"}


def test_atomics_do_not_race_with_each_other(bench: Bench) -> None:
    bench.go("write", 0, 0, 50)
    bench.shadow.barrier_all()
    bench.go("atomic", 0, 0, 60)
    bench.go("atomic", 1, 0, 60)
    assert not bench.kinds


@pytest.mark.parametrize("kind", ["strong", "atomic"])
@pytest.mark.parametrize("missing", ["nothing", "writer_fence", "reader_fence", "wait", "other_flag"])
@pytest.mark.parametrize("parts", [False, True])
def test_flag_in_memory(bench: Bench, kind: str, missing: str, parts: bool) -> None:
    """Data, fence, flag; flag, fence, data."""
    shadow, one = bench.shadow, range(1)
    write, read = ("atomic", "atomic") if kind == "atomic" else ("strong_write", "strong_read")
    bench.go("strong_write", 0, 512, 50)
    bench.go("strong_write", 0, 768, 50)
    bench.go("write", 0, 0, 60, one)
    if missing != "writer_fence":
        shadow.fence(bench.threads(0))
    bench.go(write, 0, 512, 61, one)
    if parts:
        Bench.go(bench, "strong_read", 0, 512, 62, range(7))
        alone = Bench(False)
        shadow.strong_read(alone.threads(0, one), alone.bytes(512, one), 4, 63)  # blocks part here
    if missing != "wait":
        bench.go(read, 1, 768 if missing == "other_flag" else 512, 70, one)
    if missing != "reader_fence":
        shadow.fence(bench.threads(1))
    bench.go("read", 1, 0, 71, one)
    assert bench.kinds == (set() if missing == "nothing" else {"race_read_after_write"})


def test_flag_that_is_written_plainly(bench: Bench) -> None:
    bench.go("strong_write", 0, 512, 60)
    bench.go("strong_write", 1, 512, 61)
    bench.go("strong_read", 0, 512, 62)
    assert not bench.kinds
    bench.go("write", 0, 0, 63)
    bench.go("strong_read", 1, 0, 64)
    bench.go("read", 0, 512, 65)
    assert [(f.kind, f.site, f.other_site) for f in bench.reporter.findings] == [
        ("race_read_after_write", 64, 63),
        ("race_read_after_write", 65, 61),
    ]


@pytest.mark.parametrize("waits", [True, False])
def test_copy_in_flight(bench: Bench, waits: bool) -> None:
    bench.go("issue", 0, 0, 64, range(2), 16)
    if waits:
        bench.go("land", 0, 0, 64, range(2), 16)
        bench.shadow.barrier(bench.both())
    bench.go("read", 1, 0, 71, range(2), 16)
    bench.shadow.barrier(bench.both())
    bench.go("write", 1, 0, 72, range(2), 16)
    if waits:
        assert not bench.kinds
    else:
        read, write = bench.reporter.findings
        assert (read.kind, write.kind) == ("read_in_flight", "write_in_flight")
        assert text(read).startswith(
            "tile_a[0..15] is read at line 71 by thread 32 while the cp.async of line 64 (thread 0) is still in "
            "flight: wait for its group (cp.async.wait_group / __pipeline_wait_prior) before line 71"
        )
        assert "is written at line 72" in text(write)


def test_second_copy_into_a_stage_in_flight(bench: Bench) -> None:
    bench.go("issue", 0, 0, 64)
    bench.go("issue", 0, 0, 65)
    assert bench.only().kind == "write_in_flight"


def test_wait_without_barrier_is_a_race(bench: Bench) -> None:
    bench.go("issue", 0, 0, 64)
    bench.shadow.barrier(bench.both())
    bench.go("land", 0, 0, 64)
    bench.go("read", 0, 0, 70)  # by the threads that waited
    assert not bench.kinds
    bench.go("read", 1, 0, 71)
    assert bench.only().kind == "race_read_after_write"


def test_copy_that_nobody_waits_for(bench: Bench) -> None:
    bench.go("issue", 0, 0, 64)
    bench.go("issue", 0, 512, 65)
    bench.go("land", 0, 512, 65)
    bench.shadow.finish()
    finding = bench.only()
    assert (finding.kind, finding.site) == ("copy_never_waited", 64)
    assert "still in flight when the kernel ends" in text(finding)


@pytest.mark.parametrize("bulk", [True, False])
@pytest.mark.parametrize("step", ["right", "no_wait", "early_phase"])
def test_copy_that_signals_an_mbarrier(bench: Bench, step: str, bulk: bool) -> None:
    shadow = bench.shadow
    clock = shadow.new_mbarrier()
    bench.go("issue", 0, 0, 65)
    if step == "early_phase":
        shadow.complete(clock, bench.slots)
    bench.land(0, 65, clock, bulk=bulk)
    if step != "early_phase":
        shadow.complete(clock, bench.slots)
    if step != "no_wait":
        shadow.acquire(clock, bench.threads(0))
        shadow.acquire(clock, bench.threads(1))
    shadow.barrier_all()  # orders warps, but nobody knows of the copy unless it has waited
    bench.go("read", 1, 0, 71)
    assert bench.kinds == (set() if step == "right" else {"race_read_after_write"})
    if step != "right":
        assert "by an asynchronous copy" in text(bench.only())
        assert "wait for the mbarrier" in text(bench.only())


@pytest.mark.parametrize("fence", ["writer", "reader", "none", "too_early"])
def test_proxy_fence(bench: Bench, fence: str) -> None:
    shadow = bench.shadow
    if fence == "too_early":
        shadow.proxy_fence(bench.threads(0))
    bench.go("write", 0, 0, 60)
    if fence == "writer":
        shadow.proxy_fence(bench.threads(0))
    shadow.barrier_all()
    if fence == "reader":
        shadow.proxy_fence(bench.threads(1))
    bench.go("async_read", 1, 0, 66)
    assert bench.kinds == (set() if fence in ("writer", "reader") else {"missing_proxy_fence"})
    if bench.kinds:
        assert "add fence.proxy.async after line 60" in text(bench.only())


@pytest.mark.parametrize("bulk", [True, False])
def test_bulk_copies_need_no_proxy_fence(bench: Bench, bulk: bool) -> None:
    clock = bench.shadow.new_mbarrier()
    bench.go("issue", 0, 0, 65)
    bench.land(0, 65, clock, bulk=bulk)
    bench.shadow.complete(clock, bench.slots)
    bench.shadow.acquire(clock, bench.threads(1))
    bench.go("async_read", 1, 0, 66)
    assert bench.kinds == (set() if bulk else {"missing_proxy_fence"})


@pytest.mark.parametrize("then", ["write", "issue"])
@pytest.mark.parametrize("retires", ["before_barrier", "after_barrier", "never"])
def test_outstanding_reads(bench: Bench, then: str, retires: str) -> None:
    shadow = bench.shadow
    bench.go("write", 0, 0, 60)
    shadow.proxy_fence(bench.threads(0))
    shadow.barrier_all()
    bench.go("async_read", 0, 0, 66, token=7)
    bench.go("read", 0, 0, 67)  # an ordinary read does not end it
    if retires == "before_barrier":
        shadow.retire([7])
    shadow.barrier(bench.both())
    if retires == "after_barrier":
        shadow.retire([7], bench.threads(0))
    bench.go(then, 1, 0, 71)
    expected = {
        "before_barrier": set(),
        "after_barrier": {"race_write_after_read"},
        "never": {"async_read_in_flight"},
    }[retires]
    assert bench.kinds == expected
    if retires == "never":
        assert "while the wgmma of line 66 (thread 0) still reads it: add wgmma.wait_group before line 71" in text(
            bench.only()
        )


def test_tokens_retire_by_warp() -> None:
    bench = Bench(True)
    shadow = bench.shadow
    everybody = ALL
    linear = ALL // PER * SMEM + ALL % PER * 4
    shadow.write(everybody, linear, 4, 60)
    shadow.proxy_fence(everybody)
    shadow.barrier_all()
    shadow.async_read(everybody, linear, 4, 66, token=1)
    one = np.arange(32)
    shadow.retire([1], one)
    shadow.write(one, linear[:32], 4, 70)  # its own lanes have retired
    assert not bench.kinds
    shadow.write(np.arange(32, 64), linear[32:64], 4, 71)
    assert bench.only().kind == "async_read_in_flight"
    assert bench.only().site == 71
    shadow.retire([1], everybody)
    shadow.write(np.arange(64, 128), linear[64:], 4, 72)
    assert len(bench.reporter.findings) == 1


def test_blocks_that_part_keep_what_they_knew() -> None:
    """One block stands for both until they differ; what was pending, written and read before holds for each."""
    bench = Bench(True)
    bench.go("issue", 0, 0, 64)
    bench.go("write", 0, 512, 60)
    alone = Bench(False)
    threads, linear = alone.threads(1), alone.bytes(0)
    bench.shadow.read(threads, linear, 4, 70)
    bench.shadow.read(threads, linear + 512, 4, 71)
    bench.shadow.read(threads - PER, linear - SMEM, 4, 72)
    assert [(f.kind, f.site, f.count, f.detail.block) for f in bench.reporter.findings] == [
        ("read_in_flight", 70, 32, 1),
        ("race_read_after_write", 71, 32, 1),
        ("read_in_flight", 72, 32, 0),
    ]


def test_memory_of_another_block_is_initialised_but_not_judged() -> None:
    bench = Bench(False)
    bench.shadow.write(bench.threads(0) - PER, bench.bytes(0), 4, 67)
    bench.go("read", 1, 0, 70)
    assert not bench.kinds


@pytest.mark.parametrize(
    ("granule", "size"), [(granule, size) for granule in (1, 2, 4) for size in (1, 2, 4, 8, 16, 64) if size >= granule]
)
def test_sizes(granule: int, size: int) -> None:
    bench = Bench(True, granule)
    lanes = range(4)
    bench.go("write", 0, 64, 60, lanes, size)
    bench.go("read", 0, 64, 61, lanes, size)
    assert not bench.kinds
    bench.go("read", 1, 64, 62, lanes, size)
    assert bench.only().kind == "race_read_after_write"
    assert bench.only().detail.size_bytes == max(granule, min(size, 16))


def test_memory_bound() -> None:
    shadow = Bench(True, 1).shadow
    assert bytes_needed(BLOCKS, WARPS, SMEM, 1) >= BLOCKS * SMEM * (4 + 2 + 4 + 4 * WARPS)
    assert shadow is not None
    with pytest.raises(ValueError, match="granules of 3"):
        SharedShadow(1, 1, 1024, 3, (), Reporter())


@pytest.mark.parametrize("together", [True, False])
def test_of_races_inside_and_across_warps_the_latter_is_shown(bench: Bench, together: bool) -> None:
    """A missing __syncthreads() makes both; __syncwarp() would mend the one only."""
    bench.go("write", 0, 0, 60)
    if together:
        threads = np.concatenate([bench.threads(0, range(31)), bench.threads(1)])
        linear = np.concatenate([bench.bytes(4, range(31)), bench.bytes(0)])
        order = np.argsort(threads, kind="stable")
        bench.shadow.read(threads[order], linear[order], 4, 71)
    else:
        bench.go("read", 0, 4, 71, range(31))
        bench.go("read", 1, 0, 71)
    finding = bench.only()
    assert finding.count == 63 * len(bench.slots)
    assert finding.detail.is_across_warps
    assert "__syncthreads()" in text(finding)


@pytest.mark.parametrize("same", ["all", "none", "half"])
def test_warps_that_write_the_same_value(bench: Bench, same: str) -> None:
    """A flag that many set is no race of writes, but to read it takes a barrier all the same."""
    unchanged = {"all": np.ones(32, bool), "none": np.zeros(32, bool), "half": np.arange(32) < 16}[same]
    asked = []

    def answer() -> np.ndarray:
        asked.append(1)
        return np.tile(unchanged, len(bench.slots))

    bench.go("write", 0, 0, 60, unchanged=answer)
    bench.shadow.barrier_all()
    bench.go("write", 0, 0, 61, unchanged=answer)
    assert not asked
    bench.go("write", 1, 0, 62, unchanged=answer)
    assert bench.kinds == (set() if same == "all" else {"race_write_after_write"})
    if same != "all":
        assert bench.only().count == (32 if same == "none" else 16) * len(bench.slots)
    bench.go("read", 0, 0, 63)
    assert "race_read_after_write" in bench.kinds


@pytest.mark.parametrize("fenced", [True, False])
def test_last_to_arrive_at_a_counter(fenced: bool) -> None:
    """Every warp writes, fences and counts, all in one call; the one that finds itself last reads what all wrote."""
    bench = Bench(True)
    bench.go("strong_write", 0, 512, 50)
    bench.shadow.barrier_all()
    linear = ALL // PER * SMEM + ALL % PER * 4
    bench.shadow.write(ALL, linear, 4, 60)
    bench.shadow.fence(ALL)
    heads = ALL[::32]
    bench.shadow.atomic(heads, heads // PER * SMEM + 512, 4, 61)
    if fenced:
        bench.shadow.fence(ALL)
    bench.go("read", 1, 0, 70)
    assert bench.kinds == (set() if fenced else {"race_read_after_write"})
