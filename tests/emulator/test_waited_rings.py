"""The control of a ring on mbarriers: it waits for the tile just issued, computes the same, and overlaps nothing."""

from __future__ import annotations

import pytest
from mbarrier_harness import check, opened, rewritten, tiled

from tilewright.build.artifact import Artifact
from tilewright.kloop.kernel import Refusal
from tilewright.rewrite import ldg
from tilewright.rewrite.controls import waited
from tilewright.rewrite.result import Remedy
from tilewright.sass.listing import disassemble
from tilewright.sass.proof import OverlapProof, prove

SIZES = {f"{t} tiles": {"M": 20, "N": 24, "K": 16 * t + 4} for t in (0, 1, 4)} | {"odd": {"M": 17, "N": 21, "K": 37}}


def proof_of(name: str, text: str) -> OverlapProof:
    compiler = opened(name).compiler
    built = compiler.build(text)
    assert isinstance(built, Artifact), built
    function = disassemble(built.cubin, compiler.settings).function(built.kernel)
    assert function is not None
    return prove(function)


@pytest.mark.parametrize(("variant", "stages"), [("bulk", 2), ("tma", 3)])
def test_the_control_loses_the_overlap_and_nothing_else(variant: str, stages: int) -> None:
    written = rewritten("square", variant, stages)
    twin = waited(written)
    assert twin is not None
    assert len(twin.splitlines()) == len(written.text.splitlines()) + 1
    mine, its = proof_of("square", written.text), proof_of("square", twin)
    assert (mine.verdict, mine.tiles_in_flight) == ("overlap", stages - 1)
    assert (its.verdict, its.tiles_in_flight) == ("no_overlap", 0)
    assert (its.math_kind, its.mma_per_tile, its.copies) == (mine.math_kind, mine.mma_per_tile, mine.copies)
    found = check("square", twin, written.launch, SIZES)
    assert found.is_clean, found


def test_the_control_of_early_loads_stores_behind_the_barrier() -> None:
    """In front of it another warp may still read the stage that is filled: an H200 gave wrong values for that."""
    kernel = tiled("square")
    written = ldg.rewrite(kernel, False, 48 << 10, Remedy(early_loads=True))
    assert not isinstance(written, Refusal)
    twin = waited(written)
    assert twin is not None
    found = check("square", twin, written.launch, SIZES)
    assert found.is_clean, found
    lines = [line.strip() for line in twin.splitlines()]
    store = next(i for i, line in enumerate(lines) if line.startswith("if (has_next) store_tile("))
    assert lines[store - 1].startswith("__syncthreads();"), lines[store - 3 : store + 1]
    racy = [*lines[: store - 1], lines[store], lines[store - 1], *lines[store + 1 :]]
    assert not check("square", "\n".join(racy), written.launch, SIZES).is_clean
