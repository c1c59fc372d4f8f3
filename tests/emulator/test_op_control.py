"""Control flow, barriers, special registers, calls, and what is not modelled."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from op_harness import Program, launch, samples
from test_op_memory import kernel

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.settings import Settings
from tilewright.source.device_view import device_view

N = 192
SCHEDULES = ("lockstep", "warp_serial", "random")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_loops_with_different_trip_counts(schedule: str) -> None:
    """Collatz, with an early exit from the middle and a nested loop: reconvergence is only a matter of speed."""
    start = np.random.default_rng(0).integers(1, 200, N, dtype=np.uint32)
    body = """
    mov.u32 %r1, %i0; mov.u32 %o0, 0; mov.u32 %o1, 0;
LOOP:
    setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE;
    and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 1; @%p2 bra ODD;
    shr.u32 %r1, %r1, 1; bra NEXT;
ODD:
    mad.lo.u32 %r1, %r1, 3, 1; mov.u32 %r3, 0;
INNER:
    add.u32 %o1, %o1, %r3; add.u32 %r3, %r3, 1; and.b32 %r4, %r1, 7; setp.lt.u32 %p3, %r3, %r4; @%p3 bra INNER;
NEXT:
    add.u32 %o0, %o0, 1; setp.ge.u32 %p4, %o0, 60; @%p4 bra DONE; bra.uni LOOP;
DONE:
    """
    steps, sums = Program(["u32"], ["u32", "u32"], body).run([start], N, schedule=schedule)
    for at, x in enumerate(start.tolist()):
        count = total = 0
        while x != 1 and count < 60:
            if x & 1:
                x = 3 * x + 1
                total += sum(range(max(x & 7, 1)))
            else:
                x //= 2
            count += 1
        assert (steps[at], sums[at]) == (count, total)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_switches(schedule: str, guard: str) -> None:
    index = np.random.default_rng(0).integers(0, 4, N, dtype=np.uint32)
    body = f"""
    setp.lt.u32 %p1, %t, 100; mov.u32 %o0, 1;
    {guard}brx.idx.uni %i0, table;
    mov.u32 %o0, 2; bra END;
A:  add.u32 %o0, %o0, 10; bra END;
B:  add.u32 %o0, %o0, 20;
C:  add.u32 %o0, %o0, 40;
END:
    """.replace(".uni", "")
    body = "table: .branchtargets A, B, C, B;\n" + body
    (got,) = Program(["u32"], ["u32"], body).run([index], N, schedule=schedule)
    wanted = np.array([11, 61, 41, 61])[index]
    if guard:
        wanted = np.where(np.arange(N) < 100, wanted, 2)
    assert (got == wanted).all()


def test_a_switch_beyond_its_table() -> None:
    ptx = kernel("T: .branchtargets A, B; brx.idx %r0, T; A: mov.u32 %r1, 1; B: mov.u32 %r1, 2;")
    done = launch(ptx, [np.zeros(4, np.uint8)] * 2, (1, 1, 1), (32, 1, 1))
    assert done.error is not None
    assert "index 2 of 2 targets" in done.error


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_guarded_ends(schedule: str) -> None:
    """@p ret and @!p exit: those that are left go on, and barriers do not wait for the others."""
    body = """
    setp.ge.u32 %p1, %r0, 40; setp.lt.u32 %p2, %r0, 8; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], 1; @%p1 ret; st.global.u32 [%d3], 2; bar.sync 0; @%p2 exit;
    bar.sync 0; st.global.u32 [%d3], 3; setp.lt.u32 %p3, %r0, 100; @!%p3 exit; st.global.u32 [%d3], 4;
    """
    b = np.zeros(64, np.uint32)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8)], (1, 1, 1), (64, 1, 1), schedule=schedule)
    assert done.error is None
    at = np.arange(64)
    assert (b == np.where(at >= 40, 1, np.where(at < 8, 2, 4))).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("threads", [64, 48, 1])
def test_reducing_barriers(schedule: str, threads: int) -> None:
    """All blocks at once, each with its own result; a guarded one; and one whose last threads end instead of coming."""
    body = """
    mov.u32 %r9, %ctaid.x; mov.u32 %r10, %ntid.x; mad.lo.u32 %r8, %r9, %r10, %r0;
    mul.wide.u32 %d2, %r8, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r1, [%d3]; setp.ne.u32 %p1, %r1, 0;
    bar.red.popc.u32 %r2, 0, %p1; barrier.sync 1; barrier.red.popc.u32 %r3, 2, !%p1;
    bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, %p1;
    selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 2, 0, %p3; or.b32 %r4, %r4, %r5;
    mul.wide.u32 %d4, %r8, 16; add.s64 %d5, %d1, %d4; st.global.v4.u32 [%d5], {%r2, %r3, %r4, 0};
    setp.ge.u32 %p4, %r0, 33; @%p4 bra LAST;
    barrier.red.popc.u32 %r6, 3, %p1; st.global.u32 [%d5+12], %r6;
