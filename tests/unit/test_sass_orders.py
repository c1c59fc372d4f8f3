"""Every order of copy, wait, barrier and compute, compiled for every architecture: the proof must tell them apart."""

from __future__ import annotations

import pytest
from sass_inputs.nvrtc import listing_of

from tilewright.sass.proof import OverlapProof, prove
from tilewright.sass.tiles import LEAST_IN_FLIGHT

ENGINES = {"int8.cu": ("IMMA", 16), "half.cu": ("HMMA", 16), "float.cu": ("FFMA", 256)}
ARCHS = ("sm_86", "sm_90a", "sm_120a")
# kernel → tiles in flight; 0 is `no_overlap`
ORDERS = {
    "baseline": 0,
    "ring_s2": 1,
    "ring_s3": 2,
    "ring_s4": 3,
    "bare_s2": 1,
    "bare_s3": 2,
    "waits_s2_n0": 0,
    "waits_s3_n1": 1,
    "waits_s3_n0": 0,
    "waits_s4_n2": 2,
    "waits_s4_n0": 0,
    "after_s2": 0,
    "after_s3": 1,
    "after_s4": 2,
    "ldg_double": 1,
    "ldg_single": 1,
    "ldg_consumed": 0,
}
STYLES = {
    "counters_s2": 1,
    "counters_s3": 2,
    "unrolled_s2_x2": 1,
    "branches_s2": 1,
    "wait_all_n0": 0,
    "persistent_s3": 2,
    "rolled_baseline": 0,
    "rolled_ring_s2": 1,
    "rolled_ring_s3": 2,
    "rolled_waits_s3_n0": 0,
    "rolled_after_s2": 0,
    "rolled_ldg": 1,
    "strided_baseline": 0,
    "strided_ring_s3": 2,
    "strided_waits_s3_n0": 0,
    "guarded_baseline": 0,
    "guarded_ring_s2": 1,
    "guarded_ring_s3": 2,
    "guarded_after_s2": 0,
    "guarded_ldg": 1,
    "fallback_ring_s2": 1,
    "fallback_ring_s3": 2,
    "fallback_waits_s3_n0": 0,
    "fallback_after_s2": 0,
}
STYLES_ON = (("int8.cu", "sm_120a"), ("half.cu", "sm_86"), ("float.cu", "sm_90a"))


def proof_of(engine: str, arch: str, kernel: str, *defines: str) -> OverlapProof:
    function = listing_of(engine, arch, *defines).function(kernel)
    assert function is not None
    return prove(function)


def check(proof: OverlapProof, engine: str, tiles: int) -> None:
    kind, per_tile = ENGINES[engine]
    assert (proof.verdict, proof.tiles_in_flight) == ("overlap" if tiles else "no_overlap", tiles), proof.excerpt
    assert (proof.math_kind, proof.mma_per_tile) == (kind, per_tile)
    # The figure that decides keeps its distance from the limit.
    assert proof.mean_in_flight <= 0.25 or proof.mean_in_flight >= LEAST_IN_FLIGHT + 0.09
    assert bool(tiles) == (proof.mma_while_in_flight >= 0.4 * per_tile)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("engine", ENGINES)
def test_orders(engine: str, arch: str) -> None:
    for kernel, tiles in ORDERS.items():
        check(proof_of(engine, arch, kernel), engine, tiles)


def test_orders_on_sm_80() -> None:
    for kernel, tiles in ORDERS.items():
        check(proof_of("half.cu", "sm_80", kernel), "half.cu", tiles)


@pytest.mark.parametrize(("engine", "arch"), STYLES_ON)
def test_ways_of_writing_it(engine: str, arch: str) -> None:
    """Rolled compute loops, unrolled K-loops, guards, copy loops, scalar fallbacks, an outer loop."""
    for kernel, tiles in STYLES.items():
        check(proof_of(engine, arch, kernel, "EXTRA"), engine, tiles)


