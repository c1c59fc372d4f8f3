"""A ring whose registers cost a block per SM: tried again with registers capped, taken only where that is free."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.build.artifact import Artifact, CompileFailure, Resources
from tilewright.kloop.kernel import Refusal
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.sass.proof import OverlapProof
from tilewright.workflow import variants
from tilewright.workflow.variants import Attempt

RING = "__global__ void f(float *a) { ring(a); }\n"
CAPPED = "__global__ __launch_bounds__(256, 2) void f(float *a) { ring(a); }\n"
PROOF = OverlapProof("overlap", tiles_in_flight=1, mma_per_tile=64)


def artifact(registers: int, spill_bytes: int = 0) -> Artifact:
    return SimpleNamespace(resources=Resources(registers, 0, spill_bytes, 0))  # type: ignore[return-value]


def outcome(
    monkeypatch: pytest.MonkeyPatch,
    capped: Artifact | CompileFailure,
    bounds: str | Refusal = CAPPED,
    proof: OverlapProof = PROOF,
) -> tuple[Attempt, list[str]]:
    """What becomes of a ring of 134 registers that leaves 1 block per SM instead of 2; 128 registers leave both."""

    def lost(built: Any, _change: object) -> tuple[int, int] | None:
        return (1, 2) if built.resources.registers > 128 else None

    bench: Any = SimpleNamespace(
        lost_to_registers=lost,
        bounded=lambda _text, _blocks, _change: bounds,
        compiler=SimpleNamespace(build=lambda _text: capped),
        opened=SimpleNamespace(source=SimpleNamespace(file="f.cu", text=b"before\n")),
        math_for=lambda _proof: 64,
    )
    monkeypatch.setattr(variants, "proof_of", lambda *_: proof)
    written = RewrittenSource("cp_async", 2, RING, "", 1, remedy=Remedy(restore_unroll=True))
    return variants._without_losing_blocks(Attempt(written, artifact(134), PROOF), bench)


def test_a_cap_that_costs_nothing_is_taken_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    best, told = outcome(monkeypatch, artifact(128))
    assert best.source.text == CAPPED
    assert best.source.remedy == Remedy(restore_unroll=True, cap_registers=2)
    assert "__launch_bounds__ for 2 blocks per SM" in best.source.remedy.text()
    assert "registers capped" in best.source.diff
    assert best.artifact.resources.registers == 128
    assert len(told) == 1
    assert "128 registers, overlap" in told[0]


@pytest.mark.parametrize(
    ("capped", "proof", "what"),
    [
        (artifact(128, 36), PROOF, "36 bytes spilled"),
        (artifact(130), PROOF, "130 registers"),  # the block is lost all the same
        (artifact(128), OverlapProof("no_overlap", mma_per_tile=64), "no_overlap"),
        (artifact(128), OverlapProof("overlap", tiles_in_flight=1, mma_per_tile=48), "48 math per tile"),
    ],
)
def test_a_cap_that_costs_something_is_only_recorded(
    monkeypatch: pytest.MonkeyPatch, capped: Artifact, proof: OverlapProof, what: str
) -> None:
    best, told = outcome(monkeypatch, capped, proof=proof)
    assert best.source.text == RING
    assert best.artifact.resources.registers == 134
    assert len(told) == 1
    assert what in told[0]


def test_what_cannot_be_capped_or_built_is_only_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    best, told = outcome(monkeypatch, artifact(128), Refusal("not_understood", "the macro `K` holds the bounds"))
    assert (best.source.text, told) == (RING, ["registers cannot be capped: the macro `K` holds the bounds"])


def test_a_ring_that_loses_no_block_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench: Any = SimpleNamespace(lost_to_registers=lambda *_: None)
    whole = Attempt(RewrittenSource("ldg", 2, RING, "", 1), artifact(96), PROOF)
    assert variants._without_losing_blocks(whole, bench) == (whole, [])
