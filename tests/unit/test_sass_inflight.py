"""The rules of scoreboards, groups and tiles, on small functions written by hand."""

from __future__ import annotations

import pytest
from sass_inputs.assemble import assemble

from tilewright.sass.inflight import depbar
from tilewright.sass.listing import Instruction
from tilewright.sass.operands import access_bytes, is_integer_math, reads, scalar_math, writes
from tilewright.sass.proof import OverlapProof, prove

MATH = "HMMA.16816.F32 R8, R4, R6, R8 // stall8\n" * 4


def proof(body: str) -> OverlapProof:
    return prove(assemble(f"top:\n{body}\n@P6 BRA `(top)\nEXIT"))


def found(body: str) -> tuple[str, int, int]:
    result = proof(body)
    return result.verdict, result.tiles_in_flight, result.mma_while_in_flight


COPY = "LDGSTS.E.BYPASS.128 [R1], [R2.64]\nLDGDEPBAR // W0\n"
READ = "LDSM.16.M88.4 R4, [R3] // W5\n"


@pytest.mark.parametrize("left", range(4))
def test_a_group_stays_for_as_many_younger_ones(left: int) -> None:
    """Copy, then wait with n, then compute: n tiles in flight."""
    verdict, tiles, math = found(f"{COPY}DEPBAR.LE SB0, {left:#x}\n{READ}{MATH}")
    assert (verdict, tiles, math) == (("overlap", left, 4) if left else ("no_overlap", 0, 0))


def test_uncommitted_copies_wait_for_nothing() -> None:
    """The commit comes after the wait: DEPBAR 0 does not hold the copy that was issued before it."""
    body = f"LDGSTS.E.BYPASS.128 [R1], [R2.64]\nDEPBAR.LE SB0, 0x0\nLDGDEPBAR // W0\n{READ}{MATH}"
    assert found(body) == ("overlap", 1, 4)


def test_the_commit_may_sink_below_the_math() -> None:
    """The issue counts, not the commit (sm_120a sinks it)."""
    body = f"DEPBAR.LE SB0, 0x0\nLDGSTS.E.BYPASS.128 [R1], [R2.64]\n{READ}{MATH}LDGDEPBAR // W0"
    assert found(body) == ("overlap", 1, 4)


def test_empty_groups_count() -> None:
    """Two commits a tile, one of them empty: n = 1 then holds nothing back."""
    body = f"{COPY}LDGDEPBAR // W0\nDEPBAR.LE SB0, 0x1\n{READ}{MATH}"
    assert found(body)[:2] == ("no_overlap", 0)


def test_a_load_is_retired_by_its_scoreboard_not_by_its_register() -> None:
    """An unrelated instruction that waits for scoreboard 2 waits for the load on it."""
    store = "STS.128 [R1], R20 // wait2\nBAR.SYNC 0x0\n"
    load = "LDG.E.128 R20, [R2.64] // W2\n"
    assert found(f"{load}{READ}{MATH}{store}") == ("overlap", 1, 4)
    assert found(f"{load}MOV R30, R31 // wait2\n{READ}{MATH}{store}") == ("no_overlap", 0, 0)
    assert found(f"{load}MOV R30, R31 // wait3\n{READ}{MATH}{store}") == ("overlap", 1, 4)


def test_loads_without_a_scoreboard_ride_on_the_next() -> None:
    loads = "LDG.E.128 R20, [R2.64]\nLDG.E.128 R24, [R2.64] // W2\n"
    stores = "STS.128 [R1], R20 // wait2\nSTS.128 [R1], R24\nBAR.SYNC 0x0\n"
    result = proof(f"{loads}{READ}{MATH}{stores}")
    assert (result.verdict, result.mma_while_in_flight) == ("overlap", 4)
    assert [(c.opcode, c.count) for c in result.copies] == [("LDG", 2)]


def test_only_values_that_reach_shared_memory_are_copies() -> None:
    store = "STS.128 [R1], R20 // wait2\nBAR.SYNC 0x0\n"
    other = "LDG.E.64 R40, [R2.64] // W3\nFADD R8, R8, R40 // wait3\n"  # a bias, used at once
    result = proof(f"LDG.E.128 R20, [R2.64] // W2\n{READ}{MATH}{other}{store}")
    assert [(c.opcode, c.width_bytes, c.count) for c in result.copies] == [("LDG", 16, 1)]
    assert result.ops_per_load == 2.0, "every load counts in the ratio"
    address = f"LDG.E.128 R20, [R2.64] // W2\n{READ}{MATH}STS.128 [R20], R1 // wait2\n"
    assert proof(address).verdict == "unknown"