LAST:
    """
    rng = np.random.default_rng(0)
    flags = (rng.random((6, threads)) < rng.choice([0, 0.5, 1], (6, 1))).astype(np.uint32)
    b = np.zeros((6, threads, 4), np.uint32)
    data = [flags.view(np.uint8).reshape(-1), b.view(np.uint8).reshape(-1)]
    done = launch(kernel(body), data, (6, 1, 1), (threads, 1, 1), schedule=schedule, chunk_threads=128)
    assert done.error is None
    assert not done.hazards, done.hazards
    ones = flags.sum(axis=1)
    wanted = [ones, threads - ones, flags.all(axis=1) + 2 * flags.any(axis=1)]
    for k, want in enumerate(wanted):
        assert (b[:, :, k] == want[:, None]).all(), k
    assert (b[:, :33, 3] == flags[:, :33].sum(axis=1)[:, None]).all()
    assert (b[:, 33:, 3] == 0).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_counted_barriers(schedule: str) -> None:
    """Producers arrive, consumers wait: bar.arrive and bar.sync with a count."""
    body = """
    .shared .align 4 .b32 s[32];
    setp.ge.u32 %p1, %r0, 32; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2; @%p1 bra CONSUMER;
    mul.lo.u32 %r1, %r0, 3; mov.u64 %d4, s; add.s64 %d4, %d4, %d2; st.shared.u32 [%d4], %r1; bar.arrive 5, 64;
    bra END;
CONSUMER:
    bar.sync 5, 64; mov.u64 %d4, s; add.s64 %d4, %d4, %d2; ld.shared.u32 %r1, [%d4+-128]; st.global.u32 [%d3], %r1;
