"""One thread followed through instructions: what they compute, and what stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sass_inputs.assemble import assemble

from tilewright.sass.flow import flow_of
from tilewright.sass.thread import Launch, Thread
from tilewright.sass.trace import trace_of
from tilewright.sass.words import MASK, compute

WORDS = st.integers(0, MASK)


def after(body: str, arch: str = "sm_90a", **registers: int) -> dict[str, int]:
    """The registers and predicates after some instructions."""
    thread = Thread(arch, Launch(33))
    thread.registers |= registers
    for instruction in assemble(f"{body}\nEXIT").instructions[:-1]:
        thread.step(instruction)
    return thread.registers


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS, WORDS, st.integers(0, 255))
def test_a_truth_table_bit_by_bit(a: int, b: int, c: int, table: int) -> None:
    expected = sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))
    assert compute("LOP3", frozenset(), [a, b, c, table], 0) == expected
    unknown = compute("LOP3", frozenset(), [a, None, c, table], 0)
    assert unknown in (None, expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 1 << 20))
def test_an_integer_division_as_it_is_compiled(n: int, d: int) -> None:
    """The estimate of 1/d from floating point, its correction, the quotient, and up to two corrections of that."""
    body = """
    I2F.U32.RP R2, R11
    MUFU.RCP R2, R2
    VIADD R3, R2, 0xffffffe
    F2I.FTZ.U32.TRUNC.NTZ R3, R3
    MOV R2, RZ
    IMAD.MOV R4, RZ, RZ, -R3
    IMAD R5, R4, R11, RZ
    IMAD.HI.U32 R3, R3, R5, R2
    IMAD.HI.U32 R6, R3, R10, RZ
    IMAD.MOV R7, RZ, RZ, -R6
    IMAD R8, R11, R7, R10
    ISETP.GE.U32.AND P0, PT, R8, R11, PT
    @P0 IMAD.IADD R8, R8, 0x1, -R11
    @P0 VIADD R6, R6, 0x1
    ISETP.GE.U32.AND P1, PT, R8, R11, PT
    @P1 VIADD R6, R6, 0x1
    """
    assert after(body, R10=n, R11=d)["R6"] == n // d


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ("S2R R0, SR_TID.X", "R0", 33),
        ("S2UR UR4, SR_CgaCtaId", "UR4", 0),
        ("S2R R0, SR_LANEID", "R0", 1),
        ("LDC R0, c[0x0][0x210]", "R0", 1 << 14),
        ("LDC R0, c[0x0][0x0]", "R0", 128),
        ("LDC R0, c[0x4][0x0]", "R0", None),
        ("LDG.E R0, desc[UR4][R2.64]", "R0", 1 << 14),
        ("LDS R0, [R2]", "R0", None),
        ("MOV R1, 0x40\nMOV R2, 0x7\nSTL [R1+0x8], R2\nMOV R2, RZ\nLDL R3, [R1+0x8]", "R3", 7),
        ("MOV R2, 0x5\nSHF.L.U32 R0, R2, 0x1f, RZ", "R0", 1 << 31),
        ("MOV R2, 0x80000000\nSHF.R.S32.HI R0, RZ, 0x1f, R2", "R0", MASK),
        ("MOV R2, -0x5\nLEA.HI R0, R2, R2, RZ, 0x1", "R0", MASK - 3),
        ("MOV R2, 0x1234ab80\nPRMT R0, R2, 0x9910, RZ", "R0", 0xFFFFAB80),
        ("MOV R2, -0x1\nIADD3 R0, P0, R2, 0x1, RZ\nIADD3.X R4, RZ, RZ, RZ, P0, !PT", "R4", 1),
        ("MOV R2, 0x3\nIMAD.WIDE.U32 R4, R2, -0x55555555, RZ", "R5", 2),
        ("MOV R2, 0x21\nLOP3.LUT P1, RZ, R2, 0x1f, RZ, 0xc0, !PT\nVOTEU.ALL UP0, P1", "UP0", 1),
        ("PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x80", "P0", 0),
        ("ISETP.EQ.AND P0, P1, RZ, 0x1, PT\nP2R R0, PR, RZ, 0x3", "R0", 2),
        ("MOV R2, -0x7\nVIMNMX R0, R2, 0x1, !PT", "R0", 1),
        ("MOV R2, -0x7\nVIMNMX.U32 R0, R2, 0x1, !PT", "R0", MASK - 6),
        ("FADD R2, R3, R4\nIADD3 R0, R2, 0x1, RZ", "R0", None),
    ],
)  # fmt: skip
def test_instructions(body: str, name: str, value: int | None) -> None:
    assert after(body).get(name) == value


def test_a_guard_that_is_unknown_makes_the_result_unknown() -> None:
    assert "R0" not in after("MOV R0, 0x1\n@P3 MOV R0, 0x2")
    assert after("MOV R0, 0x1\n@P3 MOV R0, 0x1")["R0"] == 1


def test_branches_follow_what_was_computed_and_guesses_are_told() -> None:
    loop = "MOV R0, RZ\ntop:\nVIADD R0, R0, 0x1\nISETP.NE.AND P0, PT, R0, 0x5, PT\n@P0 BRA `(top)\nEXIT"
    function = assemble(loop)
    trace = trace_of(function, flow_of(function), Launch(), frozenset())
    assert [step.at for step in trace.steps].count(1) == 5
    assert not trace.guessed
    unknown = assemble(loop.replace("0x5", "R9").replace("MOV R0, RZ", "LDS R9, [RZ]"))
    trace = trace_of(unknown, flow_of(unknown), Launch(), frozenset())
    assert trace.guessed == {3}
    assert trace.end == "exit"