def test_values_pass_through_conversions_but_not_through_math() -> None:
    convert = "F2FP.F16.F32.PACK_AB R30, R21, R20 // wait2\nPRMT R31, R30, 0x5410, R30\nSTS [R1], R31\nBAR.SYNC 0x0\n"
    assert found(f"LDG.E.128 R20, [R2.64] // W2\n{READ}{MATH}{convert}")[:2] == ("overlap", 1)
    # As attention does, whose scores go to shared memory:
    scores = "HMMA.16816.F32 R20, R20, R6, R20 // wait2\nSTS [R1], R20\nBAR.SYNC 0x0\n"
    assert proof(f"LDG.E.128 R20, [R2.64] // W2\n{READ}{MATH}{scores}").verdict == "unknown"


def test_a_register_that_is_overwritten_is_no_longer_the_load() -> None:
    body = (
        f"LDG.E R20, [R2.64] // W2\n{READ}{MATH}FADD R21, R20, R22 // wait2\nMOV R20, RZ\nSTS [R1], R20\nBAR.SYNC 0x0\n"
    )
    assert proof(body).verdict == "unknown"
    assert found(body.replace("MOV R20, RZ", "MOV R23, RZ")) == ("overlap", 1, 4)


def test_half_a_tile_in_flight_counts_half() -> None:
    """A is prefetched, B is not: said in the figures and in a note."""
    body = (
        "LDG.E.128 R20, [R2.64] // W2\nLDG.E.128 R24, [R2.64] // W3\n"
        f"STS.128 [R1], R24 // wait3\nBAR.SYNC 0x0\n{READ}{MATH}STS.128 [R1], R20 // wait2\nBAR.SYNC 0x0\n"
    )
    result = proof(body)
    assert result.mean_in_flight == pytest.approx(0.5)
    assert any("1 of 2 copies" in note for note in result.notes)


def test_a_small_tail_is_no_overlap() -> None:
    """ptxas may sink the last math of a tile below the next copy."""
    tail = "HMMA.16816.F32 R8, R4, R6, R8\n"
    result = proof(f"{tail}{COPY}{tail}DEPBAR.LE SB0, 0x0\nBAR.SYNC 0x0\n{READ}{MATH}{MATH}")
    assert (result.verdict, result.mma_while_in_flight, result.mma_per_tile) == ("no_overlap", 1, 10)


def test_tiles_that_arrive_one_after_the_other_without_a_read_between_are_one() -> None:
    """A and B committed and waited for apart: still one tile a trip."""
    body = f"{COPY}{COPY}DEPBAR.LE SB0, 0x3\nDEPBAR.LE SB0, 0x2\nBAR.SYNC 0x0\n{READ}{MATH}"
    result = proof(body)
    assert (result.tiles_per_trip, result.mma_per_tile, result.tiles_in_flight) == (1, 4, 1)
    apart = f"{COPY}{COPY}DEPBAR.LE SB0, 0x3\n{READ}{MATH}DEPBAR.LE SB0, 0x2\n{READ}{MATH}"
    assert proof(apart).tiles_per_trip == 2


def test_where_loads_and_copies_fill_a_tile_the_waits_count_the_tiles() -> None:
    """A through registers, stored amid the reads; B by an asynchronous copy."""
    store = "STS.128 [R1], R20 // wait2\n"
    body = f"LDG.E.128 R20, [R2.64] // W2\n{COPY}{READ}{MATH}{store}{READ}{MATH}DEPBAR.LE SB0, 0x0\nBAR.SYNC 0x0\n"
    result = proof(body)
    assert (result.tiles_per_trip, result.mma_per_tile) == (1, 8)
    assert result.mean_in_flight == pytest.approx(0.75)


def test_a_warp_of_its_own_needs_no_barrier() -> None:
    assert found(f"LDG.E.128 R20, [R2.64] // W2\n{READ}{MATH}STS.128 [R1], R20 // wait2\n") == ("overlap", 1, 4)


def test_without_reads_of_shared_memory_each_arrival_is_a_tile() -> None:
    assert found(f"{COPY}DEPBAR.LE SB0, 0x1\n{MATH}") == ("overlap", 1, 4)


def test_what_is_guarded_off_does_nothing() -> None:
    """The branch settles P1: the guarded math behind it is not executed."""
    body = f"@P1 BRA `(skip)\n{COPY}skip:\nDEPBAR.LE SB0, 0x1\n{READ}{MATH}@P1 HMMA.16816.F32 R8, R4, R6, R8\n"
    assert proof(body).mma_per_tile == 4


def test_a_zero_fill_is_no_copy() -> None:
    body = f"LDGSTS.E.128 [R1], [R2.64], !PT\nLDGDEPBAR // W0\nDEPBAR.LE SB0, 0x1\n{READ}{MATH}"
    assert proof(body).verdict == "unknown"
    assert found(body.replace(", !PT", "")) == ("overlap", 1, 4)


