"""Broken twins of PTX: one site each, the rest as it was, and still PTX."""

from __future__ import annotations

from functools import cache

import pytest
from kernel_table import BY_NAME, KERNELS, TABLE

from tilewright.build.artifact import Artifact
from tilewright.build.build import build
from tilewright.errors import TilewrightError
from tilewright.mutate.ptx_mutants import KINDS, Mutant, synchronisation_mutants
from tilewright.ptx.parse import parse_ptx
from tilewright.settings import Settings

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
DECLARED = """	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<9>;
	.shared .align 16 .b8 tile[4096];
	.shared .align 8 .b8 full[24];
	.shared .align 8 .b8 empty[24];
"""
MBARRIERS = {"empty_wait_dropped", "full_wait_dropped", "wrong_phase", "arrive_dropped"}
TMA = MBARRIERS | {"barrier_removed", "proxy_fence_dropped", "expect_tx_wrong_bytes"}
GROUPS = {"wait_removed", "wait_one_group_short"}
EXPECTED = {
    "ring_cp_async_mbarrier": MBARRIERS | {"barrier_removed"},
    "ring_cp_async_groups": GROUPS | {"commit_and_wait_swapped", "barrier_removed", "barrier_before_wait"},
    "ring_bulk": TMA,
    "ring_tma": TMA,
    "gemm_wgmma": TMA | {"wgmma_wait_dropped", "wgmma_wait_one_short"},
    "gemm_wgmma_specialised": TMA | GROUPS | {"commit_and_wait_swapped", "wgmma_wait_dropped", "wgmma_wait_one_short"},
    "cluster_multicast": MBARRIERS | {"cluster_barrier_removed", "expect_tx_wrong_bytes"},
    "named_barriers": {"barrier_removed", "arrive_dropped"},
    "warp_operations_sm_80": set(),
}


@cache
def text_of(name: str) -> str:
    artifact = build(BY_NAME[name].request, Settings.from_environment())
    assert isinstance(artifact, Artifact), artifact
    return artifact.ptx


def mutants_of(body: str, kind: str) -> list[Mutant]:
    """Of a kernel with that body."""
    ptx = f"{HEAD}.visible .entry k(.param .u64 out)\n{{\n{DECLARED}{body}\tret;\n}}\n"
    found = synchronisation_mutants(ptx, "k", None)
    for mutant in found:
        parse_ptx(mutant.ptx)
    return [m for m in found if m.kind == kind]


def changed(body: str, kind: str) -> list[str]:
    """What each mutant of a kind makes of the body, white space put aside."""
    return [" ".join(m.ptx.partition(DECLARED)[2].split()) for m in mutants_of(body, kind)]


@pytest.mark.parametrize("name", [case.name for case in TABLE])
def test_each_mutant_is_ptx_and_differs_in_one_place(name: str) -> None:
    ptx = text_of(name)
    lines = ptx.split("\n")
    mutants = synchronisation_mutants(ptx, BY_NAME[name].kernel, None)
    assert len({ptx, *(m.ptx for m in mutants)}) == len(mutants) + 1
    assert len({m.name for m in mutants}) == len(mutants)
    for mutant in mutants:
        parse_ptx(mutant.ptx)
        new = mutant.ptx.split("\n")
        assert len(new) == len(lines)
        other = [i for i, (a, b) in enumerate(zip(lines, new, strict=True), 1) if a != b]
        assert mutant.ptx_line in other
        assert len(other) <= 2, mutant.name
        assert mutant.line is not None


@pytest.mark.parametrize("name", EXPECTED)
def test_every_kind_that_a_kernel_has_is_there(name: str) -> None:
    for limit in (None, 1):
        mutants = synchronisation_mutants(text_of(name), BY_NAME[name].kernel, limit)
        assert {m.kind for m in mutants} == EXPECTED[name]
    assert len(mutants) == len(EXPECTED[name])


def test_every_kind_is_in_some_kernel() -> None:
    assert set().union(*EXPECTED.values()) == set(KINDS)


@pytest.mark.parametrize("name", ["ring_cp_async_mbarrier", "ring_bulk", "ring_tma", "gemm_wgmma", "cluster_multicast"])
def test_waits_are_called_after_their_barrier(name: str) -> None:
    source = (KERNELS / BY_NAME[name].file).read_text().split("\n")
    for mutant in synchronisation_mutants(text_of(name), BY_NAME[name].kernel, None):
        if mutant.kind in ("full_wait_dropped", "empty_wait_dropped"):
            assert mutant.line is not None
            assert f"&{mutant.kind.partition('_')[0]}[" in source[mutant.line - 1]


def test_barriers_of_one_variable_are_told_apart_by_their_offsets() -> None:
    body = """	mov.u32 %r1, tile;
	add.s32 %r2, %r1, 1024;
	shl.b32 %r3, %r9, 3;
	add.s32 %r4, %r2, %r3;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 512;
	mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
	add.s32 %r5, %r4, 24;
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0;
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4+24], 0;
"""
    assert ["%p1" in m.description for m in mutants_of(body, "full_wait_dropped")] == [True]
    assert len(mutants_of(body, "empty_wait_dropped")) == 2


