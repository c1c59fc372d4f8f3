"""What the bottleneck analysis says of small kernels, and that it says something else of the sibling beside each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import analyze_kernels as kernels
import pytest
from analyze_sample import Sample, disassembled_once
from analyze_turned import TURNED

from tilewright.analyze.markdown import render_markdown
from tilewright.analyze.record import AnalyzeReport
from tilewright.analyze.text import render_text
from tilewright.receipt.record import to_json
from tilewright.settings import Settings
from tilewright.workflow.analyzing import AnalyzeOptions, analyze
from tilewright.workflow.opening import open_file
from tilewright.workflow.reading import sidecar_for

Run = Callable[[Sample], AnalyzeReport]
# The acceptance's: as users see them. Of the others the variants are not built, which nothing here asks for.
JUDGED_FROM_BUILDS = (kernels.WMMA, kernels.BYTES, kernels.REGISTERS, kernels.BIG_TILES, TURNED)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", autouse=True)
def each_cubin_once() -> Iterator[None]:
    with disassembled_once():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Run:
    """A sample's report on an H200; each is made once."""
    folder = tmp_path_factory.mktemp("kernels")
    made: dict[int, AnalyzeReport] = {}

    def of(sample: Sample) -> AnalyzeReport:
        key = hash(repr(sample))
        if key not in made:
            path = sample.write(folder / str(len(made)))
            with pytest.MonkeyPatch.context() as patch:
                if sample not in JUDGED_FROM_BUILDS:
                    patch.setattr("tilewright.workflow.analyze_report.decision_of", lambda *_: None)
                made[key] = analyze(path, device="h200", settings=settings).report
        assert all(s.low < s.high and s.low <= s.speedup <= s.high for s in made[key].strategies)  # none is certain
        return made[key]

    return of


def keys(report: AnalyzeReport) -> list[str]:
    return [s.key for s in report.strategies]


def why_not(report: AnalyzeReport, key: str) -> str:
    return next(s.reason for s in report.set_aside if s.key == key)


def gain(report: AnalyzeReport, key: str) -> float:
    return next(s.speedup for s in report.strategies if s.key == key)


# -- the acceptance, each kernel beside the sibling that must flip it ---------------------------------


def test_a_plain_wmma_kernel_is_to_be_pipelined_first(run: Run) -> None:
    report = run(kernels.WMMA)
    assert keys(report)[0] == "pipeline"
    assert report.sass.overlap == "no_overlap"
    assert report.strategies[0].effort == "small"  # a command makes it
    assert any(e.source == "plan, from compiled builds" for e in report.strategies[0].evidence)
    shown = {e.what for e in report.strategies[0].evidence}
    assert {"overlap of copies and math", "ops_per_load", "variant"} <= shown


def test_what_no_asynchronous_copy_can_bring_goes_through_registers(run: Run) -> None:
    found = next(s for s in run(TURNED).strategies if s.key == "pipeline")
    shown = {e.what: e for e in found.evidence}
    assert shown["variant"].value == "ldg"
    assert shown["variant"].source == "plan, from compiled builds"
    assert found.how.startswith("By ldg. ")  # nothing else was built that it could be better than
    assert found.speedup > 1.2


def test_the_best_of_a_k_loop_is_called_so_beside_what_was_built(run: Run) -> None:
    found = next(s for s in run(kernels.WMMA).strategies if s.key == "pipeline")
    assert found.how.startswith("By cp_async2, which ranks before ldg. ")


def test_its_cp_async_rewrite_is_not(run: Run) -> None:
    report = run(kernels.WMMA_CP_ASYNC)
    assert "pipeline" not in keys(report)
    assert why_not(report, "pipeline") == "copies overlap the math already"
    assert report.sass.tiles_in_flight == 2


def test_with_one_tile_there_is_nothing_to_pipeline(run: Run) -> None:
    report = run(kernels.WMMA.at(K=32))
    assert "pipeline" not in keys(report)
    assert "no next tile" in why_not(report, "pipeline")


