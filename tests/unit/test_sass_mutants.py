"""Compiled kernels with one thing changed: the verdict must follow, and only for that reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sass_inputs.nvrtc import listing_of

from tilewright.sass.listing import Function, Instruction
from tilewright.sass.proof import OverlapProof, prove

Change = Callable[[Instruction], Instruction]


def kernel(name: str, engine: str = "half.cu", arch: str = "sm_86") -> Function:
    function = listing_of(engine, arch).function(name)
    assert function is not None
    return function


def mutated(function: Function, change: Change) -> OverlapProof:
    changed = tuple(change(instruction) for instruction in function.instructions)
    assert changed != function.instructions, "the mutation changed nothing"
    return prove(replace(function, instructions=changed))


def depbar(left: int) -> Change:
    def change(instruction: Instruction) -> Instruction:
        if instruction.opcode != "DEPBAR":
            return instruction
        return replace(instruction, operands=f"SB0, {left:#x}", text=f"DEPBAR.LE SB0, {left:#x}")

    return change


def off(opcode: str) -> Change:
    return lambda i: replace(i, predicate="@!PT") if i.opcode == opcode else i


def nop(opcode: str) -> Change:
    return lambda i: replace(i, opcode="NOP", modifiers=(), operands="", text="NOP") if i.opcode == opcode else i


def found(proof: OverlapProof) -> tuple[str, int]:
    return proof.verdict, proof.tiles_in_flight


@pytest.mark.parametrize(
    ("name", "left", "expected"),
    [
        ("waits_s3_n1", 0, ("no_overlap", 0)),
        ("waits_s3_n0", 1, ("overlap", 1)),
        ("waits_s4_n2", 1, ("overlap", 1)),
        ("waits_s4_n0", 3, ("overlap", 3)),
        ("ring_s3", 0, ("overlap", 1)),  # the copy comes after the wait: it is in flight whatever the number
        ("after_s3", 0, ("no_overlap", 0)),
        ("after_s2", 1, ("overlap", 1)),
    ],
)
def test_the_number_of_the_wait_decides(name: str, left: int, expected: tuple[str, int]) -> None:
    assert found(mutated(kernel(name), depbar(left))) == expected


def test_an_early_wait_on_the_loads_scoreboard_ends_the_overlap() -> None:
    function = kernel("ldg_double")
    assert found(prove(function)) == ("overlap", 1)
    boards = {i.write_barrier for i in function.instructions if i.opcode == "LDG"}
    every = sum(1 << board for board in boards if board is not None)
    seen: list[int] = []

    def wait_at_barrier(instruction: Instruction) -> Instruction:
        if instruction.opcode != "BAR":
            return instruction
        seen.append(instruction.address)
        return replace(instruction, wait_mask=every)

    assert found(mutated(function, wait_at_barrier)) == ("no_overlap", 0)


def test_a_wait_on_another_scoreboard_changes_nothing() -> None:
    function = kernel("ldg_double")
    used = {i.write_barrier for i in function.instructions if i.opcode == "LDG"}
    free = next(board for board in range(6) if board not in used)
    change: Change = lambda i: replace(i, wait_mask=i.wait_mask | 1 << free) if i.opcode == "BAR" else i  # noqa: E731
    assert found(mutated(function, change)) == ("overlap", 1)


def test_a_wait_mask_on_the_groups_scoreboard_retires_them_all() -> None:
    """Any instruction may wait for SB0, not only DEPBAR."""
    change: Change = lambda i: replace(i, wait_mask=1) if i.opcode == "LDGDEPBAR" else i  # noqa: E731
    assert found(mutated(kernel("ring_s3"), change)) == ("overlap", 1)
    math: Change = lambda i: replace(i, wait_mask=i.wait_mask | 1) if i.opcode == "HMMA" else i  # noqa: E731
    assert found(mutated(kernel("ring_s3"), math)) == ("no_overlap", 0)


def test_barriers_are_never_decisive() -> None:
    assert found(mutated(kernel("waits_s3_n0"), nop("BAR"))) == ("no_overlap", 0)
    assert found(mutated(kernel("ring_s3"), nop("BAR"))) == ("overlap", 2)


def test_without_waits_nothing_is_claimed() -> None:
    proof = mutated(kernel("ring_s3"), nop("DEPBAR"))
    assert proof.verdict == "unknown"
    assert "waits for the copies" in proof.notes[0]


def test_without_commits_nothing_is_claimed() -> None:
    assert mutated(kernel("ring_s3"), nop("LDGDEPBAR")).verdict == "unknown"


def test_copies_that_are_predicated_off_count_for_nothing() -> None:
    proof = mutated(kernel("ring_s3"), off("LDGSTS"))
    assert proof.verdict == "unknown"
    assert "K-loop" in proof.notes[0]


def test_loads_that_do_not_reach_shared_memory_are_no_copies() -> None:
    proof = mutated(kernel("ldg_double"), off("STS"))
    assert proof.verdict == "unknown"


def test_math_that_is_predicated_off_counts_for_nothing() -> None:
    proof = mutated(kernel("ring_s3"), off("HMMA"))
    assert proof.math_kind != "HMMA"


def test_lost_math_shows() -> None:
    """Half of the math gone: the overlap stays, the count per tile tells."""
    kept: list[bool] = []

    def thin(instruction: Instruction) -> Instruction:
        if instruction.opcode != "HMMA":
            return instruction
        kept.append(len(kept) % 2 == 0)
        return instruction if kept[-1] else replace(instruction, predicate="@!PT")

    assert mutated(kernel("ring_s3"), thin).mma_per_tile == 8