@pytest.mark.parametrize(
    ("kind", "body", "results"),
    [
        ("wait_removed", "cp.async.wait_group 1; // last\nbar.sync 0;\n", ["// last bar.sync 0;"]),
        ("wait_removed", "@%p1 cp.async.wait_all ;\n", [""]),
        ("wait_removed", "cp.async.bulk.wait_group.read \t0;", [""]),
        ("wait_one_group_short", "cp.async.wait_group 0x1;\n", ["cp.async.wait_group 2;"]),
        ("wait_one_group_short", "@!%p1 cp.async.wait_all;\n", ["@!%p1 cp.async.wait_group 1;"]),
        ("commit_and_wait_swapped", "cp.async.commit_group; mov.u32 %r1, 0; cp.async.wait_group 0; bar.sync 0;\n",
         ["mov.u32 %r1, 0; cp.async.wait_group 0; cp.async.commit_group; bar.sync 0;"]),
        ("commit_and_wait_swapped", "cp.async.commit_group;\nL:\ncp.async.wait_group 0;\n", []),
        ("commit_and_wait_swapped", "cp.async.commit_group;\n cp.async.bulk.wait_group 0;\n", []),
        ("barrier_removed", "bar.sync 0; /* bar.sync 1; */ barrier.sync.aligned 1, 64;\n",
         ["/* bar.sync 1; */ barrier.sync.aligned 1, 64;", "bar.sync 0; /* bar.sync 1; */"]),
        ("barrier_before_wait", "cp.async.wait_group 1;\nmov.u32 %r1, 0;\nbar.sync 0;\n",
         ["bar.sync 0; cp.async.wait_group 1; mov.u32 %r1, 0;"]),
        ("barrier_before_wait", "cp.async.wait_group 1;\nbar.sync 1;\nbar.sync 2;\n",
         ["bar.sync 1; cp.async.wait_group 1; bar.sync 2;"]),
        ("full_wait_dropped", "mbarrier.arrive.expect_tx.shared.b64 _, [full+8], 64; "
         "@%p2 mbarrier.try_wait.shared.b64 %p1, [full], %rd1, 99;\n",
         ["mbarrier.arrive.expect_tx.shared.b64 _, [full+8], 64; @%p2 setp.eq.u32 %p1, 0, 0;"]),
        ("empty_wait_dropped", "{ .reg .pred p; W: mbarrier.test_wait.parity.shared.b64 p, [empty], %r1; "
         "@!p bra W; }\n",
         ["{ .reg .pred p; W: setp.eq.u32 p, 0, 0; @!p bra W; }"]),
        ("wrong_phase", "mbarrier.try_wait.parity.shared.b64 %p1, [empty], %r1;\n",
         ["{ .reg .b32 %mutated; xor.b32 %mutated, %r1, 1; "
          "mbarrier.try_wait.parity.shared.b64 %p1, [empty], %mutated; }"]),
        ("wrong_phase", "mbarrier.try_wait.shared.b64 %p1, [empty], %rd1;\n", []),
        ("arrive_dropped", "mbarrier.arrive.shared.b64 _, [empty];\n", [""]),
        ("arrive_dropped", "mbarrier.arrive.shared.b64 %rd1, [empty]; bar.arrive 1, 64;\n",
         ["bar.arrive 1, 64;", "mbarrier.arrive.shared.b64 %rd1, [empty];"]),
        ("arrive_dropped", "mbarrier.arrive.shared.b64 %rd1, [empty]; "
         "mbarrier.test_wait.shared.b64 %p1, [empty], %rd1;\n",
         []),
        ("wgmma_wait_dropped", "wgmma.wait_group.sync.aligned 0;\n", [""]),
        ("wgmma_wait_one_short", "wgmma.wait_group.sync.aligned 0;\n", ["wgmma.wait_group.sync.aligned 1;"]),
        ("proxy_fence_dropped", "fence.proxy.async; fence.acq_rel.gpu;\n", ["fence.acq_rel.gpu;"]),
        ("expect_tx_wrong_bytes", "mbarrier.expect_tx.relaxed.cta.shared.b64 [full], 4096;\n",
         [f"mbarrier.expect_tx.relaxed.cta.shared.b64 [full], {n};" for n in (4080, 4112)]),
        ("expect_tx_wrong_bytes", "mbarrier.arrive.expect_tx.shared.b64 _, [full], %r1;\n",
         [f"{{ .reg .b32 %mutated; add.s32 %mutated, %r1, {n}; "
          "mbarrier.arrive.expect_tx.shared.b64 _, [full], %mutated; }" for n in (-16, 16)]),
        ("cluster_barrier_removed", "barrier.cluster.arrive.release;\nmov.u32 %r1, 0;\nbarrier.cluster.wait;\n",
         ["mov.u32 %r1, 0;"]),
    ],
)  # fmt: skip
def test_what_becomes_of_the_text(kind: str, body: str, results: list[str]) -> None:
    assert changed(body, kind) == [f"{r} ret; }}".strip() for r in results]


