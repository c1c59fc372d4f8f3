"""The best rung of every large set of sizes in every element type, against float64 on the card itself.

Inputs are drawn there, and the family's formula in float64 (``ladder/peers.py``; at small sizes it says what the NumPy
references say) is held against the result with the tolerance that rungs have everywhere. Behind each array lies what is
neither a number to compute with nor to be written over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.gpu.device import GpuInfo
from tilewright.gpu.executor import GpuExecutor
from tilewright.ladder.arena import Arena
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import Family, load_families
from tilewright.ladder.launching import _runs, arch_of
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # what PyTorch warns of as it works is no error of ours
    pytest.mark.skipif(os.environ.get("TILEWRIGHT_LADDER_HUGE") != "1", reason="set TILEWRIGHT_LADDER_HUGE=1: 15 GB"),
]
FAMILIES = load_families()
CASES = [(family, dtype) for family in FAMILIES for dtype in family.dtypes]
MOST_BYTES = 34e9  # of the card, for one process: more is an error, not other processes' trouble
GUARD_BYTES = 1 << 16


@pytest.fixture(scope="module")
def torch(card: GpuInfo) -> Iterator[Any]:
    """The module, on a stream of its own, as `ladder bench` has it."""
    torch = pytest.importorskip("torch")
    torch.cuda.set_per_process_memory_fraction(min(1.0, MOST_BYTES / card.memory_bytes))
    with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
        yield torch


@pytest.mark.parametrize(("family", "dtype"), CASES, ids=lambda x: x.name if isinstance(x, Family) else x)
def test_the_best_rungs_at_large_sizes(
    family: Family, dtype: str, torch: Any, executor: GpuExecutor, card: GpuInfo
) -> None:
    wrong = []
    for size in (name for name in family.sizes if name not in family.emulated_sets()):
        sizes = family.sizes[size]
        rung = family.best(sizes, dtype, lambda arch: _runs(arch, card))
        compiled = compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), arch_of(rung, card))
        arena = Arena(torch, family, dtype, sizes, guard_bytes=GUARD_BYTES)
        why = arena.check(arena.rung(compiled, executor)) or arena.strayed()
        del arena  # before the next one
        wrong += [f"{size}, {rung.name}: {why}"] if why else []
    torch.cuda.empty_cache()
    assert not wrong, wrong
