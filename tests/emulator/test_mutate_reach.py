"""A barrier is harmless where the text shows that nobody shares anything across it, and nowhere else."""

from __future__ import annotations

import pytest

from tilewright.mutate.ptx_mutants import synchronisation_mutants

HEAD = """.version 8.0
.target sm_86
.address_size 64
.extern .shared .align 16 .b8 pool[];
.extern .shared .align 16 .b8 other[];
.visible .entry k(.param .u64 source, .param .u64 target, .param .u32 n)
{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<9>;
	.shared .align 16 .b8 tile[64];
	.shared .align 16 .b8 spare[64];
	ld.param.u64 %rd1, [source];
	ld.param.u64 %rd2, [target];
	ld.param.u32 %r9, [n];
	mul.wide.u32 %rd3, %r9, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
"""
FILL = "ld.global.u32 %r1, [%rd4]; st.shared.u32 [tile], %r1;"
LEAVE = "st.global.u32 [%rd5], %r1;"


def is_harmless(before: str, after: str, end: str = "ret;") -> bool:
    ptx = f"{HEAD}\t{before}\n\tbar.sync 0;\n\t{after}\n\t{end}\n}}\n"
    (mutant,) = (m for m in synchronisation_mutants(ptx, "k", None) if m.kind == "barrier_removed")
    return mutant.may_be_equivalent


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FILL, LEAVE),
        (FILL, f"ld.global.u32 %r1, [%rd5]; {LEAVE}"),
        (FILL, f"st.shared.u32 [spare], %r1; bar.warp.sync -1; ld.shared.u32 %r1, [spare+4]; {LEAVE}"),
        ("cp.async.cg.shared.global [tile], [%rd4], 16; cp.async.wait_all;", LEAVE),
        (FILL, f"ld.global.u32 %r1, [%rd4]; {LEAVE}"),  # read on both sides
    ],
)
def test_nothing_is_shared(before: str, after: str) -> None:
    assert is_harmless(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FILL, f"ld.shared.u32 %r1, [tile+4]; {LEAVE}"),
        ("ld.shared.u32 %r1, [tile+4];", "st.shared.u32 [tile], %r1;"),
        ("ld.global.u32 %r1, [%rd5];", LEAVE),
        (f"{LEAVE}", "ld.global.u32 %r1, [%rd5];"),
        ("st.shared.u32 [pool], %r1;", "ld.shared.u32 %r1, [other];"),
        ("cp.async.cg.shared.global [tile], [%rd4], 16; cp.async.wait_all;", "ld.shared.u32 %r1, [tile+4];"),
        ("ld.global.u64 %rd6, [%rd4]; st.global.u32 [%rd6], %r1;", LEAVE),
        (FILL, f"shfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1; {LEAVE}"),  # not known to touch nothing
        (FILL, f"{LEAVE} atom.global.add.u32 %r2, [%rd4], 1;"),
    ],
)
def test_something_is_or_may_be(before: str, after: str) -> None:
    assert not is_harmless(before, after)


def test_a_barrier_of_some_threads_or_of_a_loop_is_not() -> None:
    assert not is_harmless(f"AGAIN: {FILL} @%p1 bra OUT;", f"OUT: {LEAVE}")
    assert not is_harmless(f"AGAIN: {FILL}", LEAVE, "@%p1 bra AGAIN; ret;")
