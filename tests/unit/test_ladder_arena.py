"""The formulas of peers, on the host: against the families' references, and what a wrong one comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.ladder.arena import Arena
from tilewright.ladder.family import Family, load_families, load_family
from tilewright.ladder.peers import Peer, peers_of
from tilewright.ladder.running import reference_of

torch = pytest.importorskip("torch")
FAMILIES = load_families()


def arena_of(family: Family, dtype: str, size: str) -> Arena:
    return Arena(torch, family, dtype, family.sizes[size], "cpu")


def held(tensor: Any) -> np.ndarray:
    """As NumPy has it; bfloat16 through its bits."""
    import ml_dtypes

    return (
        tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_formulas_say_what_the_references_say(family: Family) -> None:
    for dtype in family.dtypes:
        for size in family.emulated_sets():
            arena = arena_of(family, dtype, size)
            inputs = {b.name: held(arena.storage(b.name)) for b in arena.launch.buffers}
            expected = reference_of(family).compute(arena.launch, inputs)
            for need, got in zip(expected.values(), arena.exact(), strict=True):
                np.testing.assert_allclose(got.numpy(), np.asarray(need, float), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_what_pytorch_computes_passes(family: Family) -> None:
    arena = arena_of(family, family.dtypes[-1], "ragged")
    for peer in peers_of(family.name):
        try:
            assert arena.check(arena.peer(peer)) == ""
        except (NotImplementedError, RuntimeError):
            assert peer.name == "torch.histc"  # of integers: on a card only


def test_wrong_formulas_are_found() -> None:
    family = load_family("softmax")
    arena = arena_of(family, "float16", "ragged")
    sharp = Peer("sharp", lambda c: (torch.softmax(c.inputs[0] * 1.02, -1),))
    assert "elements of y are wrong" in arena.check(arena.peer(sharp))
    twice = Peer("twice", lambda c: (c.inputs[0], c.inputs[0]))
    assert arena.check(arena.peer(twice)) == "it gives 2 arrays instead of 1"


def test_what_nobody_wrote_is_found() -> None:
    arena = arena_of(load_family("rmsnorm"), "bfloat16", "ragged")
    idle = replace(arena.peer(peers_of("rmsnorm")[0]), call=lambda: None, outputs=lambda _: arena.made())
    for view, result in zip(arena.made(), arena.exact(), strict=True):
        view.copy_(result)
    assert arena.check(idle) == ""
    assert "elements of y are wrong: nan" in arena.check(replace(idle, prepare=arena.poison))


def test_an_operator_gets_sizes_that_no_input_says() -> None:
    seen: list[Any] = []
    arena = arena_of(load_family("histogram"), "int32", "ragged")
    arena.op(lambda *given: seen.extend(given)).call()
    assert seen[1:] == [77]
