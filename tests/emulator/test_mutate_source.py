"""Broken twins of what the rewriter writes: every kind is there, each is another text, each compiles."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.errors import TilewrightError
from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.mutate.source_mutants import SourceMutant, source_mutants
from tilewright.rewrite import cp_async, ldg
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.settings import Settings
from tilewright.source.device_view import device_view
from tilewright.source.reader import open_kernel, read_source

EXAMPLES = Path(__file__).parents[2] / "examples"
THREADS = {"igemm_wmma": 128, "hgemm_mma": 256, "sgemm_float4": 256, "hgemm_wmma": 128}
LIMIT = 48 * 1024
TRIPS = {"wrong_tile", "epilogue_skipped", "one_tile_too_many"}
REGISTERS = TRIPS | {"barrier_removed", "prologue_store_dropped", "store_dropped"}
RING = TRIPS | {
    "wait_removed", "wait_one_group_short", "commit_and_wait_swapped", "commit_before_copy", "barrier_removed",
    "barrier_before_wait", "wrong_next_buffer", "wrong_last_buffer", "prologue_commit_dropped",
}  # fmt: skip
TWO_BUFFERS = REGISTERS | {"wrong_next_buffer", "wrong_last_buffer", "stage_not_toggled"}
BEHIND_STORES = {"prologue_barrier_removed", "barrier_before_store"}
EARLY = Remedy(unroll_one=True, early_loads=True, fence=True)
Rewriter = Callable[[TiledKernel], RewrittenSource | Refusal]
VARIANTS: dict[str, tuple[Rewriter, set[str]]] = {
    "ldg": (lambda k: ldg.rewrite(k, False, LIMIT, Remedy()), TWO_BUFFERS | BEHIND_STORES),
    "ldg early": (lambda k: ldg.rewrite(k, False, LIMIT, EARLY), TWO_BUFFERS),
    "ldg_single": (
        lambda k: ldg.rewrite(k, True, LIMIT, Remedy()), REGISTERS | {"free_barrier_removed", "store_before_barrier"}
    ),
    "ldg_single early": (
        lambda k: ldg.rewrite(k, True, LIMIT, EARLY), REGISTERS | {"free_barrier_removed", "store_before_barrier"}
    ),
    "cp_async2": (lambda k: cp_async.rewrite(k, 2, LIMIT, Remedy()), RING),
    "cp_async3": (lambda k: cp_async.rewrite(k, 3, LIMIT, Remedy()), RING),
    "cp_async4": (lambda k: cp_async.rewrite(k, 4, LIMIT, Remedy(restore_unroll=True, fence=True)), RING),
}  # fmt: skip
CASES = [(name, variant) for name in THREADS for variant in VARIANTS]
# Compiling is slow: each example with one variant, so that every variant is compiled with some example.
COMPILED = [
    ("igemm_wmma", "cp_async3"), ("hgemm_mma", "ldg_single"), ("sgemm_float4", "ldg early"),
    ("sgemm_float4", "cp_async2"), ("hgemm_wmma", "ldg"),
]  # fmt: skip


@cache
def example(name: str) -> TiledKernel:
    source = read_source((EXAMPLES / f"{name}.cu").read_bytes(), f"{name}.cu")
    kernel = analyse(open_kernel(source, source.kernel(None), {}), (THREADS[name], 1, 1))
    assert isinstance(kernel, TiledKernel), kernel
    return kernel


def written(name: str, variant: str) -> str:
    result = VARIANTS[variant][0](example(name))
    assert isinstance(result, RewrittenSource), result
    return result.text


def compiled(name: str, text: str) -> Artifact | CompileFailure:
    view = device_view(text, EXAMPLES / f"{name}.cu")
    request = BuildRequest(view.text, f"{name}.cu", "sm_80", name, headers=view.headers)
    return build(request, Settings.from_environment())


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_every_kind_is_there_and_each_is_another_text(name: str, variant: str) -> None:
    source = written(name, variant)
    mutants = source_mutants(source)
    names = [m.name for m in mutants]
    assert set(names) == VARIANTS[variant][1]
    assert len({source, *(m.text for m in mutants)}) == len(mutants) + 1
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "variant"), COMPILED)
def test_each_compiles_to_other_code(name: str, variant: str) -> None:
    source = written(name, variant)
    whole = compiled(name, source)
    assert isinstance(whole, Artifact)

    def one(mutant: SourceMutant) -> Artifact | CompileFailure:
        return compiled(name, mutant.text)

    mutants = source_mutants(source)
    with ThreadPoolExecutor(2) as pool:
        for mutant, artifact in zip(mutants, pool.map(one, mutants), strict=True):
            assert isinstance(artifact, Artifact), (mutant.name, artifact)
            assert artifact.cubin != whole.cubin, mutant.name


def test_what_is_broken_is_what_the_name_says() -> None:
    source = written("igemm_wmma", "cp_async3")
    texts = {m.name: m.text for m in source_mutants(source)}
    assert "wait_prior" not in texts["wait_removed"]
    assert "__pipeline_wait_prior(STAGES - 1)" in texts["wait_one_group_short"]
    assert texts["barrier_removed"].count("__syncthreads") == source.count("__syncthreads") - 1
    before = texts["barrier_before_wait"]
    assert before.index("// for every thread") < before.index("__pipeline_wait_prior")
    assert "int write_stage = 0;" in texts["wrong_next_buffer"]
    assert "if (k0_ahead < K) copy_tile(k0, write_stage);" in texts["wrong_tile"]
    assert "for (int k0 = 0; k0 + BK < K; k0 += BK)" in texts["epilogue_skipped"]
    assert "for (int k0 = 0; k0 < K + BK; k0 += BK)" in texts["one_tile_too_many"]


@pytest.mark.parametrize("name", THREADS)
def test_a_source_that_was_not_rewritten_is_refused(name: str) -> None:
    with pytest.raises(TilewrightError, match="not_generated"):
        source_mutants((EXAMPLES / f"{name}.cu").read_text())


@pytest.mark.parametrize(
    ("variant", "gone"),
    [
        ("cp_async3", "    __pipeline_commit();\n"), ("cp_async3", "int read_stage = 0;"), ("cp_async3", "_ahead = "),
        ("ldg", "stage ^= 1;"), ("ldg", "stage ^ 1)"), ("ldg_single", "  // this tile is in shared memory"),
        ("ldg_single", "const bool has_next"),
    ],
)  # fmt: skip
def test_an_edited_rewrite_is_refused_as_a_whole(variant: str, gone: str) -> None:
    source = written("igemm_wmma", variant)
    assert gone in source
    with pytest.raises(TilewrightError, match="not_generated"):
        source_mutants(source.replace(gone, ""))
