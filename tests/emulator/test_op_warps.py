"""Warp collectives through PTX text, lane by lane against Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from op_harness import Program, launch, samples, signed
from test_op_memory import kernel

N = 192
FULL = 0xFFFFFFFF
SCHEDULES = ("lockstep", "warp_serial", "random")


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """(source lane, in range): the pseudo-code of the PTX ISA."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    most = lane & segment | clamp & ~segment
    least = lane & segment
    source, inside = {
        "up": (lane - b, lane - b >= most),
        "down": (lane + b, lane + b <= most),
        "bfly": (lane ^ b, lane ^ b <= most),
        "idx": (least | b & ~segment, (least | b & ~segment) <= most),
    }[mode]
    return (source, inside) if inside else (lane, False)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str) -> None:
    """All lanes; a, b and c per thread or the same for all; widths 32 to 1; the value alone and with its predicate."""
    rng = np.random.default_rng(0)
    for form in range(8):
        value, b = samples(rng, "b32", N), rng.integers(0, 40, N, dtype=np.uint32)
        sizes = np.array([32, 16, 8, 4, 2, 1], np.uint32)[rng.integers(0, 6, N // 32)]
        c = np.repeat((32 - sizes) << np.uint32(8) | np.uint32(0 if mode == "up" else 31), 32)
        if form & 1:
            b[:] = b[0]
        if form & 2:
            c[:] = c[0]
        b_text = f"{b[0]}" if form & 1 else "%i1"
        c_text = f"{c[0]:#x}" if form & 2 else "%i2"
        body = f"shfl.sync.{mode}.b32 %o0|%o1, %i0, {b_text}, {c_text}, -1; mov.b32 %o2, %i0;"
        body += f"shfl.sync.{mode}.b32 %o2, %o2, {b_text}, {c_text}, 0xffffffff;"
        got = Program(["b32", "b32", "b32"], ["b32", "pred", "b32"], body).run([value, b, c], N)
        for at in range(N):
            source, inside = shuffled(mode, at % 32, int(b[at]), int(c[at]))
            assert got[0][at] == got[2][at] == value[at - at % 32 + source]
            assert got[1][at] == inside


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_shuffle_by_some_lanes(schedule: str) -> None:
    """Under a guard and in a branch, between lanes that are there; the others keep what they have."""
    rng = np.random.default_rng(1)
    value = samples(rng, "b32", N)
    body = """
    and.b32 %r1, %t, 31; setp.lt.u32 %p1, %r1, 16; mov.b32 %o0, 5; mov.b32 %o1, 6;
    @%p1 shfl.sync.bfly.b32 %o0, %i0, 3, 31, 0xffff;
    @!%p1 bra ELSE;
    shfl.sync.idx.b32 %o1, %i0, 2, 31, 0x0000ffff;
    bra END;
ELSE:
    shfl.sync.down.b32 %o1, %i0, 1, 31, 0xffff0000;
END:
    """
    got = Program(["b32"], ["b32", "b32"], body).run([value], N, schedule=schedule)
    for at in range(N):
        lane, first = at % 32, at - at % 32
        assert got[0][at] == (value[first + (lane ^ 3)] if lane < 16 else 5)
        other = 2 if lane < 16 else min(lane + 1, 31)
        assert got[1][at] == value[first + other]


def masks(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Member masks per thread: of everybody, of halves or quarters of warps, of odd and even lanes."""
    lanes = np.arange(N) % 32
    return {
        "all": np.full(N, FULL),
        "halves": 0xFFFF << (lanes & 16),
        "quarters": 0xFF << (lanes & 24),
        "odd": np.where(lanes & 1, 0xAAAAAAAA, 0x55555555),
    }[kind].astype(np.uint32)


def members(mask: int, at: int) -> list[int]:
    return [at - at % 32 + lane for lane in range(32) if mask >> lane & 1]


@pytest.mark.parametrize("kind", ["all", "halves", "quarters", "odd"])
def test_votes_matches_and_reductions(kind: str) -> None:
    """Groups of one warp run together, each with its own mask: nobody sees another group."""
    rng = np.random.default_rng(2)
    mask = masks(rng, kind)
    value = rng.integers(-3, 4, N).astype(np.int32).view(np.uint32)
    wide = samples(rng, "b64", N) & np.uint64(0x8000000000000001)
    flag = (rng.random(N) < np.repeat(rng.choice([0, 0.1, 0.5, 1.0], N // 8), 8)).astype(np.uint8)
    results = {
        "and": ("b32", lambda x: np.bitwise_and.reduce(x)), "or": ("b32", lambda x: np.bitwise_or.reduce(x)),
        "xor": ("b32", lambda x: np.bitwise_xor.reduce(x)), "add": ("u32", lambda x: x.sum(dtype=np.uint32)),
        "min": ("s32", lambda x: x.view(np.int32).min().view(np.uint32)), "max": ("u32", lambda x: x.max()),
    }  # fmt: skip
    body = """
    vote.sync.ballot.b32 %o0, %i2, %i3; vote.sync.any.pred %o1, %i2, %i3; vote.sync.all.pred %o2, %i2, %i3;
    vote.sync.uni.pred %o3, %i2, %i3; match.any.sync.b32 %o4, %i0, %i3; match.any.sync.b64 %o5, %i1, %i3;
    match.all.sync.b32 %o6|%o7, %i0, %i3; match.all.sync.b64 %o8|%o9, %i1, %i3; elect.sync %o10|%o11, %i3;
    vote.sync.ballot.b32 %o12, !%i2, %i3;
    """ + "\n".join(f"redux.sync.{n}.{t} %o{k + 13}, %i0, %i3;" for k, (n, (t, _)) in enumerate(results.items()))
    outputs = ["b32", "pred", "pred", "pred", "b32", "b32", "b32", "pred", "b32", "pred", "b32", "pred", *["b32"] * 7]
    for uniform in (False, True):
        if uniform and kind != "all":
            continue
        text = body.replace("%i3", "-1") if uniform else body
        got = Program(["b32", "b64", "pred", "b32"], outputs, text).run([value, wide, flag, mask], N)
        for at in range(N):
            mine = members(int(mask[at]), at)
            flags = [bool(flag[j]) for j in mine]
            bits = sum(1 << j % 32 for j in mine if flag[j])
            same = sum(1 << j % 32 for j in mine if value[j] == value[at])
            same_wide = sum(1 << j % 32 for j in mine if wide[j] == wide[at])
            every, every_wide = same == mask[at], same_wide == mask[at]
            wanted = [bits, any(flags), all(flags), all(flags) or not any(flags), same, same_wide]
            wanted += [same * every, every, same_wide * every_wide, every_wide, mine[0] % 32, at == mine[0]]
            wanted += [bits ^ int(mask[at]), *(int(f(value[mine])) for _, f in results.values())]
            for k, want in enumerate(wanted):
                assert int(got[k][at]) == int(want), (k, at)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_collectives_in_diverged_code(schedule: str) -> None:
    """A loop whose lanes leave one by one: those that are left vote, reduce and elect among themselves."""
    rng = np.random.default_rng(3)
    trips, value = rng.integers(1, 6, N, dtype=np.uint32), rng.integers(0, 50, N, dtype=np.uint32)
    body = """
    mov.u32 %r1, 0; mov.u32 %o0, 0; mov.u32 %o1, 0; mov.u32 %o2, 0;
LOOP:
    activemask.b32 %r2;
    vote.sync.ballot.b32 %r3, %p9, %r2; redux.sync.add.u32 %r4, %i1, %r2; elect.sync _|%p2, %r2;
    xor.b32 %o0, %o0, %r2; add.u32 %o1, %o1, %r4; selp.u32 %r5, 1, 0, %p2; add.u32 %o2, %o2, %r5;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %i0; @%p1 bra LOOP;
    """
    got = Program(["b32", "b32"], ["b32"] * 3, body).run([trips, value], N, schedule=schedule)
    for first in range(0, N, 32):
        lanes = range(first, first + 32)
        total = {at: [0, 0, 0] for at in lanes}
        for trip in range(6):
            here = [at for at in lanes if trips[at] > trip]
            for at in here:
                total[at][0] ^= sum(1 << j % 32 for j in here)
                total[at][1] += int(value[here].sum())
                total[at][2] += at == here[0]
        for at in lanes:
            assert [int(g[at]) for g in got] == total[at]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_meet_before_a_collective(schedule: str) -> None:
    """A branch that lies behind the place where it joins: the lanes that took it are waited for."""
    value = samples(np.random.default_rng(1), "b32", N)
    body = """
    and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 0; mov.b32 %r2, %i0;
    @%p1 bra SLOW;
    xor.b32 %r2, %r2, 0;
JOIN:
    shfl.sync.bfly.b32 %o0, %r2, 1, 31, -1;
    bra END;
SLOW:
    add.u32 %r2, %r2, 1; mov.u32 %r3, 0;
AGAIN:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 5; @%p2 bra AGAIN;
    bra JOIN;
END:
    """
    (got,) = Program(["b32"], ["b32"], body).run([value], N, schedule=schedule)
    changed = value + (np.arange(N) % 4 == 0).astype(np.uint32)
    assert (got == changed[np.arange(N) ^ 1]).all()


def test_lanes_that_have_left() -> None:
    """Lanes that ended are no longer waited for, whatever the mask says."""
    body = """
    and.b32 %r1, %r0, 31; setp.ge.u32 %p1, %r1, 24; @%p1 ret;
    vote.sync.ballot.b32 %r2, %p1, -1; not.b32 %r2, %r2; vote.sync.ballot.b32 %r3, !%p1, -1; bar.warp.sync -1;
    redux.sync.add.u32 %r4, %r1, 0xffffffff;
    mul.wide.u32 %d2, %r0, 8; add.s64 %d3, %d1, %d2; st.global.v2.u32 [%d3], {%r3, %r4};
    """
    b = np.zeros((64, 2), np.uint32)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8).reshape(-1)], (1, 1, 1), (64, 1, 1))
    assert done.error is None
    assert not done.hazards
    here = np.arange(64) % 32 < 24
    assert (b[here] == [0xFFFFFF, sum(range(24))]).all()
    assert (b[~here] == 0).all()


FAULTS: dict[str, tuple[str, str]] = {
    "lane outside its own mask": ("shfl.sync.idx.b32 %r2, %r0, 0, 31, 0x1;", "warp_mask"),
    "lane that never comes": (
        "and.b32 %r1, %r0, 31; setp.lt.u32 %p1, %r1, 8; @%p1 vote.sync.ballot.b32 %r2, %p1, -1;",
        "warp_mask",
    ),
    "value of a lane outside the mask": (
        "and.b32 %r1, %r0, 31; setp.lt.u32 %p1, %r1, 8; @%p1 shfl.sync.idx.b32 %r2, %r0, 20, 31, 0xff;",
        "inactive_lane_read",
    ),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_wrong_masks_are_reported(name: str) -> None:
    body, kind = FAULTS[name]
    for threads in (64, 48):
        done = launch(kernel(body), [np.zeros(4, np.uint8)] * 2, (1, 1, 1), (threads, 1, 1))
        assert kind in {h.kind for h in done.hazards}, done


def test_a_short_last_warp() -> None:
    """48 threads: the second warp has 16 lanes, and a full mask is right."""
    body = """
    shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffffffff; activemask.b32 %r3;
    mul.wide.u32 %d2, %r0, 8; add.s64 %d3, %d1, %d2; st.global.v2.u32 [%d3], {%r1, %r3};
    """
    b = np.zeros((48, 2), np.uint32)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8).reshape(-1)], (1, 1, 1), (48, 1, 1))
    assert not done.hazards
    assert (b[:, 0] == np.arange(48) ^ 1).all()
    assert (b[:, 1] == np.where(np.arange(48) < 32, FULL, 0xFFFF)).all()


@pytest.mark.parametrize("signedness", ["s32", "u32"])
def test_reduction_of_extremes(signedness: str) -> None:
    value = samples(np.random.default_rng(6), signedness, N)
    number: Callable[[int], int] = (lambda x: signed(x, 32)) if signedness == "s32" else (lambda x: x)
    body = f"redux.sync.min.{signedness} %o0, %i0, -1; redux.sync.max.{signedness} %o1, %i0, -1;"
    low, high = Program([signedness], ["b32", "b32"], body).run([value], N)
    for first in range(0, N, 32):
        mine = [number(int(x)) for x in value[first : first + 32]]
        assert (low[first : first + 32] == min(mine) & FULL).all()
        assert (high[first : first + 32] == max(mine) & FULL).all()
