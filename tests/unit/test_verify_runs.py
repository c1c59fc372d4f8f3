"""Verification against a NumPy executor: the right variant passes, and each broken one is caught for what it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from fake_executor import FakeExecutor, program
from launch_samples import CONSTANTS, gemm_spec

from tilewright.launch.bind import LaunchChange
from tilewright.launch.spec import LaunchSpec
from tilewright.verification.baseline import BaselineRecord, baseline_runs
from tilewright.verification.reference import Reference
from tilewright.verification.variant import trip_count_sets, verify
from tilewright.verification.verdict import Passed


def _reference(a: np.ndarray, b: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    return {"c": alpha * (a.astype(np.float64) @ b.astype(np.float64))}


REFERENCE = Reference(Path("gemm_reference.py"), _reference, frozenset({"a", "b", "alpha"}))
SPEC = gemm_spec()
SPEC_INOUT = gemm_spec(('role = "out"', 'role = "inout"'))


SPEC_FULL = gemm_spec(("empty = { M = 8, N = 8, K = 0 }\n", ""))


def record(
    fault: str = "",
    reference: Reference | None = REFERENCE,
    spec: LaunchSpec = SPEC,
    extra_sets: Mapping[str, Mapping[str, int]] | None = None,
) -> BaselineRecord:
    return baseline_runs(program(fault), spec, CONSTANTS, FakeExecutor(), 7, reference, extra_sets)


BASELINE = record()


def test_a_good_baseline_passes_and_is_run_twice_a_set() -> None:
    executor = FakeExecutor()
    names: list[str] = []
    good = baseline_runs(program(), SPEC, CONSTANTS, executor, 7, REFERENCE, progress=names.append)
    verdict = good.verification
    assert (verdict.verdict, verdict.executor, verdict.reason) == ("passed", "gpu", "")
    assert names == ["empty", "ragged", "default"]
    assert verdict.sizes == ("empty", "ragged", "default")
    assert executor.runs == 6
    assert verdict.max_abs_error is not None
    assert 0 < verdict.max_abs_error < 1e-5
    assert good.is_deterministic
    assert len({one.seed for one in good.sets}) == 3
    assert not good.sets[2].unwritten["c"].any()


def test_inputs_are_fresh_for_each_seed_and_set() -> None:
    other = baseline_runs(program(), SPEC, CONSTANTS, FakeExecutor(), 8)
    assert (other.sets[2].inputs["a"] != BASELINE.sets[2].inputs["a"]).any()
    assert (BASELINE.sets[1].inputs["a"][:40] != BASELINE.sets[2].inputs["a"][:40]).any()


def test_the_same_bits_pass_without_a_new_reference_run() -> None:
    executor = FakeExecutor()
    verdict = verify(BASELINE, program(), LaunchChange(shared_bytes=4096), executor)
    assert verdict.verdict == "passed"
    assert verdict.bit_identical is True
    assert verdict.max_abs_error == BASELINE.verification.max_abs_error
    assert verdict.sizes == ("empty", "ragged", "default")
    assert [check.verdict for check in verdict.checks] == ["passed"] * 3
    assert verdict.checks[2].bound is not None
    assert verdict.checks[2].max_abs_error is not None
    assert verdict.checks[2].max_abs_error < verdict.checks[2].bound
    assert executor.runs == 6
    assert {shared for _, _, shared in executor.log} == {4096}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("skip_epilogue_tile", "differ from the baseline"),
        ("unwritten_row", "c[7, 0] was not written"),
        ("input_modified", "of the input 'b' were changed"),
        ("one_ulp", "1 of 64 elements of 'c' differ from the baseline; c[0, 0] is"),
        ("negative_zero", "64 of 64 elements"),
        ("out_of_bounds", "after the end of 'c'"),
        ("race", "change from run to run"),
        ("accumulates", "differ from the baseline"),
        ("upper_triangle", "c[1, 0] was not written"),
    ],
)
def test_each_mutant_is_caught(fault: str, words: str) -> None:
    verdict = verify(BASELINE, program(fault), None, FakeExecutor())
    assert verdict.verdict == "failed"
    assert words in verdict.reason
    only_hazard = fault in ("input_modified", "out_of_bounds")
    assert verdict.bit_identical is only_hazard
    assert bool(verdict.hazards) is only_hazard
    with pytest.raises(ValueError, match="failed"):
        Passed(program(fault), LaunchChange(), verdict)


def test_nan_payloads_count() -> None:
    base = record("nan", None)
    assert base.verification.verdict == "passed"
    assert verify(base, program("nan"), None, FakeExecutor()).verdict == "passed"
    verdict = verify(base, program("nan_payload"), None, FakeExecutor())
    assert (verdict.verdict, verdict.bit_identical) == ("failed", False)


def test_a_baseline_that_leaves_elements() -> None:
    half = record("upper_triangle", None)
    assert half.verification.verdict == "passed"
    assert half.sets[1].unwritten["c"].sum() == np.tril(np.ones((17, 9)), -1).sum()
    assert verify(half, program("upper_triangle"), None, FakeExecutor()).verdict == "passed"
    more = verify(half, program("triangle_and_more"), None, FakeExecutor())
    assert more.verdict == "failed"
    assert "c[7, 0] was written, and the baseline leaves it" in more.reason
    all_of_it = verify(half, program(""), None, FakeExecutor())
    assert "was written, and the baseline leaves it" in all_of_it.reason


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("skip_epilogue_tile", "miss the reference"),
        ("unwritten_row", "c[7, 0] was not written, and 0 is needed"),
        ("input_modified", "its role is inout"),
        ("out_of_bounds", "after the end of 'c'"),
        ("accumulates", "its role is inout, not out"),
    ],
)
def test_a_broken_baseline_fails_and_its_variants_do_not_run(fault: str, words: str) -> None:
    broken = record(fault)
    assert broken.verification.verdict == "failed"
    assert words in broken.verification.reason
    executor = FakeExecutor()
    variant = verify(broken, program(fault), None, executor)
    assert (variant.verdict, executor.runs) == ("not_run", 0)
    assert "the baseline did not pass" in variant.reason


def test_inout_reads_its_first_values() -> None:
    def reference(a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
        return {"c": alpha * (a.astype(np.float64) @ b.astype(np.float64)) + c}

    checked = Reference(Path("r.py"), reference, frozenset({"a", "b", "c", "alpha"}))
    base = baseline_runs(program("accumulates"), SPEC_INOUT, CONSTANTS, FakeExecutor(), 7, checked)
    assert base.verification.verdict == "passed"
    assert verify(base, program("accumulates"), None, FakeExecutor()).verdict == "passed"
    assert verify(base, program(""), None, FakeExecutor()).verdict == "failed"


@pytest.mark.parametrize("reference", [REFERENCE, None])
def test_a_baseline_that_does_not_repeat_itself(reference: Reference | None) -> None:
    base = record("float_atomics", reference, SPEC_FULL)
    assert base.verification.verdict == "passed"
    assert base.verification.bit_identical is None
    assert "the baseline is not deterministic" in base.verification.tolerance
    variant = verify(base, program("float_atomics"), None, FakeExecutor())
    assert (variant.verdict, variant.bit_identical) == ("passed", None)
    assert "a tolerance replaces bit identity" in variant.tolerance
    assert "sqrt(K=" in variant.tolerance
    wrong = verify(base, program("slightly_wrong"), None, FakeExecutor())
    assert wrong.verdict == "failed"
    assert "out of tolerance" in wrong.reason or "miss the reference" in wrong.reason
    fewer = verify(base, program("unwritten_row"), None, FakeExecutor())
    assert fewer.verdict == "failed"
    assert "other elements of 'c' are written" in fewer.reason


def test_a_failed_launch_stops_the_runs() -> None:
    dead = baseline_runs(program(), SPEC, CONSTANTS, FakeExecutor(error_at=3), 7, REFERENCE)
    assert dead.verification.verdict == "failed"
    assert dead.verification.reason == "ragged: CUDA_ERROR_ILLEGAL_ADDRESS"
    assert dead.verification.sizes == ("empty", "ragged")
    executor = FakeExecutor(error_at=3)
    variant = verify(BASELINE, program(), None, executor)
    assert (variant.verdict, variant.bit_identical) == ("failed", None)
    assert [check.verdict for check in variant.checks] == ["passed", "failed"]
    assert variant.sizes == ("empty", "ragged")


def test_extra_sets() -> None:
    extra = trip_count_sets({"M": 9, "N": 5, "K": 99}, "K", 4, 3)
    assert extra == {f"K={k}": {"M": 9, "N": 5, "K": k} for k in (0, 4, 8, 12, 16)}
    assert list(trip_count_sets({"K": 1}, "K", 32, 2)) == ["K=0", "K=32", "K=64", "K=96"]
    more = record(extra_sets=extra)
    assert set(more.verification.sizes) == {"default", "ragged", "empty", *extra}
    assert verify(more, program(), None, FakeExecutor()).sizes == more.verification.sizes
    assert more.left_out == ()


def test_an_extra_set_that_the_baseline_does_not_handle_is_left_out() -> None:
    extra = trip_count_sets({"M": 9, "N": 5, "K": 99}, "K", 4, 2)
    base = record("k0_stray", spec=SPEC_FULL, extra_sets=extra)
    assert base.verification.verdict == "passed"
    assert base.left_out == ("K=0: 4 bytes after the end of 'c' were written",)
    assert "K=0" not in base.verification.sizes


def _nan_reference(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    return {"c": np.full((a.shape[0], b.shape[1]), np.nan)}


NANS = Reference(Path("nan_reference.py"), _nan_reference, frozenset({"a", "b"}))


@pytest.mark.parametrize("reference", [None, NANS])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("does_nothing", "no element of 'c' was written"),
        ("all_nan", "every element of 'c' is NaN: nothing could be told apart"),
    ],
)
def test_a_kernel_that_leaves_nothing_to_compare_does_not_pass(
    fault: str, words: str, reference: Reference | None
) -> None:
    vacuous = record(fault, reference, SPEC_FULL)
    assert vacuous.verification.verdict == "failed"
    assert words in vacuous.verification.reason
    assert {check.verdict for check in vacuous.verification.checks} == {"failed"}


def test_an_inout_output_that_does_not_change_does_not_pass() -> None:
    vacuous = record("does_nothing", None, gemm_spec(('role = "out"', 'role = "inout"')))
    assert vacuous.verification.verdict == "failed"
    assert "no element of 'c' was changed" in vacuous.verification.reason


def test_a_reference_of_nan_is_not_met_by_numbers() -> None:
    assert "miss the reference" in record("", NANS, SPEC_FULL).verification.reason


def test_what_could_not_be_compared_is_said() -> None:
    def some(a: np.ndarray, b: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
        values = _reference(a, b, alpha)
        values["c"][0, 0] = np.nan
        return values

    one = record("nan", Reference(Path("r.py"), some, frozenset({"a", "b", "alpha"})), SPEC_FULL)
    assert one.verification.verdict == "passed"
    assert "1 of 153 elements of 'c' are NaN in the reference (0.65%)" in one.verification.reason
    half = record("upper_triangle", None, SPEC_FULL).verification
    assert half.verdict == "passed"
    assert half.reason.startswith("ragged: 108 of 153 elements of 'c' were not written")


def test_an_output_of_one_value_is_said() -> None:
    zeros = gemm_spec(('fill = "uniform(-1, 1)"', 'fill = "zeros()"'), ('fill = "normal(0, 1)"', 'fill = "zeros()"'))
    same = record("", None, zeros).verification
    assert (same.verdict, [bool(check.message) for check in same.checks]) == ("passed", [False, True, True])
    assert "every element of 'c' has the same value" in same.reason
    assert record("", None).verification.reason == ""


@pytest.mark.parametrize("fault", ["", "does_nothing_at_k0", "nan_at_k0"])
def test_nothing_has_to_be_written_where_there_is_nothing_to_read(fault: str) -> None:
    extra = trip_count_sets({"M": 9, "N": 5, "K": 99}, "K", 4, 2)
    base = record(fault, None, SPEC_FULL, extra)
    assert (base.verification.verdict, base.left_out) == ("passed", ())
    assert verify(base, program(fault), None, FakeExecutor()).verdict == "passed"
    if fault:
        assert verify(base, program(""), None, FakeExecutor()).verdict == "failed"


def test_both_runs_count_where_the_baseline_does_not_repeat_itself() -> None:
    for reference in (REFERENCE, None):
        base = record("float_atomics", reference, SPEC_FULL)
        racy = verify(base, program("wrong_second_time"), None, FakeExecutor())
        assert racy.verdict == "failed"
        assert "out of tolerance" in racy.reason


def test_an_extra_set_that_cannot_be_launched_is_left_out() -> None:
    extra = trip_count_sets({"M": 9, "N": 5, "K": 99}, "K", 4, 2)
    split = gemm_spec(("empty = { M = 8, N = 8, K = 0 }\n", ""), ('"ceil_div(M, BM)", 1', '"ceil_div(M, BM)", "K"'))
    base = record(spec=split, extra_sets=extra)
    assert base.verification.verdict == "passed"
    assert len(base.left_out) == 1
    assert base.left_out[0].startswith("K=0: grid.z = K is 0")


def test_an_extra_set_that_the_driver_or_the_reference_refuses_is_left_out() -> None:
    extra = {"K=0": {"M": 9, "N": 5, "K": 0}}
    executor = FakeExecutor(refuses_at=1)
    base = baseline_runs(program(), SPEC_FULL, CONSTANTS, executor, 7, REFERENCE, extra)
    assert (base.verification.verdict, base.left_out) == ("passed", ("K=0: CUDA_ERROR_INVALID_VALUE",))
    dead = baseline_runs(program(), SPEC_FULL, CONSTANTS, FakeExecutor(error_at=1), 7, REFERENCE, extra)
    assert (dead.verification.verdict, dead.verification.reason) == ("failed", "K=0: CUDA_ERROR_ILLEGAL_ADDRESS")

    def no_zero(a: np.ndarray, b: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
        if not a.size:
            raise ZeroDivisionError
        return _reference(a, b, alpha)

    picky = Reference(Path("r.py"), no_zero, frozenset({"a", "b", "alpha"}))
    assert "ZeroDivisionError" in record("", picky, SPEC_FULL, extra).left_out[0]


def test_a_variant_whose_launch_does_not_fit_fails_there() -> None:
    verdict = verify(BASELINE, program(), LaunchChange(constants={"THREADS": 4096}), FakeExecutor())
    assert verdict.verdict == "failed"
    assert "4096" in verdict.reason


def test_without_an_executor_nothing_runs() -> None:
    nothing = baseline_runs(program(), SPEC, CONSTANTS, None, 7)
    assert nothing.verification.verdict == "not_run"
    assert verify(nothing, program(), None, None).verdict == "not_run"
