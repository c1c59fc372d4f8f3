"""A variant against the record of its baseline: bit for bit, twice, at every size set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.errors import EXIT_BAD_INPUT, TilewrightError
from tilewright.launch.bind import BoundLaunch, LaunchChange, bind
from tilewright.launch.executor import Executor, Hazard, Program, RunResult
from tilewright.verification.baseline import BaselineRecord, SetRecord, against_reference
from tilewright.verification.compare import bitwise, place_of, raw_bits, within
from tilewright.verification.runs import POISONS, modified_inputs, run_twice
from tilewright.verification.verdict import SizeCheck, Verification, judge, not_run

if TYPE_CHECKING:
    import numpy as np


def verify(
    record: BaselineRecord,
    program: Program,
    change: LaunchChange | None,
    executor: Executor | None,
    progress: Callable[[str], None] | None = None,
    *,
    launch_at: Callable[[Mapping[str, int]], BoundLaunch] | None = None,
    is_loose: bool = False,
) -> Verification:
    """Run a variant as the baseline was run, on the same inputs and the same two poisons, and compare.

    With a deterministic baseline every byte of every output must be the same after both runs: that covers wrong values,
    elements that only one of them writes, and results that change from run to run. Without, a tolerance replaces bit
    identity, and the verdict says so.

    Args:
        change: what the variant changes of the launch: dynamic shared bytes, constants.
        executor: the one that ran the baseline; None gives not_run.
        progress: called with the name of each set before it runs.
        launch_at: the variant's own launch at given sizes, where it has a sidecar of its own; its arrays are the
            baseline's by name.
        is_loose: a tolerance replaces bit identity, though the baseline is deterministic.
    """
    if executor is None:
        return not_run("nothing to run it on")
    if record.verification.verdict != "passed":
        return not_run(f"the baseline did not pass: {record.verification.reason}")
    hazards: list[Hazard] = []
    checks: list[SizeCheck] = []
    for one in record.sets:
        if progress:
            progress(one.name)
        try:
            launch = (
                launch_at(one.sizes)
                if launch_at is not None
                else bind(record.spec, one.sizes, record.constants, change)
            )
        except TilewrightError as error:
            # The baseline's launch was bound at this set: what cannot be bound is the variant's change of it.
            checks.append(SizeCheck(one.name, "failed", message=error.message))
            continue
        _check_arrays(launch, one)
        part = executor.part_of(one.name)
        runs = list(run_twice(executor, program, launch, one.inputs, part))
        failed = next((run for run in runs if run.error), None)
        if failed is not None and failed.is_unsupported:
            return not_run(failed.error or "")
        failure = failed.error if failed is not None else None
        if failure:
            hazards += [hazard for run in runs for hazard in run.hazards]
            checks.append(SizeCheck(one.name, "failed", message=failure))
            break  # the context may be gone
        found = _hazards(launch, one, runs)
        hazards += found
        checks.append(_check(launch, one, runs, found, is_loose))
        if found:
            break  # it is not to be used; what it does at larger sizes would only take time
    return judge(executor.name, checks, hazards, _tolerance(record, is_loose))


def _check_arrays(launch: BoundLaunch, one: SetRecord) -> None:
    """The launch must take the arrays that the baseline's inputs and outputs are kept for."""
    need = {array.name: array.storage_elements for array in one.launch.buffers}
    for array in launch.buffers:
        if array.storage_elements != need.get(array.name):
            message = f"'{array.name}' has {array.storage_elements:,} elements at the set '{one.name}'"
            raise TilewrightError(
                "verify/other_arrays",
                f"{message}, and {need.get(array.name, 0):,} in the baseline's sidecar.",
                hint="The shapes of a candidate's arrays must be the baseline's.",
                exit_code=EXIT_BAD_INPUT,
            )


def _tolerance(record: BaselineRecord, is_loose: bool) -> str:
    if not is_loose or record.verification.tolerance or not record.sets:
        return record.verification.tolerance
    derivation = next(iter(record.sets[-1].tolerances.values())).derivation
    return f"a tolerance replaces bit identity, as asked: {derivation}"


def _check(
    launch: BoundLaunch, one: SetRecord, runs: list[RunResult], hazards: tuple[Hazard, ...], is_loose: bool
) -> SizeCheck:
    if launch.grid != one.launch.grid:
        one = _where_both_ran(one, runs)
    problem, error = _compare(launch, replace(one, is_deterministic=False) if is_loose else one, runs)
    fault = hazards[0].message if hazards else problem
    same = _same_bits(one, runs) if is_loose else not problem
    return SizeCheck(
        size=one.name,
        verdict="failed" if fault else "passed",
        bit_identical=same if one.is_deterministic else None,
        max_abs_error=error,
        bound=one.bound,
        message=fault or runs[0].ran,
    )


def _same_bits(one: SetRecord, runs: list[RunResult]) -> bool:
    return not any(bitwise(runs[0].arrays[name], one.outputs[name]).count for name in one.outputs)


def _where_both_ran(one: SetRecord, runs: list[RunResult]) -> SetRecord:
    """Where only some blocks ran, and in another grid other ones than the baseline's: what both have written.

    Not the arrays that are read first: other blocks may have added other numbers to the same element.
    """
    import numpy as np

    mine = runs[0].touched
    if mine is None or one.touched is None:
        return one
    both = {name: mine[name] & one.touched[name] & (name in one.unwritten) for name in one.touched}
    outputs = {name: np.where(both[name], values, runs[0].arrays[name]) for name, values in one.outputs.items()}
    # What only the candidate wrote stands in for the baseline's in both runs, so it counts as written.
    return replace(one, outputs=outputs, unwritten={name: ~mine[name] for name in one.unwritten}, reference=None)


