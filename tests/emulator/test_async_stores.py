"""st.async: every warp of every block of a cluster writes to a board in each block, round after round.

A round is: push, announce the bytes of one's own board at its mbarrier, wait, read the board. Two boards take turns and
nothing else orders the rounds: whoever pushes in a round has read the board of the round before.
"""

from __future__ import annotations

import numpy as np
import pytest
from async_harness import Done, run

from tilewright.emulator.faults import Fault
from tilewright.emulator.options import EmulatorOptions

SYNC = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
INIT = """
    @%p15 mbarrier.init.shared::cta.b64 [bars], 1;
    @%p15 mbarrier.init.shared::cta.b64 [bars+8], 1;
"""
PUSH = "@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%r11], %f2, [%r12];\n"
EXPECT = "@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], {bytes};\n"
WAIT = """
AGAIN:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r8], %r5;
    @!%p2 bra AGAIN;
"""
# %r0: round. %r1: lane. %r2: warp. %r5: parity. %r7: board. %r8: its mbarrier. %f1: the sum so far.
ROUNDS = """
    and.b32 %r1, %r60, 31;
    shr.u32 %r2, %r60, 5;
    setp.lt.u32 %p1, %r1, {blocks};
    mad.lo.u32 %r3, %r63, {warps}, %r2;
    cvt.rn.f32.u32 %f1, %r3;
    mov.b32 %r0, 0;
ROUND:
    and.b32 %r4, %r0, 1;
    shr.u32 %r5, %r0, 1;
    and.b32 %r5, %r5, 1;
    mad.lo.u32 %r7, %r4, {board_stride}, %r61;
    mad.lo.u32 %r8, %r4, 8, %r62;
    cvt.rn.f32.u32 %f3, %r3;
    fma.rn.f32 %f2, %f1, 0f3E800000, %f3;
    mad.lo.u32 %r9, %r3, 4, %r7;
    @%p1 mapa.shared::cluster.u32 %r11, %r9, %r1;
    @%p1 mapa.shared::cluster.u32 %r12, %r8, %r1;
{push}{expect}{wait}
    mov.f32 %f1, 0f00000000;
    mov.b32 %r13, 0;
    mov.b32 %r14, %r7;
SUM:
    ld.shared.f32 %f4, [%r14];
    add.f32 %f1, %f1, %f4;
    add.u32 %r14, %r14, 4;
    add.u32 %r13, %r13, 1;
    setp.lt.u32 %p3, %r13, {partials};
    @%p3 bra SUM;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p4, %r0, {rounds};
    @%p4 bra ROUND;
    st.global.f32 [%d58], %f1;
"""
WARPS, ROUND_COUNT = 2, 5


def boards(
    blocks: int,
    *,
    push: str = PUSH,
    expect: str = EXPECT,
    wait: str = WAIT,
    extra_bytes: int = 0,
    board_stride: int = 128,
    options: EmulatorOptions | None = None,
) -> Done:
    partials = blocks * WARPS
    body = ROUNDS.format(
        blocks=blocks, warps=WARPS, partials=partials, rounds=ROUND_COUNT, board_stride=board_stride,
        push=push, expect=expect.format(bytes=4 * partials + extra_bytes), wait=wait,
    )  # fmt: skip
    threads = 32 * WARPS
    return run(
        INIT + SYNC + body + SYNC, np.zeros(1, np.int32), blocks * threads,
        threads=threads, blocks=blocks, cluster=blocks, options=options,
    )  # fmt: skip


def expected(blocks: int) -> np.ndarray:
    """The sum of the last round; at the start, each warp's is its number."""
    number = np.arange(blocks * WARPS, dtype=np.float32)
    sums = number
    for _ in range(ROUND_COUNT):
        pushed = sums * np.float32(0.25) + number
        total = np.float32(0)
        for value in pushed:
            total += value
        sums = np.full_like(number, total)
    return np.repeat(sums, 32)


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_two_boards_that_take_turns(blocks: int, schedule: str) -> None:
    done = boards(blocks, options=EmulatorOptions(schedule=schedule, max_seconds=10))  # type: ignore[arg-type]
    assert done.emulation.error is None
    assert done.emulation.hazards == ()
    assert np.array_equal(done.out.view(np.float32), expected(blocks))


