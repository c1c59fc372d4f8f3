"""Loads that reach shared memory: dequantised on the way, or through a generic pointer."""

from __future__ import annotations

import pytest
from sass_inputs.assemble import assemble
from sass_inputs.nvrtc import listing_of

from tilewright.sass.proof import OverlapProof, prove

COMPILED = (("half.cu", "sm_86"), ("half.cu", "sm_120a"), ("float.cu", "sm_90a"))


def proof_of(engine: str, arch: str, kernel: str) -> OverlapProof:
    function = listing_of(engine, arch, "CHOICES").function(kernel)
    assert function is not None
    return prove(function)


@pytest.mark.parametrize(("engine", "arch"), COMPILED)
@pytest.mark.parametrize("kernel", ["half_dequantised", "half_generic"])
def test_the_synchronous_part_of_a_tile_counts(engine: str, arch: str, kernel: str) -> None:
    proof = proof_of(engine, arch, kernel)
    through_registers = [row for row in proof.copies if row.opcode in ("LDG", "LD")]
    assert [(row.width_bytes, row.count) for row in through_registers] == [(16, 1)]
    assert proof.verdict == "overlap"
    assert proof.mean_in_flight < 0.85
    assert any(note.startswith("Part of a tile: 0.") for note in proof.notes)


def test_dequantising_is_no_math_of_the_tile() -> None:
    assert proof_of("float.cu", "sm_90a", "half_dequantised").mma_per_tile == 256


SHARED = "LDS.128 R4, [R3] // W5\n"
MATH = "FFMA R8, R4, R5, R8\n" * 8
STORE = "STS.128 [R1], R20 // wait2\nBAR.SYNC 0x0\n"


def proof(body: str) -> OverlapProof:
    return prove(assemble(f"top:\n{body}\n@P6 BRA `(top)\nEXIT"))


@pytest.mark.parametrize("load", ["LDG.E.128", "LD.E.128"])
@pytest.mark.parametrize("scale", ["", "FFMA R20, R20, R40, 0.25 // wait2\n", "FFMA R20, R20, R40, R41 // wait2\n"])
def test_loads_are_followed(load: str, scale: str) -> None:
    fetch = f"{load} R20, [R2.64] // W2\n"
    after = proof(f"{fetch}{SHARED}{MATH}{scale}{STORE}")
    assert (after.verdict, after.tiles_in_flight, after.mma_per_tile) == ("overlap", 1, 8)
    before = proof(f"{fetch}{scale}{STORE}{SHARED}{MATH}")
    assert (before.verdict, before.mma_per_tile) == ("no_overlap", 8)


def test_a_running_sum_is_no_copy() -> None:
    body = f"LDG.E R20, [R2.64] // W2\n{SHARED}{MATH}FFMA R24, R20, R40, R24 // wait2\nSTS [R1], R24\nBAR.SYNC 0x0\n"
    assert proof(body).verdict == "unknown"
    assert proof(body.replace("R40, R24", "R40, R25")).verdict == "overlap"
