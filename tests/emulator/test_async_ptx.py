"""mbarriers, bulk copies, tensor copies and cluster addresses, an instruction at a time."""

from __future__ import annotations

import numpy as np
import pytest
from async_harness import run

from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.tensor.maps import TensorMap

NUMBERS = np.arange(100, 1124, dtype=np.int32)
READY = """
    @%p15 mbarrier.init.shared.b64 [bars], 1;
    bar.sync 0;
"""
WAIT = """
LOOP{n}:
    mbarrier.try_wait.parity.shared.b64 %p1, [bars], {parity};
    @!%p1 bra LOOP{n};
"""
SHOW = """
    add.u32 %r1, %r61, %r59;
    ld.shared.u32 %r2, [%r1];
    st.global.u32 [%d58], %r2;
"""
LOAD = """
    @%p15 mbarrier.arrive.expect_tx.shared.b64 _, [bars], 128;
    @%p15 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r61], [%d60], 128, [bars];
"""


def wait(parity: int, n: int = 0) -> str:
    return WAIT.format(parity=parity, n=n)


def first_numbers(done: object) -> None:
    assert np.array_equal(done.out[:32], NUMBERS[:32])  # type: ignore[attr-defined]
    assert done.emulation.hazards == ()  # type: ignore[attr-defined]
    assert done.emulation.error is None  # type: ignore[attr-defined]


# -- mbarriers -------------------------------------------------------------------------------------------------------


def test_states_pending_counts_and_test_wait() -> None:
    body = """
    @%p15 mbarrier.init.shared.b64 [bars], 32;
    bar.sync 0;
    mbarrier.arrive.noComplete.shared.b64 %d1, [bars], 0;
    mbarrier.pending_count.b64 %r1, %d1;
    mbarrier.arrive.shared.b64 %d2, [bars];
LOOP:
    mbarrier.test_wait.shared.b64 %p1, [bars], %d2;
    @!%p1 bra LOOP;
    mbarrier.arrive.shared.b64 %d3, [bars];
    mbarrier.test_wait.shared.b64 %p2, [bars], %d2;
    selp.u32 %r2, 1000, 0, %p2;
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%d58], %r1;
    """
    done = run(body, NUMBERS, 32)
    assert (done.out == 1032).all()
    assert done.emulation.hazards == ()


def test_arrive_drop_lowers_the_count_of_the_phases_to_come() -> None:
    body = """
    @%p15 mbarrier.init.shared.b64 [bars], 32;
    bar.sync 0;
    setp.lt.u32 %p2, %r60, 31;
    @%p2 mbarrier.arrive_drop.shared.b64 _, [bars];
    @!%p2 mbarrier.arrive.shared.b64 _, [bars];
    """
    body += wait(0)
    body += """
    @!%p2 mbarrier.arrive.shared.b64 _, [bars];
    """
    done = run(body + wait(1, 1), NUMBERS, 32)
    assert done.emulation.error is None
    assert done.emulation.hazards == ()


def test_a_fresh_mbarrier_has_completed_the_phase_before_its_first() -> None:
    done = run(READY + wait(1), NUMBERS, 32)
    assert done.emulation.error is None
    assert done.emulation.hazards == ()


def test_bytes_may_be_counted_by_hand() -> None:
    body = (
        READY
        + """
    @%p15 mbarrier.expect_tx.relaxed.cta.shared.b64 [bars], 64;
    @%p15 mbarrier.arrive.shared.b64 _, [bars];
    @%p15 mbarrier.complete_tx.relaxed.cta.shared.b64 [bars], 64;
    """
    )
    assert run(body + wait(0), NUMBERS, 32).emulation.hazards == ()
    short = run(
        body.replace("[bars], 64;\n    @%p15 mbarrier.arrive", "[bars], 65;\n    @%p15 mbarrier.arrive") + wait(0),
        NUMBERS,
        32,
    )
    assert short.kinds == {"deadlock"}
    assert "0 of 1 arrivals and 1 bytes" in short.words