def test_stores_may_land_at_once() -> None:
    done = boards(2, options=EmulatorOptions(lands="eager", max_seconds=10))
    assert done.emulation.hazards == ()
    assert np.array_equal(done.out.view(np.float32), expected(2))


# -- what is wrong with a board ----------------------------------------------------------------------------------------


def test_a_board_read_without_waiting() -> None:
    done = boards(2, wait="")
    assert {"read_in_flight", "copy_never_waited"} <= done.kinds
    assert "wait for its mbarrier (mbarrier.try_wait) before" in done.words
    assert "the st.async of" in done.words


@pytest.mark.parametrize(("extra", "kind", "words"), [
    (4, "deadlock", "phase 0 still lacks 0 of 1 arrivals and 4 bytes"),
    (-4, "mbarrier_misuse", "4 bytes more than expect_tx announced"),
])  # fmt: skip
def test_a_wrong_number_of_bytes(extra: int, kind: str, words: str) -> None:
    done = boards(2, extra_bytes=extra)
    assert kind in done.kinds
    assert words in done.words


@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_one_board_for_all_rounds(schedule: str) -> None:
    done = boards(2, board_stride=0, options=EmulatorOptions(schedule=schedule, max_seconds=10))  # type: ignore[arg-type]
    assert "race_write_after_read" in done.kinds


def test_one_board_that_only_others_write_to() -> None:
    """No block writes its own board: what others do to it is told by what is still in flight."""
    only_others = "setp.ne.and.u32 %p5, %r1, %r63, %p1;\n" + PUSH.replace("@%p1", "@%p5")
    fill = "mov.f32 %f5, 0f00000000;\nadd.u32 %r16, %r61, %r59;\nst.shared.f32 [%r16], %f5;\nbar.sync 0;\n"
    found = {}
    for stride in (128, 0):
        body = ROUNDS.format(
            blocks=2, warps=WARPS, partials=2 * WARPS, rounds=ROUND_COUNT, board_stride=stride,
            push=only_others, expect=EXPECT.format(bytes=4 * WARPS), wait=WAIT,
        )  # fmt: skip
        found[stride] = run(
            fill + INIT + SYNC + body + SYNC, np.zeros(1, np.int32), 128, threads=64, blocks=2, cluster=2
        )
    assert found[128].emulation.hazards == ()
    assert {"read_in_flight", "write_in_flight"} & found[0].kinds


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_one_mbarrier_for_two_boards(blocks: int, schedule: str) -> None:
    """The bytes of a block that runs ahead count towards the round that a slower one is still in."""
    push = "mov.b32 %r8, %r62;\n@%p1 mapa.shared::cluster.u32 %r12, %r8, %r1;\n" + PUSH
    options = EmulatorOptions(schedule=schedule, max_seconds=10)  # type: ignore[arg-type]
    done = boards(blocks, push=push, wait=WAIT.replace("%r5", "%r4"), options=options)
    assert {"read_in_flight", "mbarrier_misuse"} & done.kinds


def test_one_board_with_a_barrier_of_the_cluster_between_rounds() -> None:
    done = boards(2, push=SYNC + PUSH, board_stride=0)
    assert done.emulation.hazards == ()
    assert np.array_equal(done.out.view(np.float32), expected(2))


def test_stores_are_counted() -> None:
    counters = boards(2, options=EmulatorOptions(counters=True, max_seconds=10)).emulation.counters
    assert counters is not None
    pushed, read = 2 * 2 * WARPS * ROUND_COUNT * 4, 2 * 64 * 2 * WARPS * ROUND_COUNT * 4
    assert counters.shared_bytes == pushed + read


# -- one instruction at a time -----------------------------------------------------------------------------------------

NAME = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
OTHER = """
    xor.b32 %r20, %r63, 1;
    mapa.shared::cluster.u32 %r21, %r61, %r20;
    mapa.shared::cluster.u32 %r22, %r62, %r20;
"""
WAIT_ONCE = """
ONCE:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bars], 0;
    @!%p2 bra ONCE;
"""
SHOW = """
    add.u32 %r1, %r61, %r59;
    ld.shared.u32 %r2, [%r1];
    st.global.u32 [%d58], %r2;
"""