END:
    """
    b = np.zeros(64, np.uint32)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8)], (1, 1, 1), (64, 1, 1), schedule=schedule)
    assert done.error is None
    assert not done.hazards, done.hazards
    assert (b[32:] == 3 * np.arange(32)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("grid", "block"),
    [((3, 2, 2), (5, 3, 2)), ((2, 1, 3), (1, 1, 1)), ((1, 4, 1), (16, 2, 3)), ((7, 1, 1), (96, 1, 1))],
)
def test_special_registers(grid: tuple[int, int, int], block: tuple[int, int, int], schedule: str) -> None:
    """Of every thread, in chunks of a few blocks."""
    names = [f"{n}.{a}" for n in ("tid", "ctaid", "ntid", "nctaid") for a in "xyz"]
    names += ["laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"]
    stores = "\n".join(f"mov.u32 %r5, %{n}; st.global.u32 [%d3+{4 * k}], %r5;" for k, n in enumerate(names))
    size = 4 * len(names)
    body = f"""
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mad.lo.u32 %r2, %r3, {block[1]}, %r2;
    mad.lo.u32 %r1, %r2, {block[0]}, %r1; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
    mad.lo.u32 %r2, %r3, %nctaid.y, %r2;
    mov.u32 %r3, %ctaid.x; mad.lo.u32 %r3, %r2, %nctaid.x, %r3;
    mad.lo.u32 %r1, %r3, {block[0] * block[1] * block[2]}, %r1;
    mul.wide.u32 %d2, %r1, {size}; add.s64 %d3, %d1, %d2;
    {stores}
    """
    threads, blocks = block[0] * block[1] * block[2], grid[0] * grid[1] * grid[2]
    b = np.zeros((blocks, threads, len(names)), np.uint32)
    data = [np.zeros(4, np.uint8), b.view(np.uint8).reshape(-1)]
    done = launch(kernel(body), data, grid, block, schedule=schedule, chunk_threads=256)
    assert done.error is None
    assert not done.hazards
    for at in range(blocks):
        for t in range(threads):
            lane = t % 32
            wanted = [t % block[0], t // block[0] % block[1], t // (block[0] * block[1])]
            wanted += [at % grid[0], at // grid[0] % grid[1], at // (grid[0] * grid[1]), *block, *grid]
            wanted += [lane, t // 32, -(-threads // 32), 1 << lane, (1 << lane) - 1, (2 << lane) - 1]
            wanted += [0xFFFFFFFF & ~((2 << lane) - 1), 0xFFFFFFFF & ~((1 << lane) - 1)]
            assert b[at, t].tolist() == wanted


def test_wide_special_registers_and_clocks() -> None:
    body = """
    mov.u64 %d5, %clock64; mov.u32 %r5, %clock; nanosleep.u32 100; mov.u64 %d6, %globaltimer; mov.u64 %d7, %clock64;
    setp.gt.u64 %p1, %d7, %d5; selp.u32 %r1, 1, 0, %p1; cvt.u64.u32 %d8, %lanemask_ge; mov.u64 %d9, %gridid;
    cvt.u64.u32 %d10, %tid.x; mov.u32 %r4, WARP_SZ; mov.pred %p2, %is_explicit_cluster; selp.u32 %r2, 1, 0, %p2;
    mov.u32 %r3, %cluster_nctarank;
    mul.wide.u32 %d2, %r0, 32; add.s64 %d3, %d1, %d2; st.global.v2.u64 [%d3], {%d8, %d10};
    st.global.v4.u32 [%d3+16], {%r1, %r2, %r3, %r4};
    """
    b = np.zeros((48, 4), np.uint64)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8).reshape(-1)], (1, 1, 1), (48, 1, 1))
    assert done.error is None
    at = np.arange(48)
    assert (b[:, 0] == [0xFFFFFFFF & ~((1 << t % 32) - 1) for t in at]).all()
    assert (b[:, 1] == at).all()
    assert (b[:, 2:].copy().view(np.uint32) == [1, 0, 1, 32]).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_spinning_with_sleep(schedule: str) -> None:
    """Thread 0 waits for a flag that the last block's thread sets; nanosleep lets it run."""
    body = """
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra SETTER;
SPIN:
    ld.relaxed.gpu.global.u32 %r2, [%d0]; setp.ne.u32 %p2, %r2, 0; @%p2 bra DONE; nanosleep.u32 20; bra SPIN;
SETTER:
    mov.u32 %r3, 0;
WORK:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 50; @%p3 bra WORK; st.release.gpu.global.u32 [%d0], 9;
    bra END;
DONE:
    st.global.u32 [%d1], %r2;
END:
    """
    a, b = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    done = launch(kernel(body), [a.view(np.uint8), b.view(np.uint8)], (2, 1, 1), (32, 1, 1), schedule=schedule)
    assert done.error is None
    assert b[0] == 9


def test_registers_that_share_an_array() -> None:
    """mov gives two registers one array: a later write to some threads of one must not reach the other."""
    value = samples(np.random.default_rng(0), "b32", N)
    body = """
    mov.b32 %r1, %i0; mov.b32 %r2, %r1; bar.sync 0; setp.lt.u32 %p1, %t, 50; @!%p1 bra NEXT;
    add.u32 %r1, %r1, 1; mov.b32 %r3, %r2;
    bra NEXT2;
NEXT:
    mov.b32 %r3, 7;
NEXT2:
    bar.sync 0; mov.b32 %r4, %r3; bar.sync 0; setp.gt.u32 %p2, %t, 100; @!%p2 bra END; mov.b32 %r3, 8;
    sub.u32 %r2, %r2, 1;
END:
    mov.b32 %o0, %r1; mov.b32 %o1, %r2; mov.b32 %o2, %r3; mov.b32 %o3, %r4;
    """
    at = np.arange(N)
    third = np.where(at < 50, value, 7)
    wanted = [value + (at < 50), value - (at > 100), np.where(at > 100, 8, third), third]
    for schedule in SCHEDULES:
        got = Program(["b32"], ["b32"] * 4, body).run([value], N, schedule=schedule)
        for k, want in enumerate(wanted):
            assert (got[k] == want.astype(np.uint32)).all()


CUDA = r"""
#include <cassert>
#include <cstdio>
__device__ __noinline__ int poly(int x, int k) {
  int s = 0;
  for (int i = 0; i <= (x & 3); ++i) s = s * k + i;
  return s + x;
}
extern "C" __global__ void k(int* out, const int* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (in[i] > 1000) printf("large %d\n", in[i]);
  assert(in[i] >= 0);
  int t[4];
  for (int j = 0; j < 4; ++j) t[(j * in[i]) & 3] = j;
  out[i] = poly(in[i], n) + t[in[i] & 3] + poly(i, 2);
}
"""