def test_twins_differ_only_in_the_number() -> None:
    """The two kernels hold the same instructions but for one immediate; only one of them overlaps."""
    one, other = proof_of("half.cu", "sm_86", "waits_s3_n1"), proof_of("half.cu", "sm_86", "waits_s3_n0")
    assert (one.wait, other.wait) == ("DEPBAR.LE SB0, 0x1", "DEPBAR.LE SB0, 0x0")
    assert (one.copies, one.mma_per_tile) == (other.copies, other.mma_per_tile)
    assert (one.verdict, other.verdict) == ("overlap", "no_overlap")


def test_a_barrier_is_reported_and_not_decisive() -> None:
    plain, bare = proof_of("half.cu", "sm_86", "ring_s2"), proof_of("half.cu", "sm_86", "bare_s2")
    assert (plain.verdict, bare.verdict) == ("overlap", "overlap")
    assert (plain.barriers_between, bare.barriers_between) == (0, 1)


def test_what_ptxas_undid_is_no_overlap() -> None:
    """One source: for sm_86 ptxas leaves the loads above the math, for sm_80 it sinks them below."""
    kept, undone = proof_of("half.cu", "sm_86", "ldg_loose"), proof_of("half.cu", "sm_80", "ldg_loose")
    assert (kept.verdict, kept.tiles_in_flight) == ("overlap", 1)
    assert (undone.verdict, undone.mma_while_in_flight) == ("no_overlap", 0)


def test_an_unrolled_k_loop_is_counted_per_tile() -> None:
    proof = proof_of("float.cu", "sm_90a", "unrolled_s3_x4", "EXTRA")
    assert (proof.tiles_per_trip, proof.mma_per_tile, proof.tiles_in_flight) == (4, 256, 2)


def test_copy_loops_are_written_out() -> None:
    """2048 bytes an operand, byte by byte, 128 threads: 16 loads each, though ptxas left a loop and a remainder."""
    proof = proof_of("int8.cu", "sm_120a", "strided_baseline", "EXTRA")
    assert [(c.opcode, c.width_bytes, c.count) for c in proof.copies] == [("LDG", 1, 32)]
    assert proof.ops_per_load == 0.5


def test_a_scalar_fallback_is_left_aside() -> None:
    proof = proof_of("half.cu", "sm_86", "fallback_ring_s3", "EXTRA")
    assert [(c.opcode, c.width_bytes) for c in proof.copies] == [("LDGSTS", 16)]
    assert proof.ops_per_load == 4.0


def test_zero_fill_twins_count_once() -> None:
    """`LDGSTS …, !PT` beside the copy itself: a thread executes one of them."""
    proof = proof_of("half.cu", "sm_86", "guarded_ring_s2", "EXTRA")
    assert [(c.opcode, c.width_bytes, c.count) for c in proof.copies] == [("LDGSTS", 16, 4)]


def test_stalls_and_excerpt() -> None:
    proof = proof_of("int8.cu", "sm_86", "ring_s3")
    first = proof.stalls[0]
    assert first.opcode == "IMMA.16816.S8.S8"
    assert first.count == 32
    assert 1 <= first.min <= first.mean <= first.max <= 15
    lines = proof.excerpt.splitlines()
    assert 10 <= len(lines) <= 40
    for word in ("issue", "commit", "wait", "barrier", "math", "tile t+2", "2 in flight", "back edge"):
        assert word in proof.excerpt
    assert lines[-1] == "Order proves that overlap is permitted; only timing shows that it happens."
    assert "LDS RZ" not in proof.excerpt


def test_mbarriers_and_kernels_without_a_k_loop() -> None:
    proofs = {function.name: prove(function) for function in listing_of("mbarrier.cu", "sm_90a").functions}
    found = {name: (proof.verdict, proof.tiles_in_flight) for name, proof in proofs.items()}
    assert found == {
        "bulk_ring": ("overlap", 2),
        "async_ring": ("no_overlap", 0),
        "specialised": ("overlap", 2),
        "unstaged": ("unknown", 0),
        "loopless": ("unknown", 0),
        "mathless": ("unknown", 0),
    }
    assert "no K-loop" in proofs["unstaged"].notes[0]
    assert "no loop" in proofs["loopless"].notes[0]
    assert "no math" in proofs["mathless"].notes[0]
    assert [(row.opcode, row.count) for row in proofs["async_ring"].copies] == [("LDGSTS", 1)]
