"""What is known of the alignment of registers."""

from __future__ import annotations

from tilewright.emulator.counters.alignment import alignments
from tilewright.emulator.lower.compile import parse

PTX = """
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
    .shared .align 8 .b8 first[64];
    .shared .align 16 .b8 second[64];
    .reg .b32 %r<20>;
    .reg .b64 %d<4>;
    .reg .pred %q;
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 4;
    mov.u32 %r3, first;
    add.s32 %r4, %r3, %r2;
    mad.lo.s32 %r5, %r1, 60, %r2;
    and.b32 %r6, %r1, -32;
    shr.u32 %r7, %r2, 2;
    mov.u32 %r8, second;
    sub.s32 %r9, %r8, %r7;
    setp.eq.s32 %q, %r1, 0;
    selp.b32 %r10, %r2, %r3, %q;
    mul.wide.u32 %d1, %r1, 24;
    ld.param.u64 %d2, [p];
    add.s64 %d3, %d2, %d1;
    mov.u32 %r11, 0;
loop:
    add.s32 %r11, %r11, 32;
    or.b32 %r12, %r11, %r2;
    setp.lt.s32 %q, %r11, 256;
    @%q bra loop;
    add.s32 %r13, %r11, 6;
    mul.hi.u32 %r14, %r2, %r2;
    ret;
}
"""


def test_alignments() -> None:
    parsed = parse(PTX, "k")
    known = alignments(parsed.module, parsed.function, parsed.graph.instructions)
    expected = {
        "first": 8, "second": 16, "%r1": 1, "%r2": 16, "%r3": 8, "%r4": 8, "%r5": 4, "%r6": 32, "%r7": 4, "%r8": 16,
        "%r9": 4, "%r10": 8, "%d1": 8, "%d2": 1, "%d3": 1, "%r11": 32, "%r12": 16, "%r13": 2, "%r14": 1,
    }  # fmt: skip
    assert {name: known[name] for name in expected} == expected


def test_an_array_of_its_own_begins_at_zero() -> None:
    parsed = parse(PTX.replace(".shared .align 16 .b8 second[64];", "").replace("second", "first"), "k")
    assert alignments(parsed.module, parsed.function, parsed.graph.instructions)["first"] == 1024