def built(text: str) -> str:
    with TemporaryDirectory() as folder:
        view = device_view(text, Path("k.cu"))
        made = build(BuildRequest(view.text, "k.cu", "sm_90", "k", view.headers), Settings(Path(folder)))
    assert isinstance(made, Artifact), made
    return made.ptx


def test_calls_printf_and_assert() -> None:
    ptx = built(CUDA)
    given = np.random.default_rng(0).integers(0, 2000, 96, dtype=np.int32)

    def poly(x: int, k: int) -> int:
        s = 0
        for i in range((x & 3) + 1):
            s = s * k + i
        return s + x

    wanted = []
    for i, x in enumerate(given.tolist()):
        t = {j * x & 3: j for j in range(4)}
        wanted.append((poly(x, 3), t.get(x & 3), poly(i, 2)))
    out = np.zeros(96, np.int32)
    data = [out.view(np.uint8), given.view(np.uint8).copy()]
    done = launch(ptx, data, (2, 1, 1), (48, 1, 1), scalars=np.int32(3).tobytes())
    assert done.error is None
    for got, (first, cell, last) in zip(out.tolist(), wanted, strict=True):
        assert cell is None or got == first + cell + last
    given[77] = -1
    done = launch(
        ptx, [out.view(np.uint8), given.view(np.uint8).copy()], (2, 1, 1), (48, 1, 1), scalars=np.int32(3).tobytes()
    )
    assert done.error is not None
    line = next(k for k, text in enumerate(CUDA.splitlines(), 1) if "assert(in" in text)
    assert done.error.startswith(f"line {line}: an assertion fails in thread 29 of block 1")


def test_traps() -> None:
    ptx = kernel("setp.eq.u32 %p1, %r0, 40; @%p1 trap; brkpt; st.global.u32 [%d1], 1;")
    b = np.zeros(1, np.uint32)
    assert launch(ptx, [np.zeros(4, np.uint8), b.view(np.uint8)], (1, 1, 1), (32, 1, 1)).error is None
    assert b[0] == 1
    error = launch(ptx, [np.zeros(4, np.uint8), b.view(np.uint8)], (1, 1, 1), (64, 1, 1)).error
    assert error is not None
    assert "thread 40 of block 0 runs into trap" in error


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_guarded_barriers(schedule: str) -> None:
    """Half of the threads wait for one another, by a number that a register holds; each pair of warps has its own."""
    body = """
    .shared .align 4 .b32 s[128];
    shr.u32 %r1, %r0, 6; add.u32 %r2, %r1, 2; shl.b32 %r3, %r0, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3;
    setp.lt.u32 %p1, %r0, 128; @%p1 st.shared.u32 [%r4], %r0;
    @%p1 bar.sync %r2, 64;
    xor.b32 %r5, %r3, 128; mov.u32 %r6, s; add.u32 %r6, %r6, %r5; mov.u32 %r7, 0; @%p1 ld.shared.u32 %r7, [%r6];
    mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r7;
    """
    b = np.zeros(160, np.uint32)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8)], (1, 1, 1), (160, 1, 1), schedule=schedule)
    assert done.error is None, done.error
    assert not done.hazards, done.hazards
    at = np.arange(160)
    assert (b == np.where(at < 128, at ^ 32, 0)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_counted_reducing_barriers(schedule: str) -> None:
    """Two warps reduce among themselves while the third one never comes."""
    body = """
    and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r1, 0; setp.ge.u32 %p2, %r0, 64; mov.u32 %r2, 99; @%p2 bra END;
    bar.red.popc.u32 %r2, 4, 64, %p1; bar.red.or.pred %p3, 5, 64, %p1; @%p3 add.u32 %r2, %r2, 100;
END:
    mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r2; bar.sync 0;
    """
    b = np.zeros(96, np.uint32)
    done = launch(kernel(body), [np.zeros(4, np.uint8), b.view(np.uint8)], (1, 1, 1), (96, 1, 1), schedule=schedule)
    assert done.error is None, done.error
    assert not done.hazards, done.hazards
    assert (b == np.where(np.arange(96) < 64, 116, 99)).all()