def test_a_generic_address_names_the_same_mbarrier() -> None:
    body = (
        READY
        + """
    cvt.u64.u32 %d1, %r62;
    cvta.shared.u64 %d2, %d1;
    @%p15 mbarrier.arrive.b64 _, [%d2];
    """
    )
    assert run(body + wait(0), NUMBERS, 32).emulation.hazards == ()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("@%p15 mbarrier.init.shared.b64 [bars], 0;", "its count is 0"),
        (READY + READY, "initialised again without mbarrier.inval"),
        (
            READY + "@%p15 mbarrier.inval.shared.b64 [bars];\n@%p15 mbarrier.arrive.shared.b64 _, [bars];",
            "not initialised",
        ),
        (READY + "@%p15 mbarrier.arrive.noComplete.shared.b64 %d1, [bars], 1;", ".noComplete completes the phase"),
        (READY + "@%p15 mbarrier.arrive.shared.b64 %d1, [bars], 2;", "2 arrivals, 1 were missing of its count of 1"),
        (READY + LOAD + "@%p15 mbarrier.arrive.shared.b64 _, [bars];", "1 arrivals, 0 were missing"),
        (READY + "@%p15 mbarrier.expect_tx.shared.b64 [bars], 1048576;", "more than 1048575"),
    ],
)  # fmt: skip
def test_misuse(body: str, words: str) -> None:
    done = run(body, NUMBERS, 32)
    assert "mbarrier_misuse" in done.kinds
    assert words in done.words


def test_a_poll_that_never_succeeds_is_a_deadlock() -> None:
    body = (
        READY
        + """
LOOP:
    mbarrier.test_wait.parity.shared.b64 %p1, [bars], 0;
    @!%p1 bra LOOP;
    """
    )
    done = run(body, NUMBERS, 32)
    assert done.kinds == {"deadlock"}
    assert "1 of 1 arrivals" in done.words


def test_a_wait_that_is_only_tried_once_does_not_block() -> None:
    body = (
        READY
        + """
    mbarrier.try_wait.parity.shared.b64 %p1, [bars], 0;
    selp.u32 %r1, 1, 2, %p1;
    st.global.u32 [%d58], %r1;
    @%p15 mbarrier.arrive.shared.b64 _, [bars];
    """
    )
    done = run(body + wait(0), NUMBERS, 32)
    assert (done.out == 2).all()
    assert done.emulation.hazards == ()


# -- bulk copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lands", ["deferred", "eager"])
def test_a_bulk_load(lands: str) -> None:
    first_numbers(run(READY + LOAD + wait(0) + SHOW, NUMBERS, 32, options=EmulatorOptions(lands=lands)))  # type: ignore[arg-type]


@pytest.mark.parametrize("lands", ["deferred", "eager"])
def test_a_bulk_load_that_is_read_too_early(lands: str) -> None:
    done = run(READY + LOAD + SHOW + wait(0), NUMBERS, 32, options=EmulatorOptions(lands=lands))  # type: ignore[arg-type]
    assert "read_in_flight" in done.kinds
    assert "mbarrier.try_wait" in done.words


def test_a_hint_and_a_prefetch_change_nothing() -> None:
    hinted = LOAD.replace("::bytes [%r61]", "::bytes.L2::cache_hint [%r61]").replace(
        "128, [bars];", "128, [bars], %d1;"
    )
    prefetch = "cp.async.bulk.prefetch.L2.global [%d60], 128;\n"
    first_numbers(run(READY + prefetch + "mov.b64 %d1, 0;" + hinted + wait(0) + SHOW, NUMBERS, 32))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[%r61]", "[%r61+8]", "a destination aligned to 16 bytes"),
        ("[%d60], 128", "[%d60+4], 128", "a source aligned to 16 bytes"),
        ("[%d60], 128", "[%d60], 120", "a size that is a multiple of 16 bytes"),
    ],
)
def test_misaligned_bulk_copies(old: str, new: str, words: str) -> None:
    done = run(READY + LOAD.replace(old, new) + wait(0), NUMBERS, 32)
    assert done.kinds == {"misaligned"}
    assert words in done.words