def _hazards(launch: BoundLaunch, one: SetRecord, runs: list[RunResult]) -> tuple[Hazard, ...]:
    found = [hazard for run in runs for hazard in run.hazards]
    found += [hazard for run in runs for hazard in modified_inputs(launch, one.inputs, run)]
    return tuple(dict.fromkeys(found))


def _compare(launch: BoundLaunch, one: SetRecord, runs: list[RunResult]) -> tuple[str, float | None]:
    """What differs from the baseline ("" for nothing), and the largest error from the reference."""
    if not one.is_deterministic:
        return _compare_loosely(launch, one, runs)
    problem = ""
    for name in one.outputs:
        difference = bitwise(runs[0].arrays[name], one.outputs[name])
        if difference.count:
            problem = problem or _describe(launch, one, runs, name)
            continue
        again = bitwise(runs[1].arrays[name], _second_expected(one, name))
        if again.count:
            text = f"{again.count:,} elements of '{name}' change from run to run: a race, or an unwritten element"
            problem = problem or text
    if not problem or one.reference is None:
        return problem, one.max_abs_error  # the same bits, so the same error
    error, _ = against_reference(launch, runs[0].arrays, one.reference, one.tolerances, {})
    return problem, error


def _second_expected(one: SetRecord, name: str) -> np.ndarray:
    """The baseline's output after the run with the second poison: the first one's, but for what it left unwritten."""
    import numpy as np

    expected = one.outputs[name]
    unwritten = one.unwritten.get(name)
    if unwritten is None or not unwritten.any():
        return expected
    bits = raw_bits(expected).copy()
    bits[unwritten] = np.full(expected.dtype.itemsize, POISONS[1], np.uint8).view(bits.dtype)[0]
    return bits.view(expected.dtype)


def _describe(launch: BoundLaunch, one: SetRecord, runs: list[RunResult], name: str) -> str:
    """The first element that differs, and in what way."""
    result, expected = runs[0].arrays[name], one.outputs[name]
    difference = bitwise(result, expected)
    array = next(array for array in launch.buffers if array.name == name)
    is_plain = array.storage_elements == _count(array.shape)
    at = place_of(difference.first, array.shape) if is_plain else f"[element {difference.first:,}]"
    head = f"{difference.count:,} of {difference.total:,} elements of '{name}' differ from the baseline; {name}{at}"
    if name in one.unwritten:
        missing = _kept_poison(runs, name)[difference.first]
        if missing and not one.unwritten[name][difference.first]:
            return f"{head} was not written"
        if one.unwritten[name][difference.first]:
            return f"{head} was written, and the baseline leaves it"
    values = f"is {float(result[difference.first]):.9g}, the baseline's {float(expected[difference.first]):.9g}"
    return f"{head} {values} (largest distance {difference.max_abs:.3g})"


def _kept_poison(runs: list[RunResult], name: str) -> np.ndarray:
    import numpy as np

    kept = np.ones(runs[0].arrays[name].size, bool)
    for run, poison in zip(runs, POISONS, strict=True):
        bits = raw_bits(run.arrays[name])
        kept &= bits == np.full(bits.dtype.itemsize, poison, np.uint8).view(bits.dtype)[0]
    return kept


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def _compare_loosely(launch: BoundLaunch, one: SetRecord, runs: list[RunResult]) -> tuple[str, float | None]:
    """For a baseline that does not repeat itself: both are within the tolerance of the truth, so within twice of it."""
    import numpy as np

    for name, expected in one.outputs.items():
        if name in one.unwritten and (_kept_poison(runs, name) != one.unwritten[name]).any():
            return f"other elements of '{name}' are written than by the baseline", None
        need = expected.astype(np.float64)
        if name in one.unwritten:
            need[one.unwritten[name]] = np.nan  # not defined: the poison is right there
        for run in runs:
            near = within(run.arrays[name], need, one.tolerances[name].twice(), one.unwritten.get(name))
            if near.count:
                text = f"{near.count:,} of {near.total:,} elements of '{name}' are out of tolerance of the baseline"
                return f"{text} (largest distance {near.max_abs:.3g})", None
    if one.reference is None:
        return "", None
    found = [against_reference(launch, r.arrays, one.reference, one.tolerances, one.unwritten) for r in runs]
    return next((miss for _, miss in found if miss), ""), max(error for error, _ in found)


def trip_count_sets(sizes: Mapping[str, int], name: str, step: int, stages: int) -> dict[str, dict[str, int]]:
    """Extra size sets at which a ring of ``stages`` buffers starts, fills and drains: 0, 1, S-1, S and S+1 tiles.

    Args:
        sizes: the set that gives the other sizes; take a small one.
        name: the size that the K-loop runs over.
        step: its advance per tile, BK.

    Returns:
        ``{"K=32": {…, "K": 32}}``, without duplicates.
    """
    trips = sorted({0, 1, stages - 1, stages, stages + 1})
    return {f"{name}={trip * step}": {**sizes, name: trip * step} for trip in trips}
