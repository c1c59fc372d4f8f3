"""The text keeps its width, says what did not run, and draws nothing that the record lacks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import receipt_samples as samples

from tilewright.receipt.drawing import Cell, Column, Pen, kib, number, printable
from tilewright.receipt.evidence import Hazard, Measurement, Proof, Resources, SizeCheck, Stall
from tilewright.receipt.record import Receipt, Refusal, Tile, Tool, Variant
from tilewright.receipt.reports import Copy, InspectedKernel, InspectReport, ProvenKernel, ProveReport
from tilewright.receipt.reports_text import render_inspect, render_prove
from tilewright.receipt.text import render

# Commands are there to be copied, so they are never wrapped.
COMMANDS = ("review", "write", "next")


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("make", [samples.laptop, samples.with_gpu, samples.refused])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_asked(make: type[Receipt], width: int, verbose: bool) -> None:
    for line in render(make(), width=width, verbose=verbose).splitlines():
        assert len(line) <= width or line.startswith(COMMANDS)


def test_without_color_there_is_no_escape_code_and_with_color_there_is() -> None:
    assert "\x1b" not in render(samples.with_gpu(), color=False)
    colored = render(samples.with_gpu(), color=True)
    assert "\x1b[32maccepted\x1b[0m" in colored


def test_color_does_not_move_columns() -> None:
    plain, colored = (render(samples.with_gpu(), color=color) for color in (False, True))
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


def test_a_laptop_run_says_that_nothing_ran() -> None:
    text = render(samples.laptop())
    assert "Not verified and not timed: no GPU here. Sources are *.unverified.cu; do not ship them." in text
    assert "verify it (no GPU is needed): tilewright pipeline igemm_tiled.cu" in text
    assert "*.unverified.cu" not in render(samples.with_gpu())


def test_the_first_line_says_which_arch_and_why() -> None:
    assert render(samples.laptop()).splitlines()[0] == "arch       sm_86: no GPU and no --arch"


def test_budget_names_the_cliff_once() -> None:
    text = render(samples.laptop())
    assert "stages 1: 8 blocks/SM  2: 8  3: 7 (cliff at 11.5 KiB)  8: does not fit" in text


def test_a_way_round_the_cliff_is_offered_with_its_cost() -> None:
    assert "ldg_single, stages 1: 8 blocks/SM at 4 KiB. The next tile waits in 8 more registers" in render(
        samples.laptop(), width=120
    )


def test_a_predicted_gain_is_never_called_measured() -> None:
    predicted = "width ~1.50x * asynchronous copy ~1.10x * overlap ~1.03x (predicted, not measured)"
    assert predicted in render(samples.laptop())
    measured = render(samples.with_gpu())
    assert "predicted, not measured" not in measured
    assert "cp_async2: width 1.55x * asynchronous copy 1.15x * overlap 1.01x * stages 1.00x" in measured


@pytest.mark.parametrize(("tiles", "promised"), [(None, True), (4, True), (3, False), (1, False)])
def test_no_gain_is_promised_below_four_tiles(tiles: int | None, promised: bool) -> None:
    receipt = samples.laptop()
    assert receipt.loop is not None
    text = render(replace(receipt, loop=replace(receipt.loop, num_tiles=tiles)), width=160)
    row = next(line for line in text.splitlines() if line.startswith("cp_async2"))
    assert bool(re.search(r"\d\.\d\d-\d\.\d\dx", row)) is promised
    assert ("(predicted, not measured)" in text) is promised


def test_paths_that_start_with_a_dash_are_no_options() -> None:
    good = samples.with_gpu()
    variants = tuple(replace(v, source_path="-out/x.cu" if v.source_path is None else None) for v in good.variants)
    odd = replace(good, kernel=replace(good.kernel, file="-k.cu"), variants=variants)
    assert "git diff --no-index ./-k.cu ./-out/x.cu" in render(odd)
    laptop = samples.laptop()
    assert "tilewright pipeline ./-k.cu --kernel" in render(
        replace(laptop, kernel=replace(laptop.kernel, file="-k.cu"))
    )


def test_both_ratios_are_named() -> None:
    text = render(samples.laptop())
    assert "64 FLOP per byte (flop_per_byte" in text
    assert "(ops_per_load, from the" in text


def test_the_choice_is_marked_and_its_excerpt_shown() -> None:
    text = render(samples.with_gpu())
    assert "cp_async2 *" in text
    assert "Take cp_async2" in text
    assert "SASS of cp_async2" in text
    assert "SASS of ldg" not in text
    assert "SASS of ldg" in render(samples.with_gpu(), verbose=True)
    assert "only timing shows that it happens" in text


def test_review_command_quotes_paths() -> None:
    base = samples.with_gpu()
    kernel = replace(base.kernel, file="my kernels/igemm.cu")
    variants = tuple(replace(v, source_path=f"out dir/igemm.{v.label}.cu") for v in base.variants)
    text = render(replace(base, kernel=kernel, variants=variants))
    assert "git diff --no-index 'my kernels/igemm.cu' 'out dir/igemm.cp_async2.cu'" in text


def test_refusals_carry_code_line_and_hint() -> None:
    text = render(samples.refused())
    assert "igemm_tiled.cu:92: [already_pipelined]" in text
    assert "Use `tilewright prove`." in text
    assert "Refused [already_pipelined]: no variant was made." in text
    assert "read_after_write" in text
    assert "[needs_arch] tma2: TMA needs sm_90" in render(samples.laptop())


def test_refusals_with_the_same_reason_stand_together() -> None:
    base = samples.laptop()
    later = Refusal("not_available", "this version does not write it yet")
    more = tuple(Variant(name, 1, "refused", later) for name in ("widen", "retile"))
    assert "[not_available] widen, retile: this version" in render(replace(base, variants=(*base.variants, *more)))


def test_a_narrow_terminal_goes_without_columns_that_say_nothing() -> None:
    def header(width: int) -> list[list[str]]:
        lines = render(samples.laptop(), width=width).splitlines()
        return [line.split() for line in lines if line.startswith("variant")]

    assert len(header(80)) == 1
    assert "bits" not in header(80)[0]
    assert "bits" in header(120)[0]


def test_a_failed_variant_is_named_with_what_failed() -> None:
    base = samples.with_gpu()
    verify = replace(
        base.variants[0].verify,
        verdict="failed",
        bit_identical=False,
        checks=(SizeCheck("ragged", "failed", False, 3.0, 0.5, "element (3, 7) is 3 instead of 0"),),
        hazards=(Hazard("read_before_wait", 101, "tile 2 is read before its copy landed"),),
    )
    bad = replace(base.variants[0], status="failed", verify=verify)
    text = render(replace(base, variants=(bad, *base.variants[1:]), choice=None))
    assert "ragged: element (3, 7) is 3 instead of 0" in text
    assert "line 101: read_before_wait" in text
    assert "A check failed: ldg. Do not use it." in text


def test_the_result_fits_what_happened() -> None:
    good = samples.with_gpu()
    slow = tuple(
        v if v.status == "refused" else replace(v, measure=replace(v.measure, verdict="slower", speedup=0.9))
        for v in good.variants
    )
    assert "Keep the baseline: no variant was faster." in render(replace(good, variants=slow, choice=None))
    untimed = tuple(replace(v, measure=Measurement()) for v in good.variants)
    assert "Verified, not timed: nothing is chosen." in render(replace(good, variants=untimed, choice=None))
    broken = replace(good.baseline, verify=replace(good.baseline.verify, verdict="failed", reason="default: differs"))
    assert "The baseline itself failed its check" in render(replace(good, baseline=broken, choice=None))
    assert "Every variant was refused" in render(replace(good, variants=good.variants[-1:], choice=None))


def test_a_changed_count_of_math_instructions_shows_both() -> None:
    base = samples.laptop()
    twice = replace(base.variants[0], proof=replace(base.variants[0].proof, mma_per_tile=32))
    assert "32 (was 16)" in render(replace(base, variants=(twice,)))


def test_only_the_emulator_may_say_that_there_are_no_hazards() -> None:
    base = samples.with_gpu()
    assert " none " not in render(base)
    emulated = tuple(replace(v, verify=replace(v.verify, races_at=("small",))) for v in base.variants)
    assert " none " in render(replace(base, variants=emulated))


def test_names_cannot_steer_the_terminal() -> None:
    base = samples.laptop()
    assert "\x1b" not in render(replace(base, kernel=replace(base.kernel, name="k\x1b[2J")))
    assert printable("a\x07b\tc") == "a?b c"


def test_a_wide_table_is_split_by_group_and_repeats_the_first_column() -> None:
    columns = [
        Column("name", (Cell("a"), Cell("bb"))),
        Column("left", (Cell("x" * 40), Cell("y")), 0),
        Column("right", (Cell("z" * 40), Cell("-")), 1),
    ]
    one = Pen(width=100).table(columns)
    two = Pen(width=60).table(columns)
    assert len(one) == 3
    assert len(two) == 7
    assert two[4].split() == ["name", "right"]
    assert all(len(line) <= 60 for line in two)


def test_numbers_are_short() -> None:
    assert (kib(512), kib(4096), kib(11776), kib(None)) == ("512 B", "4 KiB", "11.5 KiB", "-")
    assert (number(None), number(1234567), number(1.0666)) == ("-", "1,234,567", "1.07")


def test_prove_report_text() -> None:
    proof = Proof("overlap", 1, 16, 1, 16, None, (Stall("HMMA", 16, 8, 8), Stall("IMMA", 3, 1, 4)), "LDGSTS\nHMMA")
    kernels = (ProvenKernel("k", proof, Resources(88, 8192, 0, 0)), ProvenKernel("plain", Proof(reason="no loop")))
    text = render_prove(ProveReport(tool=Tool("1"), file="k.cubin", arch="sm_86", kernels=kernels), width=80)
    assert "overlap, 1 tile in flight" in text
    assert "HMMA 8 cycles (16)  IMMA 1-4 cycles (3)" in text
    assert "overlap unknown (no loop)" in text
    assert "only timing shows" in text
    assert "only timing" not in render_prove(
        ProveReport(tool=Tool("1"), file="k.cubin", arch="sm_86", kernels=kernels[1:])
    )


def test_inspect_report_text() -> None:
    kernels = (
        InspectedKernel(
            "gemm",
            12,
            tile=Tile(64, 64, 32, threads=128, elements={"A": "int8", "B": "int8"}, math="wmma"),
            copies=(
                Copy("a", "As", 20, "int8", 1, 16, "zero fill where row >= M"),
                Copy("b", "Bs", 24, "int8", 1, None, "zero fill where row >= M"),
            ),
        ),
        InspectedKernel("relu", 90, Refusal("no_k_loop", "There is no loop that loads a tile.", 90, "Nothing to do.")),
    )
    text = render_inspect(InspectReport(tool=Tool("1"), file="g.cu", kernels=kernels), width=80)
    assert "int8 wmma 64x64x32, 128 threads" in text
    assert "a -> As" in text
    assert "- line 20, 24: zero fill where row >= M" in text
    assert "g.cu:90: [no_k_loop]" in text
    assert "g.cu has no kernel" in render_inspect(InspectReport(tool=Tool("1"), file="g.cu"))