def test_bulk_loads_that_leave_their_array() -> None:
    assert "out_of_bounds_write" in run(READY + LOAD.replace("[%r61]", "[%r61+4032]") + wait(0), NUMBERS, 32).kinds
    assert "out_of_bounds_read" in run(READY + LOAD.replace("[%d60]", "[%d60+4000]") + wait(0), NUMBERS, 32).kinds


FILL = """
    add.u32 %r1, %r61, %r59;
    add.u32 %r2, %r60, 7;
    st.shared.u32 [%r1], %r2;
"""
FENCE = "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
STORE = "@%p15 cp.async.bulk.global.shared::cta.bulk_group [%d61], [%r61], 128;\n"
COMMIT, WAIT_READ, WAIT_ALL = (
    f"@%p15 cp.async.bulk.{what};\n" for what in ("commit_group", "wait_group.read 0", "wait_group 0")
)


@pytest.mark.parametrize("waits", [WAIT_READ, WAIT_ALL])
def test_a_bulk_store(waits: str) -> None:
    done = run(FILL + FENCE + STORE + COMMIT + waits, NUMBERS, 32)
    assert np.array_equal(done.out, np.arange(7, 39))
    assert done.emulation.hazards == ()


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (FILL + "bar.sync 0;" + STORE + COMMIT + WAIT_READ, "missing_proxy_fence", "fence.proxy.async"),
        (FILL + FENCE + STORE + COMMIT, "copy_never_waited", "cp.async.bulk.wait_group.read"),
        (FILL + FENCE + STORE + WAIT_READ, "copy_never_waited", "cp.async.bulk.commit_group"),
        (FILL + FENCE + STORE + COMMIT + FILL + WAIT_READ, "async_read_in_flight", "cp.async.bulk.wait_group.read"),
    ],
)
def test_broken_bulk_stores(body: str, kind: str, words: str) -> None:
    done = run(body, NUMBERS, 32)
    assert kind in done.kinds
    assert words in done.words


def test_the_source_of_a_store_may_be_used_again_once_it_was_read() -> None:
    done = run(FILL + FENCE + STORE + COMMIT + WAIT_READ + "bar.sync 0;" + FILL, NUMBERS, 32)
    assert np.array_equal(done.out, np.arange(7, 39))
    assert done.emulation.hazards == ()


def test_a_bulk_reduction_adds_up() -> None:
    reduce = "@%p15 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d61], [%r61], 128;\n"
    done = run(FILL + FENCE + reduce + reduce + COMMIT + WAIT_READ, NUMBERS, 32)
    assert np.array_equal(done.out, 2 * np.arange(7, 39))
    assert done.emulation.hazards == ()


# -- tensor copies ---------------------------------------------------------------------------------------------------

MATRIX = TensorMap("int32", 1 << OFFSET_BITS, (32, 32), (128,), (8, 4))
BOX = np.arange(100, 1124).reshape(32, 32)
TENSOR_LOAD = """
    mov.b32 %r10, 4;
    mov.b32 %r11, 6;
    @%p15 mbarrier.arrive.expect_tx.shared.b64 _, [bars], 128;
    @%p15 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r61], [%d62, {%r10, %r11}], [bars];
"""


def test_a_tensor_load_from_a_map_in_the_parameters() -> None:
    done = run(READY + TENSOR_LOAD + wait(0) + SHOW, NUMBERS, 32, tensor=MATRIX)
    assert np.array_equal(done.out, BOX[6:10, 4:12].reshape(-1))
    assert done.emulation.hazards == ()