def pair(push: str, size: int, after: str = WAIT_ONCE + SHOW, ready: str = INIT + SYNC) -> Done:
    """Each of the 32 threads of two blocks sends ``size`` bytes to the other: word k of block b is 1000 * b + k."""
    expect = f"@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], {32 * size};\n"
    words = (
        f"mad.lo.u32 %r3, %r63, 1000, 0;\nmad.lo.u32 %r3, %r60, {size // 4}, %r3;\nmad.lo.u32 %r4, %r60, {size}, 0;\n"
    )
    more = "".join(f"add.u32 %r{30 + k}, %r3, {k};\n" for k in range(4))
    more += "mov.b64 %d1, {%r30, %r31};\nmov.b64 %d2, {%r32, %r33};\nmov.b64 %d3, %d1;\n"
    more += "".join(f"mov.b32 %f{k}, %r{30 + k};\n" for k in range(4))
    body = ready + OTHER + words + more + "add.u32 %r23, %r21, %r4;\n" + expect + push + after + SYNC
    return run(body, np.zeros(1, np.int32), 64, blocks=2, cluster=2)


FORMS = {
    f"{NAME}.b32 [%r23], %r30, [%r22];": 4,
    f"{NAME}.u32 [%r23], {{%r30}}, [%r22];": 4,
    f"{NAME}.s32 [%r23], %r30, [%r22];": 4,
    f"{NAME}.f32 [%r23], %f0, [%r22];": 4,
    f"{NAME}.b64 [%r23], %d1, [%r22];": 8,
    f"{NAME}.s64 [%r23], %d1, [%r22];": 8,
    f"{NAME}.v2.f32 [%r23], {{%f0, %f1}}, [%r22];": 8,
    f"{NAME}.v2.u64 [%r23], {{%d1, %d2}}, [%r22];": 16,
    f"{NAME}.v4.b32 [%r23], {{%r30, %r31, %r32, %r33}}, [%r22];": 16,
    f"{NAME.replace('.weak', '')}.v4.s32 [%r23], {{%r30, %r31, %r32, %r33}}, [%r22];": 16,
    f"{NAME.replace('.weak', '.cluster')}.f64 [%r23], %d1, [%r22];": 8,
}


@pytest.mark.parametrize("text", FORMS)
def test_all_forms(text: str) -> None:
    done = pair(text, FORMS[text])
    assert done.emulation.error is None
    assert done.emulation.hazards == ()
    assert np.array_equal(done.out, np.r_[1000 + np.arange(32), np.arange(32)])


def test_generic_addresses() -> None:
    generic = """
        cvt.u64.u32 %d4, %r61;
        cvta.shared.u64 %d4, %d4;
        mapa.u64 %d4, %d4, %r20;
        add.u64 %d4, %d4, %d59;
        cvt.u64.u32 %d5, %r62;
        cvta.shared.u64 %d5, %d5;
        mapa.u64 %d5, %d5, %r20;
    """
    push = f"{NAME.replace('.shared::cluster', '')}.b32 [%d4], %r30, [%d5];\n"
    done = pair(generic + push, 4)
    assert done.emulation.hazards == ()
    assert np.array_equal(done.out, np.r_[1000 + np.arange(32), np.arange(32)])
    assert pair(generic + push.replace("%d4", "%d58"), 4).kinds == {"bad_copy"}


def test_without_a_cluster_a_block_writes_to_itself() -> None:
    body = INIT + "bar.sync 0;\n@%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 128;\n"
    body += f"add.u32 %r1, %r61, %r59;\n{NAME}.b32 [%r1], %r60, [%r62];\n"
    done = run(body + WAIT_ONCE + SHOW, np.zeros(1, np.int32), 32)
    assert done.emulation.hazards == ()
    assert np.array_equal(done.out, np.arange(32))
    assert "read_in_flight" in run(body + SHOW, np.zeros(1, np.int32), 32).kinds


