"""What may be launched beside the grid before it: a kernel that waits for that grid ahead of everything else."""

from __future__ import annotations

import pytest

from tilewright.ptx.dependent import waits_first

HEAD = """.version 8.8
.target sm_90
.visible .entry other(.param .u64 other_0)
{ ld.global.u32 %r1, [%rd1]; ret; }
.visible .entry f(
	.param .u64 .ptr .global .align 1 f_param_0,
	.param .u32 f_param_1
)
.maxntid 128
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<9>;
	.loc	1 4 0
	// begin inline asm
"""
TAIL = "\n\tgriddepcontrol.wait;\n\t// end inline asm\n\tst.global.u32 [%rd2], %r1;\n\tret;\n}\n"


@pytest.mark.parametrize(
    ("before", "is_first"),
    [
        ("", True),
        ("mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [f_param_0]; cvta.to.global.u64 %rd2, %rd1;", True),
        ("griddepcontrol.launch_dependents;", True),
        ("/* ld.global.u32 %r1, [%rd1]; */", True),
        ("ld.global.u32 %r1, [%rd1];", False),
        ("ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", False),
        ("ld.u32 %r1, [%rd1];", False),
        ("st.shared.u32 [%r1], %r2;", False),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", False),
        ("prefetch.global.L2 [%rd1];", False),
        ("atom.global.add.u32 %r1, [%rd1], 1;", False),
        ("bra $L1;", False),
        ("@%p1 bra $L1;", False),
        ("@%p1", False),
        ("$L1:", True),
        (".loc 1 2 3\n$L1:", True),
        ("@%p1 bra $L1;\n\tmbarrier.init.shared::cta.b64 [%r1], 1;\n$L1:", True),
        ("@!%p1 bra.uni $L1;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;\n$L1:\n\tbar.sync 0;", True),
        ("@%p1 bra $L1;\n\tld.global.u32 %r1, [%rd1];\n$L1:", False),
        ("@%p1 bra $L2;\n$L1:", False),
        ("brx.idx %r1, $L1;\n$L1:", False),
        ("$L1: ret;", False),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", False),
        ("mbarrier.init.b64 [%rd1], 1;", False),
        ("prefetch.tensormap [%rd1];", True),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r1, %r2}];", True),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 16;", True),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];", False),
        ("call.uni (r), g, (x);", False),
        ("bar.sync 0;", True),
        ("fence.proxy.async.shared::cta;", True),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", False),
        ('.pragma "/*"; ld.global.u32 %r1, [%rd1]; .pragma "*/";', False),
        ('.pragma "nounroll // ; ";', True),
        ("ret;", False),
        ("{", False),
    ],
)
def test_nothing_that_touches_memory_or_branches_past_it_comes_before(before: str, is_first: bool) -> None:
    assert waits_first(HEAD + before + TAIL, "f") is is_first


def test_a_kernel_without_a_wait_and_another_ones_wait() -> None:
    assert not waits_first(HEAD + "ret; }", "f")
    assert not waits_first(HEAD + TAIL, "other")
    assert not waits_first(HEAD + TAIL, "g")
    assert not waits_first(HEAD + "ret;\n}\n.visible .entry g()\n{" + TAIL, "f")


def test_a_comment_is_no_kernel() -> None:
    text = HEAD.replace(".visible .entry other", "// .entry f(\n.visible .entry other")
    assert waits_first(text + TAIL, "f")
    other = text.replace("{ ld.global.u32 %r1, [%rd1]; ret; }", "{" + TAIL)
    assert not waits_first(other + "ld.global.u32 %r1, [%rd1];" + TAIL, "f")