BARRIER = "bar.sync 0;\n"
STORE = "st.global.u32 [%rd1], %r1;\n"
SHARED = "atom.shared.add.u32 %r1, [tile], 1;\n"


@pytest.mark.parametrize(
    ("kind", "body", "harmless"),
    [
        # Two barriers with nothing but arithmetic between: one is enough.
        ("barrier_removed", f"{SHARED}{BARRIER}add.s32 %r1, %r1, 1;\n{BARRIER}{SHARED}", [True, True]),
        ("barrier_removed", f"{SHARED}{BARRIER}{SHARED}{BARRIER}{SHARED}", [False, False]),
        ("barrier_removed", f"{SHARED}{BARRIER}bar.sync 1;\n{SHARED}", [False, False]),
        ("barrier_removed", f"{SHARED}@%p1 {BARRIER}{BARRIER}{SHARED}", [False, False]),
        # Others may stand at another barrier meanwhile: one fewer here, and nobody meets any more.
        ("barrier_removed", f"{SHARED}@%p1 bra E;\n{BARRIER}{BARRIER}bra F;\nE:\n{BARRIER}{SHARED}{BARRIER}"
         f"F:\n{SHARED}", [False] * 4),
        ("barrier_removed", f"{SHARED}@%p1 bra E;\n{BARRIER}{STORE}ret;\nE:\n{BARRIER}{SHARED}", [False, False]),
        ("barrier_removed", f"{SHARED}bar.sync 1, 64;\n{STORE}", [False]),
        # Behind it a thread only writes its results.
        ("barrier_removed", f"{SHARED}{BARRIER}{STORE}", [True]),
        ("barrier_removed", f"{SHARED}{BARRIER}@%p1 bra E;\n{STORE}E:\n", [True]),
        ("barrier_removed", f"{STORE}{BARRIER}{STORE}", [False]),
        ("barrier_removed", f"ld.global.u32 %r1, [%rd2];\n{BARRIER}{STORE}", [False]),
        ("barrier_removed", f"ld.global.nc.u32 %r1, [%rd2];\n{BARRIER}{STORE}", [True]),
        ("barrier_removed", f"{BARRIER}{SHARED}{STORE}", [False]),
        ("barrier_removed", f"{BARRIER}st.u32 [%rd1], %r1;\n", [False]),
        ("barrier_removed", f"L:\n{SHARED}{BARRIER}@%p1 bra L;\n{STORE}", [False]),
        ("wait_removed", "cp.async.wait_group 1;\ncp.async.wait_group 0;\n", [True, False]),
        ("wait_removed", "cp.async.wait_group 1;\ncp.async.commit_group;\ncp.async.wait_group 0;\n", [False, False]),
        ("wgmma_wait_dropped", "wgmma.wait_group.sync.aligned 0;\nwgmma.wait_group.sync.aligned 1;\n", [False, True]),
        # The barriers that it publishes are published by its neighbour.
        ("proxy_fence_dropped", "mbarrier.init.shared.b64 [full], 1;\nfence.mbarrier_init.release.cluster;\n"
         "fence.proxy.async;\n", [True]),
        ("proxy_fence_dropped", "mbarrier.init.shared.b64 [full], 1;\nfence.proxy.async;\n", [False]),
        ("proxy_fence_dropped", "st.shared.u32 [tile], %r1;\nL:\nmbarrier.init.shared.b64 [full], 1;\n"
         "fence.mbarrier_init.release.cluster;\nfence.proxy.async;\n", [False]),
    ],
)  # fmt: skip
def test_only_what_is_provably_harmless_is_called_so(kind: str, body: str, harmless: list[bool]) -> None:
    assert [m.may_be_equivalent for m in mutants_of(body, kind)] == harmless


def test_a_limit_keeps_sites_all_over_the_text() -> None:
    body = BARRIER * 1 + (SHARED + BARRIER) * 19
    ptx = f"{HEAD}.visible .entry k(.param .u64 out)\n{{\n{DECLARED}{body}\tret;\n}}\n"
    kept = [m for m in synchronisation_mutants(ptx, "k", 5) if m.kind == "barrier_removed"]
    assert [m.name for m in kept] == [f"barrier_removed.{n}" for n in (0, 5, 10, 14, 19)]
    assert len([m for m in synchronisation_mutants(ptx, "k") if m.kind == "barrier_removed"]) == 8


def test_functions_that_a_kernel_calls_are_broken_too_and_other_kernels_are_not() -> None:
    function = ".func f()\n{\n\tbar.sync 3;\n\tret;\n}\n"
    kernels = "".join(
        f".visible .entry {k}()\n{{\n\tbar.sync {i};\n\tcall f;\n\tret;\n}}\n" for i, k in enumerate("kg")
    )
    found = [m.description for m in synchronisation_mutants(HEAD + function + kernels, "g")]
    assert found == ["`bar.sync 1;` is removed.", "`bar.sync 3;` is removed."]


def test_a_kernel_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TilewrightError, match="mutate/no_kernel"):
        synchronisation_mutants(f"{HEAD}.visible .entry k()\n{{\n\tret;\n}}\n", "other")
