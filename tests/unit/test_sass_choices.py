"""Branches that choose between waits: what the middle of a run takes, or `unknown`; never a guess."""

from __future__ import annotations

import pytest
from sass_inputs.assemble import assemble
from sass_inputs.nvrtc import listing_of

from tilewright.sass.proof import OverlapProof, prove

OVERLAP = {"drain_by_number": 2, "drain_first": 2, "drain_last_tile": 1, "drain_extra": 2, "by_row": 2}
NO_OVERLAP = ("first_trip", "first_trips", "last_trip")
UNKNOWN = ("by_flag", "by_flag_twin", "half_way")
COMPILED = (("half.cu", "sm_86"), ("half.cu", "sm_120a"), ("float.cu", "sm_90a"))


def proof_of(engine: str, arch: str, kernel: str) -> OverlapProof:
    function = listing_of(engine, arch, "CHOICES").function(kernel)
    assert function is not None
    return prove(function)


@pytest.mark.parametrize(("engine", "arch"), COMPILED)
def test_the_middle_of_a_run_decides(engine: str, arch: str) -> None:
    """A drain at the last tiles is no steady state, a first trip is none either."""
    for kernel, tiles in OVERLAP.items():
        proof = proof_of(engine, arch, kernel)
        assert (kernel, proof.verdict, proof.tiles_in_flight) == (kernel, "overlap", tiles)
    for kernel in NO_OVERLAP:
        assert (kernel, proof_of(engine, arch, kernel).verdict) == (kernel, "no_overlap")


@pytest.mark.parametrize(("engine", "arch"), COMPILED)
def test_what_nothing_decides_is_unknown_and_named(engine: str, arch: str) -> None:
    for kernel in UNKNOWN:
        proof = proof_of(engine, arch, kernel)
        assert (kernel, proof.verdict, proof.tiles_in_flight, proof.wait) == (kernel, "unknown", 0, "")
        assert "chooses between waits" in proof.notes[0]
        assert "overlap (2 in flight) on" in proof.notes[0]
        assert "no overlap on" in proof.notes[0]
        assert ", line " in proof.notes[0]


@pytest.mark.parametrize(("engine", "arch"), COMPILED)
def test_where_all_ways_overlap_the_least_counts(engine: str, arch: str) -> None:
    proof = proof_of(engine, arch, "either_way")
    assert (proof.verdict, proof.tiles_in_flight) == ("overlap", 1)


HEAD = "MOV R50, RZ\ntop:\nLDGSTS.E.BYPASS.128 [R1], [R2.64]\nLDGDEPBAR // W0\n"
TAIL = "LDSM.16.M88.4 R4, [R3] // W5\n" + "HMMA.16816.F32 R8, R12, R16, R8\n" * 4
END = "ISETP.GE.AND P1, PT, R50, R30, PT\n@!P1 BRA `(top)\nEXIT"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("ISETP.GE.AND P0, PT, R50, R31, PT", "overlap"),  # R31 = R30 - 2: the last two tiles
        ("ISETP.LT.AND P0, PT, R50, R31, PT", "no_overlap"),
        ("ISETP.GE.AND P0, PT, R50, R32, PT", "unknown"),  # R32 is anything
        ("ISETP.GE.AND P0, PT, R50, 0x2, PT", "no_overlap"),
        ("ISETP.LT.AND P0, PT, R50, 0x2, PT", "overlap"),
        ("ISETP.LT.AND P0, PT, R50, 0x200, PT", "unknown"),  # is a run longer?
        ("ISETP.EQ.AND P0, PT, R50, R32, PT", "overlap"),
        ("ISETP.NE.AND P0, PT, R50, R32, PT", "no_overlap"),
        ("ISETP.EQ.AND P0, PT, R33, R32, PT", "unknown"),  # no counter
    ],
)
def test_comparisons_of_a_counter(test: str, expected: str) -> None:
    """P0 guards an extra wait for everything."""
    start = f"IADD3 R31, R30, -0x2, RZ\n{HEAD}DEPBAR.LE SB0, 0x1\n{test}\n"
    step = "IADD3 R50, R50, 0x1, RZ\n"
    branch = f"{start}@!P0 BRA `(on)\nDEPBAR.LE SB0, 0x0\non:\n{TAIL}{step}{END}"
    assert prove(assemble(branch)).verdict == expected
    guarded = f"{start}@P0 DEPBAR.LE SB0, 0x0\n{TAIL}{step}{END}"
    assert prove(assemble(guarded)).verdict == expected
    doubled = branch.replace("R50, R50, 0x1", "R50, R50, R34")
    assert prove(assemble(doubled)).verdict == "unknown", "a step that is not constant makes no counter"


