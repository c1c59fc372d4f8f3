"""How rewrites are written: line ends, remedies, big rings, templates, and that no edit can be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from attack_base import KERNELS
from source_samples import BLOCKS, REWRITERS, STATIC_LIMIT, read, rewritten, understood

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.errors import TilewrightError
from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite import cp_async, ldg
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.settings import Settings
from tilewright.source import edits, ir
from tilewright.source.device_view import device_view
from tilewright.source.edits import Edit, apply, fold
from tilewright.source.reader import open_kernel, read_source


def text_of(kernel: str) -> str:
    return (KERNELS / f"{kernel}.cu").read_text()


def kernel_of(name: str) -> TiledKernel:
    return understood(text_of(name), BLOCKS[name])


def compiled(text: str, kernel: str, cache: Path) -> Artifact | CompileFailure:
    view = device_view(text, KERNELS / "sample.cu")
    request = BuildRequest(view.text, "sample.cu", "sm_80", kernel, view.headers)
    return build(request, Settings(cache_dir=cache), use_cache=False)


@pytest.mark.parametrize("variant", REWRITERS)
@pytest.mark.parametrize("name", BLOCKS)
def test_windows_line_ends_stay(name: str, variant: str) -> None:
    windows = understood(text_of(name).replace("\n", "\r\n"), BLOCKS[name])
    result = rewritten(windows, variant).text
    assert "\n" not in result.replace("\r\n", "")
    assert "\r" not in result.replace("\r\n", "")
    assert result.replace("\r\n", "\n") == rewritten(kernel_of(name), variant).text


@pytest.mark.parametrize("variant", REWRITERS)
@pytest.mark.parametrize("name", BLOCKS)
def test_every_variant_compiles(name: str, variant: str, tmp_path: Path) -> None:
    outcome = compiled(rewritten(kernel_of(name), variant).text, name, tmp_path)
    assert isinstance(outcome, Artifact), outcome


@pytest.mark.parametrize("name", BLOCKS)
def test_no_line_is_too_long(name: str) -> None:
    for variant in REWRITERS:
        assert all(len(line) <= 120 for line in rewritten(kernel_of(name), variant).text.split("\n"))


def test_a_long_statement_is_broken_at_its_outermost_operators() -> None:
    line = "    if (alpha(" + "x, " * 20 + "y) && beta(" + "x, " * 20 + "y)) {"
    assert fold(line) == ["    if (alpha(" + "x, " * 20 + "y)", "        && beta(" + "x, " * 20 + "y)) {"]
    assert "".join(part.strip() for part in fold(line)).replace(" ", "") == line.replace(" ", "")
    comment = "// " + "word " * 40
    assert fold(comment) == [comment]


def test_remedies_are_written_where_they_belong() -> None:
    kernel = kernel_of("scalar")
    plain = rewritten(kernel, "cp_async").text
    unrolled = rewritten(kernel, "cp_async", Remedy(restore_unroll=True)).text
    assert unrolled.replace("        #pragma unroll\n        for (int k = 0;", "        for (int k = 0;") == plain
    once = rewritten(kernel, "ldg", Remedy(unroll_one=True)).text
    assert "    #pragma unroll 1\n    for (int k0 = 0; k0 < K; k0 += TILE) {\n" in once
    fenced = rewritten(kernel, "ldg", Remedy(fence=True)).text
    assert 'asm volatile("" ::: "memory");' in fenced
    early = rewritten(kernel, "ldg", Remedy(early_loads=True)).text
    loop = early[early.index("for (int k0 = 0; k0 < K") :]
    assert loop.index("fetch_tile(k0_next)") < loop.index("__syncthreads()") < loop.index("sum +=")
    assert early.count("nobody still reads the last one") == 1


def test_a_pragma_that_is_there_is_not_doubled() -> None:
    text = text_of("scalar").replace("    for (int k0", "    #pragma unroll 4\n    // tiles\n    for (int k0")
    result = rewritten(understood(text, BLOCKS["scalar"]), "cp_async", Remedy(unroll_one=True)).text
    assert "    #pragma unroll 4\n    // tiles\n    for (int k0 = 0; k0 < K; k0 += TILE) {\n" in result
    assert "#pragma unroll 1" not in result


def test_a_ring_above_the_limit_is_dynamic(tmp_path: Path) -> None:
    result = cp_async.rewrite(kernel_of("bytes"), 3, static_limit_bytes=4096)
    assert isinstance(result, RewrittenSource)
    assert result.dynamic_bytes == 3 * 2 * 1024
    assert f"launch with {result.dynamic_bytes} bytes" in result.text
    assert "extern __shared__ __align__(128) unsigned char tile_ring[];" in result.text
    assert isinstance(compiled(result.text, "bytes", tmp_path), Artifact)
    small = cp_async.rewrite(kernel_of("bytes"), 3, static_limit_bytes=6 * 1024)
    assert isinstance(small, RewrittenSource)
    assert small.dynamic_bytes is None


def test_a_dynamic_ring_needs_the_dynamic_memory_for_itself() -> None:
    helper = "__device__ float *room() {\n    extern __align__(16) __shared__ float all[];\n    return all;\n}\n"
    text = text_of("bytes").replace("__global__", helper + "__global__")
    result = cp_async.rewrite(understood(text, BLOCKS["bytes"]), 3, static_limit_bytes=4096)
    assert isinstance(result, Refusal)
    assert result.code == "not_understood"
    assert result.line == text[: text.index("extern")].count("\n") + 1
    together = ldg.rewrite(kernel_of("vector"), False, static_limit_bytes=1024)
    assert isinstance(together, Refusal)
    assert "shares its declaration" in together.message


def test_a_template_is_rewritten_for_its_arguments_only(tmp_path: Path) -> None:
    text = (
        text_of("bytes")
        .replace("constexpr int BK = 32;\n", "")
        .replace("__global__", "template <int BK, typename T>\n__global__")
    )
    text = text.replace("const int8_t *__restrict__ A", "const T *__restrict__ A").replace("int8_t As", "T As")
    source = replace(read_source(text.encode(), "t.cu"), aliases={"T": "int8_t"})
    kernel = analyse(open_kernel(source, source.kernel(None), {"BK": 32}), BLOCKS["bytes"])
    assert isinstance(kernel, TiledKernel), kernel
    result = rewritten(kernel, "cp_async").text
    assert "static_assert(BK == 32 && sizeof(T) == 1," in result

    def instance(bk: int, kind: str) -> Artifact | CompileFailure:
        return compiled(result, f"bytes<{bk}, {kind}>", tmp_path)

    assert isinstance(instance(32, "int8_t"), Artifact)
    other = instance(64, "int8_t")
    assert isinstance(other, CompileFailure)
    assert "rewritten for these arguments only" in other.log


@pytest.mark.parametrize("variant", REWRITERS)
def test_no_edit_can_be_left_out(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropping any one edit changes the text, and does not compile wherever a name depends on it."""
    kernel = kernel_of("vector")
    seen: list[list[Edit]] = []

    def spy(text: bytes, wanted: list[Edit]) -> str:
        seen.append(list(wanted))
        return apply(text, ir.Span(0, len(text)), wanted)

    monkeypatch.setattr(f"tilewright.rewrite.{'cp_async' if variant == 'cp_async' else 'ldg'}.finish", spy)
    whole = rewritten(kernel, variant).text
    for i, dropped in enumerate(seen[0]):
        rest = seen[0][:i] + seen[0][i + 1 :]
        text = apply(kernel.text, ir.Span(0, len(kernel.text)), rest)
        assert text != whole
        quiet = dropped.text.startswith((" __align__", "\n    __syncthreads")) or variant == "ldg_single"
        if not quiet:
            assert isinstance(compiled(text, "vector", tmp_path), CompileFailure), dropped