def test_registers_that_cost_a_block_are_to_be_capped_first(run: Run) -> None:
    report = run(kernels.REGISTERS)
    assert report.residency is not None
    assert (report.residency.blocks_per_sm, report.residency.limiter) == (1, "registers")
    assert (report.baseline.registers or 0) > 128
    first = report.strategies[0]
    assert first.key == "cap_registers"
    assert first.low <= 1.7 <= first.high  # what such a cap was worth on an H200
    shown = {e.what: e.value for e in first.evidence}
    assert shown["registers when capped"] == "128, nothing spilled"
    assert "pipeline" in first.conflicts


def test_the_cap_is_worth_nothing_where_no_second_block_would_come(run: Run) -> None:
    report = run(kernels.REGISTERS.at(M=512, N=512))
    assert "cap_registers" not in keys(report)
    assert "stay empty" in why_not(report, "cap_registers")
    assert keys(report)[0] == "more_blocks"


def test_a_cap_that_spills_in_the_hot_loop_is_no_advice(run: Run) -> None:
    assert "spills in the hot loop" in why_not(run(kernels.WMMA), "cap_registers")


def test_tiles_that_cost_a_block_are_to_be_shrunk_first(run: Run) -> None:
    report = run(kernels.BIG_TILES)
    assert report.residency is not None
    assert (report.residency.blocks_per_sm, report.residency.limiter) == (1, "shared")
    assert keys(report)[0] == "shrink_shared"
    assert "pipeline" not in keys(report) or "pipeline" in report.strategies[0].conflicts


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged before anything is built."""
    monkeypatch.setattr("tilewright.workflow.analyze_report.decision_of", lambda *_: None)


@pytest.mark.usefixtures("unbuilt")
def test_tiles_and_registers_that_cost_a_block_together_are_mended_together(tmp_path: Path, settings: Settings) -> None:
    path = kernels.BIG_PATCHES.write(tmp_path)
    report = analyze(path, device="A100 80 GB SXM4", settings=settings).report
    fit = report.residency
    assert fit is not None
    assert (fit.limits["shared"], fit.limits["registers"]) == (1, 1)
    first = report.strategies[0]
    assert first.key == "shrink_shared"
    assert "__launch_bounds__(256, 2)" in first.how
    assert "shared does too" in why_not(report, "cap_registers")


def test_small_tiles_and_small_launches_have_nothing_to_shrink(run: Run) -> None:
    assert "shrink_shared" not in keys(run(kernels.WMMA))
    few = run(kernels.BIG_TILES.at(M=512, N=512))
    assert "shrink_shared" not in keys(few)
    assert "stay empty" in why_not(few, "shrink_shared")


def test_byte_wise_loads_are_to_be_widened_first(run: Run) -> None:
    report = run(kernels.BYTES)
    assert keys(report)[0] == "widen"
    assert report.sass.load_bytes == 1.0
    assert gain(report, "widen") > 1.3
    # The pipelined rewrite brings the wider loads along: its own part of the gain is told apart.
    own = next(e for e in report.strategies[1].evidence if "beside wider loads" in e.what)
    assert report.strategies[1].key == "pipeline"
    assert float(own.value.removesuffix("x")) < gain(report, "widen")


def test_a_loop_that_makes_no_trip_has_nothing_to_widen(run: Run) -> None:
    report = run(kernels.BYTES.at(K=0))
    assert "no trip" in why_not(report, "widen")
    assert not {"widen", "pipeline"} & set(keys(report))
    assert report.verdict.by == "dram"  # nothing but zeros is written


def test_bytes_that_are_read_once_in_front_of_the_loop_do_not_matter(run: Run) -> None:
    report = run(kernels.BYTES_IN_THE_PROLOGUE)
    assert "widen" not in keys(report)
    assert "16 bytes wide" in why_not(report, "widen")
    assert report.sass.load_bytes == 16.0


def test_of_a_streaming_kernel_it_says_that_tiling_brings_nothing(run: Run) -> None:
    report = run(kernels.STREAM)
    assert report.verdict.bound == "memory"
    assert report.verdict.by == "dram"
    assert "tiling brings nothing" in why_not(report, "tile")
    assert "tiling brings nothing" in report.verdict.reason
    assert keys(report) == ["fuse"]
    assert report.memory is not None
    assert report.memory.reuse == pytest.approx(1.0)
    assert report.roofline.dram_bytes.value == 2 * 4 * (9 << 20)  # the output is among them


def test_a_product_without_tiles_is_to_be_tiled(run: Run) -> None:
    report = run(kernels.NAIVE_GEMM)
    assert keys(report)[0] == "tile"
    assert report.memory is not None
    assert (report.memory.reuse or 0) > 100
    assert report.roofline.flops.value == pytest.approx(2 * 1024**3, rel=0.01)
    assert report.roofline.rows[0].intensity == pytest.approx(1024 / 6, rel=0.01)


def test_cubins_tell_the_same_story_as_their_sources(tmp_path: Path, settings: Settings) -> None:
    def of(sample: Sample, grid: int, shared_bytes: int | None = None) -> AnalyzeReport:
        path = sample.write(tmp_path)
        spec = sidecar_for(path, None, None)
        opened = open_file(path.read_bytes(), path, None, spec, "sm_90a", settings, True)
        path.with_suffix(".cubin").write_bytes(opened.baseline.cubin)
        given = AnalyzeOptions(grid=(grid, grid, 1), shared_bytes=shared_bytes)
        return analyze(path.with_suffix(".cubin"), device="h200", options=given, settings=settings).report

    plain = of(kernels.WMMA, 32)
    assert plain.input == "cubin"
    assert plain.baseline.launch.block == (256, 1, 1)  # its launch bounds
    assert plain.baseline.smem_bytes == 18944
    assert keys(plain)[0] == "pipeline"
    assert plain.strategies[0].effort == "large"  # without the source it is left to hands
    assert any("--shared-bytes" in text for text in plain.assumptions)
    ring = of(kernels.WMMA_CP_ASYNC, 32, 56832)
    assert "pipeline" not in keys(ring)
    assert ring.baseline.smem_bytes == 56832
    assert not any("--shared-bytes" in text for text in ring.assumptions)
    assert keys(of(kernels.REGISTERS, 32))[0] == "cap_registers"
    assert "cap_registers" not in keys(of(kernels.REGISTERS, 4))


# -- other kernels ----------------------------------------------------------------------------------


def test_products_of_bytes_go_to_the_tensor_cores_whatever_the_words_are_called(run: Run) -> None:
    report = run(kernels.DOT_BYTES)
    assert "tensor_cores" in keys(report)
    assert "TF32" in why_not(run(kernels.DOT_FLOATS), "tensor_cores")


def test_a_matrix_vector_product_is_at_the_dram_wall(run: Run) -> None:
    report = run(kernels.GEMV)
    assert (report.verdict.bound, report.verdict.by) == ("memory", "dram")
    assert report.roofline.rows[0].intensity == pytest.approx(0.5, rel=0.02)
    assert "tile" not in keys(report)


def test_a_softmax_is_no_product(run: Run) -> None:
    report = run(kernels.SOFTMAX)
    assert "mufu" in report.verdict.floors
    assert not {"tensor_cores", "pipeline", "thread_tile"} & set(keys(report))
    assert report.roofline.rows[0].is_memory_bound
    assert any(row.opcode == "MUFU.EX2" for row in report.sass.mix)


def test_a_transposed_copy_is_to_be_coalesced(run: Run) -> None:
    report = run(kernels.TRANSPOSE)
    assert keys(report)[0] == "coalesce"
    assert report.memory is not None
    assert report.memory.sectors_per_request == pytest.approx((4 + 32) / 2)
    assert report.memory.lines[0].startswith("line 4: ")
    assert "coalesce" not in keys(run(kernels.PADDED_TRANSPOSE))


def test_bank_conflicts_are_to_be_padded_away(run: Run) -> None:
    report = run(kernels.TILED_TRANSPOSE)
    assert keys(report)[0] == "bank_conflicts"
    assert report.memory is not None
    assert report.memory.conflict_factor == pytest.approx((1 + 32) / 2)
    padded = run(kernels.PADDED_TRANSPOSE)
    assert padded.memory is not None
    assert padded.memory.conflict_factor == 1.0
    assert "bank_conflicts" not in keys(padded)
    assert padded.verdict.by == "dram"


def test_a_tiny_launch_is_bound_by_latency(run: Run) -> None:
    tiny, large = run(kernels.TINY), run(kernels.STREAM)
    assert (tiny.verdict.bound, large.verdict.bound) == ("latency", "memory")
    assert "too few blocks" in why_not(tiny, "more_blocks")
    assert any("fits in the L2" in text for text in tiny.warnings)
    assert not any("fits in the L2" in text for text in large.warnings)
    assert any("launching it some 3: none of these gains would show" in text for text in tiny.warnings)
    assert not any("launching it" in text for text in large.warnings)


def test_spills_in_the_hot_loop_come_first(run: Run) -> None:
    spilled, roomy = run(kernels.SPILLED), run(kernels.ROOMY)
    assert keys(spilled)[0] == "spills"
    assert (spilled.baseline.spill_bytes or 0) > 0
    assert roomy.baseline.spill_bytes == 0
    assert "spills" not in keys(roomy)


# -- the record and what is drawn from it -------------------------------------------------------------


def test_text_markdown_and_json_say_the_same(run: Run) -> None:
    report = run(kernels.WMMA)
    text, markdown, data = render_text(report), render_markdown(report), json.loads(to_json(report))
    order = ["Baseline", "Roofline", "Occupancy", "Compute to load", "Machine code", "Shared-memory cliff", "Accesses"]
    order.append("Decision matrix")
    for page, mark in ((text, "\n{}\n"), (markdown, "\n## {}\n")):
        places = [page.index(mark.format(title)) for title in order]
        assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 100
    for strategy in report.strategies:
        assert strategy.title in text
        assert strategy.title in markdown
    assert [s["key"] for s in data["strategies"]] == keys(report)
    assert data["ratios"]["flop_per_byte"] == 64.0
    assert data["ratios"]["ops_per_load"] != data["ratios"]["flop_per_byte"]
    assert all(s["evidence"] and s["low"] <= s["speedup"] <= s["high"] for s in data["strategies"])


def test_a_time_puts_the_kernel_under_the_roof(tmp_path: Path, run: Run, settings: Settings) -> None:
    path = kernels.STREAM.write(tmp_path)
    least = run(kernels.STREAM).roofline.least_us or 0.0
    slow = analyze(path, device="h200", options=AnalyzeOptions(time_us=2 * least), settings=settings).report
    assert slow.roofline.rows[0].share == pytest.approx(0.5, rel=0.01)
    fast = analyze(path, device="h200", options=AnalyzeOptions(time_us=least / 2), settings=settings).report
    assert any("no measurement can show that" in text for text in fast.warnings)
    assert not any("no measurement can show that" in text for text in slow.warnings)


@pytest.mark.usefixtures("unbuilt")
def test_a_draft_is_scaled_until_the_launch_fills_the_card(tmp_path: Path, settings: Settings) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(kernels.WMMA.source, "utf-8")
    report = analyze(path, device="h200", settings=settings).report
    assert keys(report)[0] == "pipeline"
    assert (report.residency.waves if report.residency else 0) > 2
    assert any("times as large" in note for note in report.notes)
    sizes = {"M": 512, "N": 512, "K": 1024}
    few = analyze(path, device="h200", options=AnalyzeOptions(sizes=sizes), settings=settings).report
    assert few.baseline.sizes == sizes
    assert keys(few)[0] == "more_blocks"


def test_arrays_too_large_to_run_leave_it_to_a_smaller_set(tmp_path: Path, settings: Settings) -> None:
    path = kernels.STREAM.at(N=1 << 30).write(tmp_path)
    sidecar = path.with_suffix(".toml")
    text = sidecar.read_text("utf-8").replace("[sizes]\n", "[sizes]\nsmall = { N = 1048576 }\n")
    sidecar.write_text(text, "utf-8")
    report = analyze(path, device="h200", settings=settings).report
    assert report.baseline.sizes == {"N": 1 << 20}
    assert report.roofline.dram_bytes.value == 8 << 20
    assert any("all figures are for 'small'" in note for note in report.notes)


def test_a_second_run_comes_from_the_cache_and_is_the_same(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kernels.TINY.write(tmp_path)
    first = analyze(path, device="h200", settings=settings).report
    monkeypatch.setattr("tilewright.workflow.analyze_report.make_report", None)  # nothing is made anew
    second = analyze(path, device="h200", settings=settings).report
    assert second.strategies == first.strategies
    assert second.verdict == first.verdict
    with pytest.raises(TypeError):  # but at other sizes it is
        analyze(path, device="h200", options=AnalyzeOptions(sizes={"N": 8192}), settings=settings)
