"""Blocks, loops, and what constants say about branches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sass_inputs.assemble import assemble

from tilewright.sass.evaluate import Evaluator, State
from tilewright.sass.flow import Flow, flow_of
from tilewright.sass.kloop import find_k_loops, work_of
from tilewright.sass.listing import Function
from tilewright.sass.steady import SteadyPath, steady_path


def loops(flow: Flow) -> list[tuple[int, int]]:
    return [(flow.blocks[loop.header].first, loop.depth) for loop in flow.loops]


def test_nested_loops() -> None:
    flow = flow_of(
        assemble(
            """
            MOV R0, RZ
            outer:
            MOV R1, RZ
            inner:
            IADD3 R1, R1, 0x1, RZ
            @P0 BRA `(inner)
            IADD3 R0, R0, 0x1, RZ
            @P1 BRA `(outer)
            EXIT
            """
        )
    )
    assert loops(flow) == [(1, 1), (2, 2)]
    assert flow.loops[1].parent == 0
    assert flow.is_reducible


def test_two_back_edges_are_one_loop() -> None:
    flow = flow_of(assemble("top:\nNOP\n@P0 BRA `(top)\nNOP\n@P1 BRA `(top)\nEXIT"))
    assert loops(flow) == [(0, 1)]
    assert len(flow.loops[0].latches) == 2


def test_a_loop_with_two_entries_is_said_to_be_one() -> None:
    flow = flow_of(assemble("@P0 BRA `(b)\na:\nNOP\nb:\nNOP\n@P1 BRA `(a)\nEXIT"))
    assert not flow.is_reducible


def test_a_call_may_be_a_jump() -> None:
    """ptxas leaves a loop by `@P0 CALL.REL.NOINC` to code that never returns: that ends the trip."""
    jump = assemble("top:\nNOP\n@P0 CALL.REL.NOINC `(out)\nBRA `(top)\nout:\nEXIT")
    assert flow_of(jump).calls == frozenset()
    assert loops(flow_of(jump)) == [(0, 1)]
    call = assemble("top:\nNOP\nCALL.REL.NOINC `(callee)\n@P0 BRA `(top)\nEXIT\ncallee:\nNOP\nRET.REL.NODEC R2")
    assert flow_of(call).calls == {1}
    assert loops(flow_of(call)) == [(0, 1)]


def test_a_uniform_branch_is_conditional() -> None:
    flow = flow_of(assemble("top:\nNOP\nBRA.U UP0, `(top)\nEXIT"))
    assert loops(flow) == [(0, 1)]
    assert len(flow.blocks[0].successors) == 2


def test_no_code_no_loops() -> None:
    assert flow_of(Function("empty", "sm_86", ())).loops == ()


# --- evaluation ----------------------------------------------------------------------------------------------------


def after(text: str, state: State | None = None, thread: int | None = 0) -> State:
    function = assemble(text)
    evaluator = Evaluator(function, flow_of(function), thread)
    known = dict(state or {})
    for instruction in function.instructions:
        evaluator.step(instruction, known)
    return known


words = st.integers(0, 2**32 - 1)


def signed(value: int) -> int:
    return struct.unpack("<i", struct.pack("<I", value))[0]


@given(words, words, words)
def test_arithmetic(a: int, b: int, c: int) -> None:
    state = {"R1": a, "R2": b, "R3": c}
    mask = 2**32 - 1
    assert after("IADD3 R0, R1, -R2, R3", state)["R0"] == (a - b + c) & mask
    assert after("IMAD R0, R1.reuse, R2, R3", state)["R0"] == (a * b + c) & mask
    assert after("IMAD.SHL.U32 R0, R1, 0x10, RZ", state)["R0"] == (a * 16) & mask
    assert after("LEA R0, R1, R2, 0x5", state)["R0"] == ((a << 5) + b) & mask
    assert after("SHF.R.S32.HI R0, RZ, 0x1f, R1", state)["R0"] == (signed(a) >> 31) & mask
    assert after("SHF.R.U32.HI R0, RZ, 0x3, R1", state)["R0"] == a >> 3
    assert after("SHF.L.U32 R0, R1, 0x3, RZ", state)["R0"] == (a << 3) & mask
    assert after("LOP3.LUT R0, R1, R2, R3, 0xea, !PT", state)["R0"] == (a & b) | c
    assert after("LOP3.LUT R0, R1, R2, RZ, 0x3c, !PT", state)["R0"] == a ^ b
    assert signed(after("IMNMX R0, R1, R2, !PT", state)["R0"]) == max(signed(a), signed(b))
    assert after("VIMNMX.U32 R0, R1, R2, PT", state)["R0"] == min(a, b)


@given(words)
def test_signed_division_by_32(a: int) -> None:
    """The pair of shift and LEA.HI that the compiler makes of `x / 32 * 32`, rounding to zero."""
    state = after("SHF.R.S32.HI R2, RZ, 0x1f, R1\nLEA.HI R2, R2, R1, RZ, 0x5\nSHF.R.S32.HI R0, RZ, 0x5, R2", {"R1": a})
    assert signed(state["R0"]) == int(signed(a) / 32)


@given(words, words)
def test_comparison(a: int, b: int) -> None:
    state = {"R1": a, "R2": b}
    assert after("ISETP.LT.AND P0, PT, R1, R2, PT", state)["P0"] == (signed(a) < signed(b))
    assert after("ISETP.GE.U32.AND P0, P1, R1, R2, PT", state)["P1"] == (a < b)
    assert after("ISETP.NE.OR P0, PT, R1, R2, !PT", state)["P0"] == (a != b)


def test_constants_in_odd_places() -> None:
    assert after("HFMA2.MMA R0, -RZ, RZ, 0, 5.9604644775390625e-08") == {"R0": 1}
    assert after("CS2R R4, SRZ") == {"R4": 0, "R5": 0}
    assert after("UPLOP3.LUT UP0, UPT, UPT, UPT, UPT, 0x40, 0x4") == {"UP0": 0}
    assert after("LOP3.LUT P0, R0, R1, 0x3, RZ, 0xc0, !PT", {"R1": 6}) == {"R1": 6, "R0": 2, "P0": 1}


@pytest.mark.parametrize(
    "text",
    [
        "IADD3.X R0, R1, R1, RZ, P0, !PT",  # a carry
        "LDG.E R0, [R2]",
        "IMAD R0, R1, c[0x0][0x160], RZ",
        "S2R R0, SR_CTAID.X",
        "@P3 MOV R0, 0x7",  # only perhaps
        "IMAD.WIDE R0, R1, 0x4, R2",
        "LDS.128 R0, [R1]",
        "SHF.L.U64.HI R0, R1, 0x2, R1",
    ],
)
def test_what_is_not_certain_is_unknown(text: str) -> None:
    assert "R0" not in after(text, {"R0": 5, "R1": 3})


def test_only_thread_zero_is_known() -> None:
    assert after("S2R R0, SR_TID.X", thread=0) == {"R0": 0}
    assert after("S2R R0, SR_TID.X", thread=None) == {}


def test_a_wide_result_takes_all_its_registers() -> None:
    assert after("LDG.E.128 R0, [R8.64]", {f"R{i}": i for i in range(6)}) == {"R4": 4, "R5": 5}


# --- the path ------------------------------------------------------------------------------------------------------

LOOP = """
S2R R0, SR_TID.X
top:
DEPBAR.LE SB0, 0x0
{copies}
LDGDEPBAR // W0
MOV R5, RZ
compute:
HMMA.16816.F32 R8, R4, R6, R8
IADD3 R5, R5, 0x1, RZ
ISETP.NE.AND P0, PT, R5, {bound}, PT
@P0 BRA `(compute)
@P6 BRA `(top)
EXIT
"""


def path_of(copies: str, bound: str = "0x4") -> tuple[Function, SteadyPath]:
    function = assemble(LOOP.format(copies=copies, bound=bound))
    flow, work = flow_of(function), work_of(function)
    path = steady_path(function, flow, find_k_loops(function, flow, work)[0], work)
    assert path is not None
    return function, path


def executed(copies: str, bound: str = "0x4") -> list[str]:
    function, path = path_of(copies, bound)
    return [function.instructions[step.at].text for step in path.trip if step.active]


def test_a_constant_trip_count_is_written_out() -> None:
    assert executed("LDGSTS.E.128 [R1], [R2.64]").count("HMMA.16816.F32 R8, R4, R6, R8") == 4


def test_a_trip_count_from_memory_counts_once_and_is_reported() -> None:
    _, path = path_of("LDGSTS.E.128 [R1], [R2.64]", "R7")
    assert [rounds for _, rounds in path.open_loops] == [1]
    assert executed("LDGSTS.E.128 [R1], [R2.64]", "R7").count("HMMA.16816.F32 R8, R4, R6, R8") == 1


def test_the_guard_that_ends_the_copies_is_passed() -> None:
    skipped = "@P1 BRA `(skip)\nLDGSTS.E.128 [R1], [R2.64]\nskip:"
    assert "LDGSTS.E.128 [R1], [R2.64]" in executed(skipped)


def test_the_asynchronous_way_is_taken() -> None:
    """Beside a scalar loop with more instructions, and more loads."""
    scalar = "LDG.E.U8 R20, [R2.64] // W1\nSTS.U8 [R1], R20 // wait1\n" * 8
    ways = f"@P1 BRA `(wide)\n{scalar}BRA `(on)\nwide:\nLDGSTS.E.128 [R1], [R2.64]\non:"
    taken = executed(ways)
    assert "LDGSTS.E.128 [R1], [R2.64]" in taken
    assert "LDG.E.U8 R20, [R2.64]" not in taken


def test_one_predicate_decides_one_way() -> None:
    """What a branch has settled holds for the guards behind it."""
    text = executed("@P1 BRA `(skip)\nLDGSTS.E.128 [R1], [R2.64]\nskip:\n@P1 IADD3 R30, R30, 0x1, RZ\n@!P1 MOV R31, RZ")
    assert "@!P1 MOV R31, RZ" in text
    assert "@P1 IADD3 R30, R30, 0x1, RZ" not in text


def test_of_a_copy_and_its_zero_fill_one_is_executed() -> None:
    text = executed("@!P1 LDGSTS.E.128 [R1], [R2.64], !PT\n@P1 LDGSTS.E.128 [R1], [R2.64]")
    assert "@P1 LDGSTS.E.128 [R1], [R2.64]" in text
    assert "@!P1 LDGSTS.E.128 [R1], [R2.64], !PT" not in text


def test_copies_by_other_warps_are_found() -> None:
    """Thread 0 makes none: then any thread is followed."""
    text = executed("ISETP.LT.AND P1, PT, R0, 0x40, PT\n@P1 BRA `(skip)\nLDGSTS.E.128 [R1], [R2.64]\nskip:")
    assert "LDGSTS.E.128 [R1], [R2.64]" in text