def test_other_scoreboards_of_a_depbar() -> None:
    instruction = assemble("DEPBAR.LE SB3, 0x2, {5,1}").instructions[0]
    assert depbar(instruction) == [(3, 2), (5, 0), (1, 0)]


def test_spills_are_said() -> None:
    function = assemble(f"top:\n{COPY}DEPBAR.LE SB0, 0x1\n{MATH}@P6 BRA `(top)\nEXIT", spill_stores=2, spill_loads=3)
    assert any("2 STL, 3 LDL" in note for note in prove(function).notes)


def test_a_called_function_is_not_followed_and_that_is_said() -> None:
    code = f"top:\nCALL.REL.NOINC `(callee)\n@P6 BRA `(top)\nEXIT\ncallee:\n{COPY}{MATH}RET.REL.NODEC R2"
    assert "calls functions" in prove(assemble(code)).notes[0]


def one(text: str) -> Instruction:
    return assemble(text).instructions[0]


@pytest.mark.parametrize(
    ("text", "written", "read"),
    [
        ("LDG.E.128.CONSTANT R4, [R2.64]", (4, 5, 6, 7), ()),
        ("LDG.E.U8 R4, desc[UR8][R2.64]", (4,), ()),
        ("STS.128 [R0+UR5], R4", (), (4, 5, 6, 7)),
        ("STS.U8 [R0], R4", (), (4,)),
        ("LDSM.16.M88.4 R8, [R3]", (8, 9, 10, 11), ()),
        ("IADD3 R42, P0, P1, R72, R0, R59", (42,), (72, 0, 59)),
        ("LOP3.LUT P0, R10, R53, 0x3, RZ, 0xc0, !PT", (10,), (53,)),
        ("ISETP.GE.AND P0, PT, R5, R6, PT", (), (5, 6)),
        ("IADD.64 R4, R2, UR6", (4, 5), (2, 3, 262, 263)),
        ("IMAD.WIDE R2, R4, 0x4, R6", (2, 3), (4, 6)),
        ("R2UR UR4, R2", (260,), (2,)),
        ("IMAD R0, R1, c[0x3][R7], RZ", (0,), (1,)),
        ("HMMA.16816.F32 R8, R4.reuse, R6, R8", (8, 9, 10, 11), (4, 6, 8)),
        ("HMMA.16816.F16 R8, R4, R6, R8", (8, 9), (4, 6, 8)),
    ],
)
def test_registers(text: str, written: tuple[int, ...], read: tuple[int, ...]) -> None:
    assert writes(one(text)) == written
    assert reads(one(text)) == read


def test_widths_and_what_is_math() -> None:
    assert [access_bytes(one(t)) for t in ("LDG.E.U16 R0, [R2]", "LDGSTS.E.BYPASS.LTC128B.128 [R1], [R2]")] == [2, 16]
    assert [scalar_math(one(t)) for t in ("FFMA R0, R1, R2, R0", "FFMA2 R0, R2, R4, R0")] == [1, 2]
    assert scalar_math(one("HFMA2.MMA R5, -RZ, RZ, 0, 0")) == 0, "that loads a constant"
    assert scalar_math(one("@!PT FFMA R0, R1, R2, R0")) == 0
    assert is_integer_math(one("IMAD R5, R8.reuse, R9, R5"))
    assert not is_integer_math(one("IMAD R5, R8, 0x20, R5")), "that is an address"


def test_what_no_math_parts_is_one_tile() -> None:
    """A is read into registers before B takes its place in shared memory: one tile. With math in between, two."""
    load = "LDG.E.128 R20, [R2.64] // W2\nSTS.128 [R1], R20 // wait2\nBAR.SYNC 0x0\n"
    one, two = proof(f"{load}{READ}{load}{READ}{MATH}"), proof(f"{load}{READ}{MATH}{load}{READ}{MATH}")
    assert (one.verdict, one.mma_per_tile, one.tiles_per_trip) == ("no_overlap", 4, 1)
    assert (two.verdict, two.mma_per_tile, two.tiles_per_trip) == ("no_overlap", 4, 2)


def test_what_passes_through_shared_memory_before_the_tiles_is_none() -> None:
    """A persistent kernel whose K-loop is unrolled: C comes by way of shared memory, then two tiles of A and B."""
    load = "LDG.E.128 R20, [R2.64] // W2\nSTS.128 [R1], R20 // wait2\nBAR.SYNC 0x0\n"
    result = proof(f"{load}{READ}BAR.SYNC 0x0\n{load}{READ}{MATH}BAR.SYNC 0x0\n{load}{READ}{MATH}")
    assert (result.mma_per_tile, result.tiles_per_trip) == (4, 2)
