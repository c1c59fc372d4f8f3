"""Where a load phase that is taken as a whole is cut: at its stores, or at its loads."""

from __future__ import annotations

import pytest
from source_samples import read, rewritten
from split_kernels import MASK, SPLIT, WHOLE
from trap_kernels import BLOCK, gemm
from whole_kernels import ALL

from tilewright.kloop.kernel import TiledKernel
from tilewright.kloop.load_stream import LoadStream
from tilewright.rewrite.result import Remedy

AT_LOADS, AT_LOADS_EARLY = Remedy(at_loads=True), Remedy(at_loads=True, early_loads=True)


def streamed(text: str) -> tuple[TiledKernel, LoadStream]:
    kernel = read(text, BLOCK)
    assert isinstance(kernel, TiledKernel), kernel
    assert kernel.stream is not None
    return kernel, kernel.stream


def halves(text: str, remedy: Remedy = AT_LOADS, variant: str = "ldg_single") -> tuple[str, str]:
    """The text of what loads, and of what stores."""
    out = rewritten(streamed(text)[0], variant, remedy).text
    fetch, store, end = (out.index(x) for x in ("auto fetch_tile", "auto store_tile", "// Prologue"))
    return out[fetch:store], out[store:end]


@pytest.mark.parametrize("name", SPLIT)
def test_every_load_is_found(name: str) -> None:
    text, loads = SPLIT[name]
    split = streamed(text)[1].split
    assert split is not None
    assert len(split.loads) == loads


@pytest.mark.parametrize("name", WHOLE)
def test_what_cannot_be_cut_at_its_loads_stays_as_it_is(name: str) -> None:
    kernel, stream = streamed(WHOLE[name])
    assert stream.split is None
    for variant in ("ldg", "ldg_single"):
        assert rewritten(kernel, variant, AT_LOADS).text == rewritten(kernel, variant).text


def test_what_only_carries_loaded_values_has_no_other_cut() -> None:
    streams = [k.stream for t in ALL.values() if isinstance(k := read(t, BLOCK), TiledKernel) and k.stream is not None]
    assert len(streams) > 5
    assert all(s.split is None for s in streams)


@pytest.mark.parametrize("variant", ["ldg", "ldg_single", "cp_async"])
def test_other_variants_and_remedies_know_no_cut(variant: str) -> None:
    text, _ = SPLIT[MASK]
    kernel, _ = streamed(text)
    if variant == "cp_async":  # refused with the same words
        from source_samples import REWRITERS

        assert REWRITERS[variant](kernel, AT_LOADS) == REWRITERS[variant](kernel, Remedy())
        return
    assert "_loaded" not in rewritten(kernel, variant).text
    assert "_loaded" in rewritten(kernel, variant, AT_LOADS).text


def test_the_mask_waits_behind_the_compute_phase() -> None:
    text, _ = SPLIT["masked pairs in a copy loop"]
    fetch, store = halves(text)
    assert "lanes[j]" not in fetch
    assert "As[" not in fetch
    assert "A_loaded[i] = A[at * K + k0 + c];" in fetch
    assert "if (k0 + c + 1 < K) A_loaded_2[i] = A[at * K + k0 + c + 1];" in fetch
    assert "v.y = k0 + c + 1 < K ? A_loaded_2[i] : 3.0f;" in store
    assert "lanes[j] = 0.0f;" in store
    assert "// Whole vectors; what lies past the edge is masked below." in store
    assert "A[at" not in store


def test_several_loads_of_one_statement_keep_their_guards() -> None:
    text, _ = SPLIT["two loads in one statement"]
    fetch, _ = halves(text)
    assert "if (row < M && k0 + tx < K) A_loaded = A[row * K + k0 + tx];\n" in fetch
    assert "if ((row < M && k0 + tx < K) && (tx > 3)) A_loaded_3 = A[row * K + k0];\n" in fetch


def test_an_else_stays_with_its_if() -> None:
    text, _ = SPLIT["a load without braces, in front of an else"]
    fetch, store = halves(text)
    assert "zeros" not in fetch
    assert "else zeros += 1;" in store


def test_what_only_the_stores_advance_needs_no_copy() -> None:
    text, _ = SPLIT["a pointer that moves, an array from outside"]
    out = rewritten(streamed(text)[0], "ldg", AT_LOADS).text
    assert "auto pa_store = pa;" in out
    assert "auto done_store = done;" in out
    assert "keep_store" not in out


def test_early_loads_clear_what_a_guard_may_skip() -> None:
    text, _ = SPLIT["masked pairs in a copy loop"]
    fetch, _ = halves(text, AT_LOADS_EARLY)
    assert "for (float &value : A_loaded) value = 0;" in fetch
    assert "B_loaded = 0;" in fetch
    assert fetch.index("B_loaded = 0;") < fetch.index("A[at")
    vector, _ = halves(SPLIT[MASK][0], AT_LOADS_EARLY)
    assert "A_loaded = float4{};" in vector


def test_what_only_loads_name_stays_with_them() -> None:
    """Bumps of the compute phase move to the loads; the stores advance copies of what they name too."""
    out = rewritten(
        streamed(SPLIT["a pointer and an index that move behind the compute phase"][0])[0], "ldg", AT_LOADS
    ).text
    assert "auto done_store = done;" in out
    assert "pa_store" not in out
    by_index = (
        "float v = A[row < M ? k0 * 2 % 7 : 0];\n        v *= 2.0f;\n        As[ty][tx] = v;\n        Bs[ty][tx] = v;"
    )
    once = rewritten(streamed(gemm(load=by_index))[0], "ldg", AT_LOADS).text
    assert "fetch_tile(k0_next);" in once
    assert "store_tile(stage ^ 1);" in once