def test_elements_outside_of_the_tensor_are_zero() -> None:
    done = run(READY + TENSOR_LOAD.replace("%r10, 4", "%r10, -4") + wait(0) + SHOW, NUMBERS, 32, tensor=MATRIX)
    want = np.zeros((4, 8), int)
    want[:, 4:] = BOX[6:10, :4]
    assert np.array_equal(done.out, want.reshape(-1))
    assert done.emulation.hazards == ()


@pytest.mark.parametrize(
    ("load", "tensor", "kind"),
    [
        (TENSOR_LOAD.replace("[%r61]", "[%r61+64]"), MATRIX, "misaligned"),
        (TENSOR_LOAD.replace("%r10, 4", "%r10, 3"), MATRIX, "misaligned"),  # an illegal instruction, on an H200
        (TENSOR_LOAD, None, "bad_tensor_map"),
        (TENSOR_LOAD, TensorMap("int32", 1 << OFFSET_BITS, (32, 8, 4), (128, 1024), (8, 4, 1)), "bad_tensor_map"),
        (TENSOR_LOAD, TensorMap("int32", 1 << OFFSET_BITS, (32, 32), (256,), (8, 4)), "clean"),
        (TENSOR_LOAD.replace("%r11, 6", "%r11, 28"), TensorMap("int32", 1 << OFFSET_BITS, (32, 32), (256,), (8, 4)),
         "out_of_bounds_read"),
    ],
)  # fmt: skip
def test_broken_tensor_loads(load: str, tensor: TensorMap | None, kind: str) -> None:
    done = run(READY + load + wait(0), NUMBERS, 32, tensor=tensor)
    assert done.kinds == (set() if kind == "clean" else {kind})


@pytest.mark.parametrize(("operation", "times"), [("", 1), ("add.", 2)])
def test_a_tensor_store_and_a_reduction(operation: str, times: int) -> None:
    tensor = TensorMap("int32", 2 << OFFSET_BITS, (16, 8), (64,), (8, 4))
    name = f"cp.{'reduce.' if operation else ''}async.bulk.tensor.2d.global.shared::cta.{operation}tile.bulk_group"
    store = f"@%p15 {name} [%d62, {{%r10, %r11}}], [%r61];\n"
    body = FILL + FENCE + "mov.b32 %r10, 8;\nmov.b32 %r11, 2;\n" + store * 2 + COMMIT + WAIT_ALL
    done = run(body, NUMBERS, 128, tensor=tensor)
    want = np.zeros((8, 16), int)
    want[2:6, 8:] = times * np.arange(7, 39).reshape(4, 8)
    assert np.array_equal(done.out.reshape(8, 16), want)
    assert done.emulation.hazards == ()


# -- clusters --------------------------------------------------------------------------------------------------------

SYNC = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
OTHER = "xor.b32 %r20, %r63, 1;\nmapa.shared::cluster.u32 %r21, %r61, %r20;\n"
OURS = """
    mad.lo.u32 %r2, %r63, 1000, %r60;
    add.u32 %r1, %r61, %r59;
    st.shared.u32 [%r1], %r2;
"""
THEIRS = np.concatenate([1000 + np.arange(32), np.arange(32)])


def pair(body: str, **more: object) -> object:
    return run(body, NUMBERS, 64, blocks=2, cluster=2, **more)  # type: ignore[arg-type]


def test_a_load_from_the_other_block() -> None:
    body = (
        OURS
        + SYNC
        + OTHER
        + "add.u32 %r1, %r21, %r59;\nld.shared::cluster.u32 %r2, [%r1];\nst.global.u32 [%d58], %r2;\n"
    )
    done = pair(body + SYNC)
    assert np.array_equal(done.out, THEIRS)  # type: ignore[attr-defined]
    assert done.emulation.hazards == ()  # type: ignore[attr-defined]