def test_a_step_on_one_side_only_makes_no_counter() -> None:
    body = f"{HEAD}DEPBAR.LE SB0, 0x1\nISETP.EQ.AND P0, PT, R50, R32, PT\n@!P0 BRA `(on)\nDEPBAR.LE SB0, 0x0\n"
    both = f"{body}on:\n{TAIL}IADD3 R50, R50, 0x1, RZ\n{END}"
    one = f"{body}IADD3 R50, R50, 0x1, RZ\non:\n{TAIL}{END}"
    assert prove(assemble(both)).verdict == "overlap"
    assert prove(assemble(one)).verdict == "unknown"


LOOP = "{0}:\n{1}LDSM.16.M88.4 R4, [R3] // W5\n" + "HMMA.16816.F32 R8, R12, R16, R8\n" * 4 + "@P6 BRA `({0})\n"
COPY = "LDGSTS.E.BYPASS.128 [R1], [R2.64]\nLDGDEPBAR // W0\n"


def test_of_two_k_loops_the_worst_counts_in_either_order() -> None:
    good, bad = f"DEPBAR.LE SB0, 0x0\n{COPY}", f"{COPY}DEPBAR.LE SB0, 0x0\n"
    for first, second in ((good, bad), (bad, good)):
        proof = prove(assemble(LOOP.format("a", first) + LOOP.format("b", second) + "EXIT"))
        assert proof.verdict == "no_overlap"
        assert proof.notes[0].startswith("The kernel has 2 K-loops: ")
        assert "overlap at 0x0; " in proof.notes[0]
    alike = prove(assemble(LOOP.format("a", good) + LOOP.format("b", good) + "EXIT"))
    assert (alike.verdict, alike.notes) == ("overlap", ())


COUNTED = """MOV R50, RZ
top:
IADD3 R10, R50, 0x20, RZ
ISETP.GT.AND P1, PT, R10, 0x7f, PT
{early}mid:
LDS R4, [R3] // W0
FFMA R8, R4, R16, R8 // wait0
FFMA R9, R4, R17, R9
FFMA R11, R4, R18, R11
FFMA R12, R4, R19, R12
PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x0
{late}@P1 BRA `(tail)
PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0
STS [R3+0x100], R20 // wait5
tail:
BAR.SYNC.DEFER_BLOCKING 0x0
MOV R50, R10
@!P0 BRA `(out)
BRA `(top)
out:
EXIT"""


@pytest.mark.parametrize("early", [True, False])
def test_a_comparison_that_ends_the_loop_is_its_last_trip(early: bool) -> None:
    """A run of a few counted trips, whose end is told by a predicate that both sides of a branch set."""
    load = "@P1 BRA `(mid)\nLDG.E R20, [R30.64] // W5\n" if early else ""
    late = "" if early else "@P1 BRA `(tail)\nLDG.E R20, [R30.64] // W5\n"
    proof = prove(assemble(COUNTED.format(early=load, late=late)))
    assert (proof.verdict, proof.mma_per_tile) == ("overlap" if early else "no_overlap", 4)


@pytest.mark.parametrize("early", [True, False])
def test_zeros_past_an_edge_leave_a_copy_a_copy(early: bool) -> None:
    """``@P3 MOV R20, RZ`` on top of a load: still that load, and a wait for it where it stands."""
    zero = "@P3 MOV R20, RZ // wait5\n"
    text = COUNTED.format(early="LDG.E R20, [R30.64] // W5\n" + ("" if early else zero), late=zero if early else "")
    assert prove(assemble(text)).verdict == ("overlap" if early else "no_overlap")


def test_a_wait_for_something_else_on_the_loads_scoreboard_is_named() -> None:
    bias = COUNTED.format(early="@P1 BRA `(mid)\nLDG.E R20, [R30.64] // W5\n", late="")
    bias = bias.replace("LDS R4, [R3] // W0", "LDS R4, [R3] // W0\nFADD R40, R41, R42 // wait5")
    proof = prove(assemble(bias))
    assert proof.verdict == "no_overlap"
    assert "`FADD R40, R41, R42` at 0x60 waits for something else on the scoreboard" in proof.notes[0]
    own = bias.replace("R41", "R20")
    assert not any("something else" in note for note in prove(assemble(own)).notes)
