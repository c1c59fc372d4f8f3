"""Order through atomics, as ``cuda::atomic`` compiles to: generic addresses, and atomics that release and acquire.

Found in the pipelines of CUDA's own headers, whose last thread to leave was said to race with the others.
"""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions, Schedule
from tilewright.emulator.run import Emulation, emulate

HEAD = """
.version 8.7
.target sm_86
.address_size 64
.visible .entry k(.param .u64 d)
{
    .shared .align 4 .b32 data[2];
    .shared .align 4 .b32 flag;
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    ld.param.u64 %d0, [d];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, data;
    mov.u32 %r2, flag;
    cvt.u64.u32 %d2, %r2;
    cvta.shared.u64 %d1, %d2;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra $ready;
    st.shared.b32 [%r2], 0;
$ready:
    bar.sync 0;
    shr.u32 %r3, %r0, 5;
    and.b32 %r4, %r0, 31;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra $end;
"""
TAIL = """
$end:
    ret;
}
"""
# Warp 0 hands 7 over to warp 1 through a flag.
HAND_OVER = """
    setp.ne.u32 %p2, %r3, 0;
    @%p2 bra $spin;
    st.shared.b32 [%r1], 7;
    {store} [%d1], 1;
    bra $end;
$spin:
    {load} %r5, [%d1];
    setp.eq.u32 %p3, %r5, 0;
    @%p3 bra $spin;
    ld.shared.b32 %r6, [%r1];
    st.global.b32 [%d0], %r6;
"""
# Each of two warps writes its own word; the last one to arrive reads both.
LAST_ONE = """
    shl.b32 %r7, %r3, 2;
    add.u32 %r7, %r7, %r1;
    st.shared.b32 [%r7], 7;
    {fence}
    {atom} %r5, [%d1], 1;
    setp.eq.u32 %p3, %r5, 0;
    @%p3 bra $end;
    ld.shared.b32 %r6, [%r1];
    ld.shared.b32 %r8, [%r1+4];
    add.u32 %r6, %r6, %r8;
    st.global.b32 [%d0], %r6;
"""


def run(body: str, schedule: Schedule) -> tuple[Emulation, int]:
    kernel = compile_kernel(parse(HEAD + body + TAIL, "k"), 0)
    buffers = [Buffer("d", np.zeros(4, np.uint8), True)]
    geometry = Geometry((1, 1, 1), (64, 1, 1), (1, 1, 1), kernel.layout.smem_bytes, 0)
    done = emulate(kernel, geometry, buffers, np.int64(1 << 40).tobytes(), EmulatorOptions(schedule=schedule))
    return done, int(buffers[0].data.view(np.uint32)[0])


@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
@pytest.mark.parametrize(
    "body",
    [
        HAND_OVER.format(store="st.release.cta.b32", load="ld.acquire.cta.b32"),
        HAND_OVER.format(store="fence.acq_rel.cta;\n    st.relaxed.cta.b32", load="ld.acquire.cta.b32"),
        HAND_OVER.format(store="red.release.cta.add.u32", load="ld.acquire.cta.b32"),
        LAST_ONE.format(fence="", atom="atom.acq_rel.cta.add.u32"),
        LAST_ONE.format(fence="fence.sc.cta;", atom="atom.acquire.cta.add.u32"),
    ],
)
def test_release_and_acquire_order_threads(body: str, schedule: Schedule) -> None:
    done, value = run(body, schedule)
    assert done.error is None
    assert not done.hazards
    assert value == (7 if "$spin" in body else 14)


@pytest.mark.parametrize(
    "body",
    [
        HAND_OVER.format(store="st.relaxed.cta.b32", load="ld.acquire.cta.b32"),
        HAND_OVER.format(store="st.release.cta.b32", load="ld.relaxed.cta.b32"),
        LAST_ONE.format(fence="", atom="atom.relaxed.cta.add.u32"),
        LAST_ONE.format(fence="", atom="atom.acquire.cta.add.u32"),
        LAST_ONE.format(fence="", atom="atom.release.cta.add.u32"),
    ],
)
def test_without_one_of_them_the_data_race(body: str) -> None:
    done, _ = run(body, "lockstep")
    assert {hazard.kind for hazard in done.hazards} == {"race_read_after_write"}