def test_edits_must_not_overlap() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        apply(b"abcdef", ir.Span(0, 6), [Edit(0, 3, "x"), Edit(2, 4, "y")])
    with pytest.raises(ValueError, match="leaves"):
        apply(b"abcdef", ir.Span(0, 3), [Edit(2, 4, "y")])
    assert edits.finish(b"a\r\nb", [Edit(0, 1, "x\ny")]) == "x\r\ny\r\nb"


def test_an_include_goes_behind_those_that_are_always_read() -> None:
    text = text_of("scalar").replace(
        "#include <cuda_runtime.h>\n",
        "/*\n#include <none.h>\n*/\n#include <cuda_runtime.h>\n#ifdef HOST\n#include <cstdio>\n#endif\n",
    )
    result = rewritten(understood(text, BLOCKS["scalar"]), "cp_async").text
    assert "#include <cuda_runtime.h>\n#include <cuda_pipeline.h>\n#ifdef HOST\n" in result
    bare = text_of("scalar").replace("#include <cuda_runtime.h>\n", "")
    assert rewritten(understood(bare, BLOCKS["scalar"]), "cp_async").text.startswith("#include <cuda_pipeline.h>\n")
    there = text_of("scalar").replace("<cuda_runtime.h>", "<cuda_pipeline.h>")
    assert rewritten(understood(there, BLOCKS["scalar"]), "cp_async").text.count("cuda_pipeline.h") == 1


def test_what_is_said_about_a_barrier_goes_with_it() -> None:
    text = text_of("scalar")
    text = text.replace(
        "        __syncthreads();\n\n        for",
        "        // all loaded\n        __syncthreads();  // wait\n\n        // sums\n        for",
    )
    text = text.replace(
        "        }\n        __syncthreads();\n",
        "        }\n        // before the next tile\n        __syncthreads();\n",
    )
    for variant in REWRITERS:
        result = rewritten(understood(text, BLOCKS["scalar"]), variant).text
        assert "// sums" in result
        for gone in ("// all loaded", "// wait\n", "// before the next tile"):
            assert gone not in result


def test_stores_in_front_of_the_loop_are_waited_for() -> None:
    text = text_of("scalar").replace("    float sum = 0.0f;\n", "    float sum = 0.0f;\n    C[0] = 0.0f;\n")
    kernel = understood(text, BLOCKS["scalar"])
    assert kernel.stores_before
    waits = "__syncthreads();  // what was written before is there for every thread\n"
    result = rewritten(kernel, "cp_async").text
    assert result.index(waits) < result.index("// Prologue")
    assert waits not in rewritten(kernel_of("scalar"), "cp_async").text


def test_a_kernel_twice_is_not_guessed() -> None:
    source = read_source((text_of("scalar") * 2).encode(), "twice.cu")
    with pytest.raises(TilewrightError, match="2 times"):
        source.kernel("scalar")


def test_ordinary_rings_stay_below_the_static_limit() -> None:
    assert STATIC_LIMIT == 49152
    assert isinstance(read(text_of("scalar"), BLOCKS["scalar"]), TiledKernel)