FAULTS = {
    "misaligned": (f"{NAME}.v2.b32 [%r23+4], {{%r30, %r31}}, [%r22];", 8, "not a multiple of 8"),
    "an mbarrier that is misaligned": (f"{NAME}.b32 [%r23], %r30, [%r22+4];", 4, "not a multiple of 8"),
    "out of bounds": (f"{NAME}.b32 [%r23+4096], %r30, [%r22];", 4, "out of bounds"),
    "an mbarrier at home": (f"{NAME}.b32 [%r23], %r30, [%r62];", 4, "it must be one of the block that it writes to"),
    "a target at home": (f"{NAME}.b32 [%r61], %r30, [%r22];", 4, "it must be one of the block that it writes to"),
    "no such block": (f"or.b32 %r24, %r23, 0xF000000;\n{NAME}.b32 [%r24], %r30, [%r22];", 4, "of a cluster of 2"),
    "not an mbarrier": (f"{NAME}.b32 [%r23], %r30, [%r22+16];", 4, "is not initialised"),
}
KINDS = {
    "misaligned": "misaligned", "an mbarrier that is misaligned": "misaligned", "out of bounds": "out_of_bounds_write",
    "an mbarrier at home": "bad_copy", "a target at home": "bad_copy", "no such block": "bad_rank",
    "not an mbarrier": "mbarrier_misuse",
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_addresses_that_are_wrong(name: str) -> None:
    text, size, words = FAULTS[name]
    done = pair(text, size)
    assert KINDS[name] in done.kinds
    assert words in done.words


@pytest.mark.parametrize("text", [
    "st.async.release.gpu.global.b32 [%d58], %r30;",
    f"{NAME}.v4.b64 [%r23], {{%d1, %d2, %d1, %d2}}, [%r22];",
    f"{NAME}.b16 [%r23], %r30, [%r22];",
    "st.async.weak.shared::cta.mbarrier::complete_tx::bytes.b32 [%r23], %r30, [%r22];",
])  # fmt: skip
def test_what_is_not_modelled_is_refused(text: str) -> None:
    with pytest.raises(Fault) as caught:
        pair(text, 4)
    assert caught.value.kind == "not_modelled"


@pytest.mark.parametrize("fence", ["", "fence.proxy.async.shared::cta;\n"])
def test_a_bulk_copy_of_what_was_written_needs_a_proxy_fence(fence: str) -> None:
    send = "@%p15 cp.async.bulk.global.shared::cta.bulk_group [%d58], [%r61], 128;\n"
    end = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"
    done = pair(f"{NAME}.b32 [%r23], %r30, [%r22];", 4, WAIT_ONCE + fence + send + end)
    assert done.kinds == (set() if fence else {"missing_proxy_fence"})


# -- order by way of another block -------------------------------------------------------------------------------------

RELAY = """
    and.b32 %r1, %r60, 31;
    setp.eq.u32 %p6, %r60, 32;
    setp.eq.u32 %p7, %r63, 0;
    setp.ge.u32 %p8, %r60, 32;
    and.pred %p9, %p6, %p7;
    and.pred %p10, %p7, %p8;
    not.pred %p11, %p7;
    and.pred %p11, %p11, %p15;
    @%p15 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 4;
    @%p10 mov.b32 %r5, 0;
    {before}
    @%p9 {name}.b32 [%r21+512], %r60, [%r22];
    {after}
    @%p10 bra END;
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bars], 0;
    @!%p2 bra $AGAIN;
    bra DONE;
$AGAIN:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bars], 0;
    @!%p2 bra $AGAIN;
DONE:
    @%p11 {name}.b32 [%r21+512], %r60, [%r22];
    @!%p7 bra END;
    st.shared.b32 [%r61+64], %r60;
END:
"""
READ = "@%p10 ld.shared.b32 %r5, [%r61+64];"


@pytest.mark.parametrize("is_early", [True, False])
def test_a_read_that_another_block_passes_on(is_early: bool) -> None:
    """Warp 1 reads and tells block 1, which tells warp 0, which overwrites what was read."""
    relay = RELAY.format(name=NAME, before=READ if is_early else "", after="" if is_early else READ)
    fill = "@%p15 st.shared.b32 [%r61+64], %r60;\n"
    body = fill + INIT + SYNC + OTHER + relay + SYNC
    done = run(body.replace("st.shared.b32 [%r61+64], %r60;\nEND", "@%p15 st.shared.b32 [%r61+64], %r60;\nEND"),
               np.zeros(1, np.int32), 128, threads=64, blocks=2, cluster=2)  # fmt: skip
    assert done.kinds == (set() if is_early else {"race_write_after_read"})
