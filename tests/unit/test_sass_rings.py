"""Rings on mbarriers, in every order of issue, wait and compute, on the architectures that have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sass_inputs.nvrtc import listing_of

from tilewright.sass.listing import Function
from tilewright.sass.proof import OverlapProof, prove

OTHER_ARCHS = ("sm_100a", "sm_120a")  # a few kernels there: what differs is the instructions, not the orders
# kernel → (tiles in flight, 0 is `no_overlap`; copies a tile as the thread that was followed issues them)
RINGS = {
    "rows_before_s2": (1, 4),
    "rows_before_s4": (3, 4),
    "rows_after_s2": (0, 4),
    "rows_after_s3": (1, 4),
    "rows_waits_for_all_s2": (0, 4),
    "rows_waits_for_all_s3": (0, 4),
    "rows_one_at_a_time": (0, 4),
    "rows_refills_s2": (1, 4),
    "lanes_before_s3": (2, 1),
    "lanes_waits_for_all_s3": (0, 1),
    "box_before_s3": (2, 1),
    "box_after_s2": (0, 1),
    "box_after_s4": (2, 1),
    "box_waits_for_all_s3": (0, 1),
    "box_one_at_a_time": (0, 1),
    "counters_s3": (2, 1),
    "two_barriers_s2": (1, 2),
    "specialised_s1": (0, 4),
    "specialised_s2": (1, 4),
    "specialised_s4": (3, 4),
    "two_ways_s2": (1, 1),
    "from_a_column_s2": (1, 4),
    "behind_padding_s2": (1, 4),
}
FEW = ("rows_after_s3", "lanes_before_s3", "box_before_s3", "box_waits_for_all_s3", "counters_s3", "two_barriers_s2",
    "specialised_s2", "two_ways_s2")  # fmt: skip
CASES = [("sm_90a", name) for name in RINGS] + [(arch, name) for arch in OTHER_ARCHS for name in FEW]
BY_ROWS = ("rows", "lanes", "specialised", "from_a_column", "behind_padding")


def kernel(name: str, arch: str = "sm_90a") -> Function:
    function = listing_of("rings.cu", arch, *(() if arch == "sm_90a" else ("FEW",))).function(name)
    assert function is not None
    return function


def found(proof: OverlapProof) -> tuple[str, int]:
    return proof.verdict, proof.tiles_in_flight


@pytest.mark.parametrize(("arch", "name"), CASES)
def test_what_is_in_flight(arch: str, name: str) -> None:
    tiles, copies = RINGS[name]
    proof = prove(kernel(name, arch))
    assert found(proof) == (("overlap", tiles) if tiles else ("no_overlap", 0)), proof.notes
    assert [row.opcode for row in proof.copies] == ["UBLKCP" if name.startswith(BY_ROWS) else "UTMALDG"]
    assert sum(row.count for row in proof.copies) == copies * proof.tiles_per_trip
    assert proof.wait.startswith("SYNCS.PHASECHK")
    assert (proof.math_kind, proof.mma_per_tile) == ("FFMA", 80 if name == "two_barriers_s2" else 40)


def test_the_way_without_a_map_is_named_not_judged() -> None:
    assert "Launches that take another way go through the loop at" in " ".join(prove(kernel("two_ways_s2")).notes)


def test_a_loop_between_two_parameters_is_followed_the_way_of_the_copies() -> None:
    """Both have the same value at first: no trip. From column 1 on no row is aligned, and no bulk copy is made."""
    notes = " ".join(prove(kernel("from_a_column_s2")).notes)
    assert "= 64 and word of memory" in notes
    assert "A ring of 2 stages" in notes
    assert "= 64 and word of memory" in " ".join(prove(kernel("behind_padding_s2")).notes)


def test_bytes_of_copies() -> None:
    """Rows say how many bytes they are; a box is what the mbarrier expects."""
    assert [(row.opcode, row.width_bytes) for row in prove(kernel("rows_before_s2")).copies] == [("UBLKCP", 256)]
    assert [(row.opcode, row.width_bytes) for row in prove(kernel("box_before_s3")).copies] == [("UTMALDG", 1024)]


def test_notes_say_what_was_followed() -> None:
    notes = " ".join(prove(kernel("rows_before_s4")).notes)
    assert "A ring of 4 stages: 4 mbarriers count its copies." in notes
    assert "Thread 0 of block 0 was followed" in notes
    assert "16384 for every parameter" in notes
    assert "4 mbarriers count its copies, 2 to a stage" in " ".join(prove(kernel("two_barriers_s2")).notes)
    split = " ".join(prove(kernel("counters_s3")).notes)
    assert "= 64 and word of memory" in split, "with as many splits as tiles there is one tile"


def test_specialised_kernels_name_their_threads() -> None:
    proof = prove(kernel("specialised_s2"))
    assert any(n.startswith("Warp-specialised: thread 96 copies, thread 0 computes") for n in proof.notes)
    assert "the copying thread may now issue tile t+" in proof.excerpt
    assert proof.ops_per_load == 10


def test_a_ring_that_nothing_holds_back_is_not_judged() -> None:
    proof = prove(kernel("specialised_unheld"))
    assert found(proof) == ("unknown", 0)
    assert proof.notes[0].startswith("Warp-specialised")


def test_the_excerpt_shows_issue_wait_and_math() -> None:
    lines = prove(kernel("box_before_s3")).excerpt.splitlines()
    marks = [word for line in lines for word in ("issue", "wait ", "math", "barrier") if f" {word} " in f"{line} "]
    assert marks.index("issue") < marks.index("wait ") < marks.index("math")
    assert any("UTMALDG.2D" in line and "copy of tile t+2" in line for line in lines)
    assert any("SYNCS.PHASECHK" in line and "tile t has landed" in line for line in lines)


def test_a_wait_for_another_parity_retires_nothing() -> None:
    """The parity is shifted to the sign bit; shifted by a bit less it is 0 for ever, and every other wait passes."""
    function = kernel("box_before_s3")
    loop = prove(function)
    assert loop.verdict == "overlap"
    waits = [i for i in function.instructions if i.opcode == "SYNCS" and "PHASECHK" in i.modifiers]
    used = {part.strip() for i in waits for part in i.operands.split(",")[2:]}
    shifts = [i for i in function.instructions if i.opcode == "SHF" and i.operands.split(",")[0] in used]
    assert shifts
    broken = function
    for shift in shifts:
        text = shift.operands.replace("0x1f", "0x1e")
        code = tuple(replace(i, operands=text) if i.address == shift.address else i for i in broken.instructions)
        broken = replace(broken, instructions=code)
    proof = prove(broken)
    assert found(proof) == ("unknown", 0)
    assert "no wait is for the copy at" in proof.notes[0]