def test_a_generic_load_and_the_rank_of_an_address() -> None:
    body = (
        OURS
        + SYNC
        + OTHER
        + """
    cvt.u64.u32 %d1, %r61;
    cvta.shared.u64 %d2, %d1;
    mapa.u64 %d3, %d2, %r20;
    add.u64 %d3, %d3, %d59;
    ld.u32 %r2, [%d3];
    getctarank.u64 %r3, %d3;
    getctarank.shared::cluster.u32 %r4, %r61;
    mad.lo.u32 %r2, %r3, 10000, %r2;
    mad.lo.u32 %r2, %r4, 100000, %r2;
    st.global.u32 [%d58], %r2;
    """
    )
    done = pair(body + SYNC)
    ranks = np.repeat([[1, 0], [0, 1]], 32, axis=1)
    assert np.array_equal(done.out, THEIRS + 10000 * ranks[0] + 100000 * ranks[1])  # type: ignore[attr-defined]


def test_a_rank_that_the_cluster_does_not_have() -> None:
    assert pair("mapa.shared::cluster.u32 %r21, %r61, 2;\n").kinds == {"bad_rank"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("reduction", ["", "add.u32"])
def test_a_bulk_copy_into_the_other_block(reduction: str) -> None:
    name = "cp.reduce.async.bulk" if reduction else "cp.async.bulk"
    tail = f".{reduction}" if reduction else ""
    copy = f"@%p15 {name}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{tail} [%r23], [%r61], 128, [%r22];\n"
    body = (
        READY + OURS + "st.shared.u32 [%r1+128], %r60;\n" + OTHER
        + "mapa.shared::cluster.u32 %r22, %r62, %r20;\nadd.u32 %r23, %r21, 128;\n" + FENCE
        + "@%p15 mbarrier.arrive.expect_tx.shared.b64 _, [bars], 128;\n" + SYNC + copy + wait(0)
        + "ld.shared.u32 %r2, [%r1+128];\nst.global.u32 [%d58], %r2;\n" + SYNC
    )  # fmt: skip
    done = pair(body)
    add = np.tile(np.arange(32), 2) if reduction else 0
    assert np.array_equal(done.out, THEIRS + add)  # type: ignore[attr-defined]
    assert done.emulation.hazards == ()  # type: ignore[attr-defined]


def test_a_multicast_bulk_load() -> None:
    body = (
        READY
        + SYNC
        + """
    @%p15 mbarrier.arrive.expect_tx.shared.b64 _, [bars], 128;
    setp.eq.u32 %p3, %r63, 0;
    and.pred %p4, %p3, %p15;
    mov.b16 %h1, 3;
    @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%r61], [%d60], 128, [bars], %h1;
    """
    )
    body = ".reg .b16 %h<4>;\n" + body + wait(0) + SHOW + SYNC
    done = pair(body)
    assert np.array_equal(done.out, np.tile(NUMBERS[:32], 2))  # type: ignore[attr-defined]
    assert done.emulation.hazards == ()  # type: ignore[attr-defined]


def test_an_arrival_at_the_barrier_of_the_other_block() -> None:
    body = (
        READY
        + SYNC
        + OTHER
        + """
    mapa.shared::cluster.u32 %r22, %r62, %r20;
    @%p15 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];
    """
    )
    assert pair(body + wait(0) + SYNC).emulation.hazards == ()  # type: ignore[attr-defined]
    lonely = body.replace("@%p15 mbarrier.arrive", "setp.eq.u32 %p3, %r63, 0;\n@!%p15 bra OUT;\n@%p3 mbarrier.arrive")
    done = pair(lonely + "OUT:\n" + wait(0) + SYNC)
    assert "deadlock" in done.kinds  # type: ignore[attr-defined]
    assert "cluster barrier" in done.words  # type: ignore[attr-defined]


def test_a_relaxed_arrival_and_threads_that_have_ended() -> None:
    body = OURS + "setp.gt.u32 %p3, %r60, 15;\n@%p3 ret;\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n"
    done = pair(body)
    assert done.emulation.error is None  # type: ignore[attr-defined]
