"""The formulas of peers, on the host: against the families' references, and what a wrong one comes to."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.ladder.arena import Arena
from tilewright.ladder.comparing import Contender
from tilewright.ladder.family import Family, load_families, load_family
from tilewright.ladder.peers import Peer, peers_of
from tilewright.ladder.running import reference_of
from tilewright.ladder.specs import rung_spec

torch = pytest.importorskip("torch")
FAMILIES = load_families()
STREAM = SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=0))


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


def test_a_product_whose_parts_are_added_in_halves_passes_as_a_peer_and_not_as_a_rung() -> None:
    family = load_family("hgemm")
    sizes = {"M": 64, "N": 64, "K": 2048, "ld_a": 2048, "ld_b": 64}
    arena = Arena(torch, family, "bfloat16", sizes, "cpu")

    def in_parts(c: Any) -> tuple[Any]:
        a, b = (x.float() for x in c.inputs[:2])
        halves = [(a[:, k : k + 512] @ b[k : k + 512]).bfloat16() for k in range(0, 2048, 512)]
        return (((halves[0] + halves[1]) + (halves[2] + halves[3])),)

    peer = arena.peer(Peer("in parts", in_parts))
    assert arena.check(peer) == ""
    assert "elements of c are wrong" in arena.check(replace(peer, kind="op"))
    off = arena.peer(Peer("one term too few", lambda c: (c.inputs[0][:, 1:] @ c.inputs[1][1:],)))
    assert "elements of c are wrong" in arena.check(off)


def test_what_nobody_wrote_is_found() -> None:
    arena = arena_of(load_family("rmsnorm"), "bfloat16", "ragged")
    idle = replace(arena.peer(peers_of("rmsnorm")[0]), call=lambda: None, outputs=lambda _: arena.made())
    for view, result in zip(arena.made(), arena.exact(), strict=True):
        view.copy_(result)
    assert arena.check(idle) == ""
    assert "elements of y are wrong: nan" in arena.check(replace(idle, prepare=arena.poison))


def as_a_rung(arena: Arena, edit: Any = lambda _: None) -> Contender:
    """In a rung's place: the results in float64, rounded into the arena's own outputs, and then edited."""

    def call() -> None:
        for view, result in zip(arena.made(), arena.exact(), strict=True):
            view.copy_(result)
        edit(arena.made()[-1])

    return Contender("rung", "rung", call, lambda _: arena.made(), arena.poison)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_one_wrong_element_or_row_is_found(family: Family) -> None:
    """As large sizes are checked on a card, here with results that are known to be right, and with mutants of them."""
    for dtype in family.dtypes:
        arena = Arena(torch, family, dtype, family.sizes["ragged"], "cpu", guard_bytes=64)
        right = as_a_rung(arena)
        assert (arena.check(right) or arena.strayed()) == ""
        (*_, view), name = arena.made(), arena.outputs[-1].name
        need, rms = arena._held(len(arena.outputs) - 1, view)
        allowed = arena._tolerance(right, view, rms)
        place = tuple(extent // 2 for extent in view.shape)
        far = (
            float(need[place])
            + 4 * (allowed.absolute + allowed.relative * abs(float(need[place])))
            + 1.0 * family.exact
        )

        def one_off(view: Any, place: Any = place, far: float = far) -> None:
            view[place] = far

        def not_written(view: Any) -> None:
            view[-1:] = torch.full_like(view[-1:], float("nan") if view.is_floating_point() else -1)

        for edit in (one_off, not_written) if view.ndim else (one_off,):
            assert f"elements of {name} are wrong" in arena.check(as_a_rung(arena, edit)), (dtype, edit)


def test_who_writes_behind_an_array_is_found() -> None:
    arena = Arena(torch, load_family("transpose"), "float16", {"M": 33, "N": 7, "ld_x": 8}, "cpu", guard_bytes=64)
    assert (arena.check(as_a_rung(arena)) or arena.strayed()) == ""
    torch.as_strided(arena.storage("y"), (1,), (1,), 33 * 7)[0] = 1.0
    assert arena.strayed() == "it writes behind y"


def test_an_operator_gets_sizes_that_no_input_says() -> None:
    seen: list[Any] = []
    arena = arena_of(load_family("histogram"), "int32", "ragged")
    arena.op(lambda *given: seen.extend(given)).call()
    assert seen[1:] == [77]


def test_a_rungs_own_arrays_stay_as_long_as_it_may_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch gave the ticket of a reduction to the next tensor that asked: the last block then never came."""
    family = load_family("reduce")
    sizes = {"N": 1 << 20, "stride_x": 1}
    rung = family.rung("07_last_block").at(sizes, "bfloat16")
    constants = {"TW_T_BYTES": 2, **rung.defines}
    compiled = SimpleNamespace(
        spec=rung_spec(family, rung, "bfloat16"),
        constants=constants,
        programs=(SimpleNamespace(ptx="", kernel="reduce"),),
        artifacts=(),
    )
    executor = SimpleNamespace(kernel=lambda *_: SimpleNamespace(handle=0))
    pointers: list[list[Any]] = []
    monkeypatch.setattr("tilewright.ladder.arena.launch_kernel", lambda *words: pointers.append(words[-2]))
    arena = Arena(torch, family, "bfloat16", sizes, "cpu")
    made: list[weakref.ref[Any]] = []

    def zeros(*words: Any, **names: Any) -> Any:
        made.append(weakref.ref(kept := torch.zeros(*words, **names)))
        return kept

    arena.torch = SimpleNamespace(zeros=zeros, uint8=torch.uint8, cuda=STREAM)
    contender = arena.rung(compiled, executor)  # type: ignore[arg-type]
    gc.collect()
    contender.call()
    assert [reference() is not None for reference in made] == [True, True]
    assert len(pointers) == 1
