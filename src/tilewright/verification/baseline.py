"""The baseline's own runs: its outputs at every size set, whether it repeats itself, and how near a reference it is.

They are made once and used for every variant. Each set is run twice, with two poisons in the outputs: an element that
keeps both was not written, and one that otherwise differs tells of a kernel that is not deterministic, or that reads
its outputs before it writes them. A third run, with the first poison again, tells these two apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.executor import Executor, Hazard, Part, Program, RunResult
from tilewright.launch.inputs import make_inputs
from tilewright.launch.spec import LaunchSpec
from tilewright.verification.compare import bitwise, place_of, raw_bits, root_mean_square, within
from tilewright.verification.coverage import is_starved, nothing_to_compare, partly_compared
from tilewright.verification.reference import Reference
from tilewright.verification.repeats import too_far_apart
from tilewright.verification.runs import POISONS, modified_inputs, run_poisoned, run_twice
from tilewright.verification.tolerance import Tolerance, derive, read_arithmetic
from tilewright.verification.verdict import SizeCheck, Verification, judge, not_run

if TYPE_CHECKING:
    import numpy as np


# Kinds of hazards that no choice of sizes excuses.
NO_LIMITS = ("race_", "read_in_flight", "write_in_flight", "async_read_in_flight", "missing_proxy_fence")


@dataclass(frozen=True)
class SetRecord:
    """What the baseline did at one size set.

    Attributes:
        name: of the set.
        sizes: its values.
        seed: of its inputs.
        launch: the baseline's.
        inputs: storages before the run.
        outputs: storages of the written buffers after the run with the first poison; empty where the run failed.
        unwritten: for each buffer that is only written, which elements kept both poisons.
        is_deterministic: two runs gave the same bits.
        reference: float64 results by argument; None without a reference.
        tolerances: by buffer (by argument too, where there is a reference).
        max_abs_error: from the reference.
        hazards: of the baseline's runs.
        problem: what is wrong with the baseline here; "" where nothing is.
        note: what share of the outputs could not be compared; "" where all was.
        touched: where only some blocks ran: which elements they wrote, by storage.
        is_unsupported: the problem is a limit of the executor's.
    """

    name: str
    sizes: Mapping[str, int]
    seed: int
    launch: BoundLaunch
    inputs: Mapping[str, np.ndarray] = field(repr=False)
    outputs: Mapping[str, np.ndarray] = field(repr=False)
    unwritten: Mapping[str, np.ndarray] = field(repr=False)
    is_deterministic: bool
    reference: Mapping[str, np.ndarray] | None = field(repr=False)
    tolerances: Mapping[str, Tolerance]
    max_abs_error: float | None
    hazards: tuple[Hazard, ...]
    problem: str
    note: str = ""
    touched: Mapping[str, np.ndarray] | None = field(default=None, repr=False)
    is_unsupported: bool = False

    @property
    def bound(self) -> float | None:
        """The largest absolute tolerance of what the reference gives."""
        return max((self.tolerances[name].absolute for name in self.reference or ()), default=None)


@dataclass(frozen=True)
class BaselineRecord:
    """The baseline at every size set, small sets first.

    Attributes:
        program: the baseline.
        spec, constants: what the sets were bound with.
        seed: all inputs come from it.
        sets: in the order in which they ran.
        left_out: sets that no variant has to handle, each with the reason: extra ones that the baseline does not
            handle, and one of which the executor runs a part, where it comes to nothing.
        verification: the baseline's own verdict. It fails where it strays out of its buffers, changes its inputs,
            leaves unwritten what the reference defines, misses the reference, or leaves nothing to compare: an output
            without a written element, or of NaNs alone.
    """

    program: Program
    spec: LaunchSpec
    constants: Mapping[str, int | float]
    seed: int
    sets: tuple[SetRecord, ...]
    verification: Verification
    left_out: tuple[str, ...] = ()

    @property
    def is_deterministic(self) -> bool:
        return all(record.is_deterministic for record in self.sets)


def baseline_runs(
    program: Program,
    spec: LaunchSpec,
    constants: Mapping[str, int | float],
    executor: Executor | None,
    seed: int,
    reference: Reference | None = None,
    extra_sets: Mapping[str, Mapping[str, int]] | None = None,
    reduction: str = "K",
    progress: Callable[[str], None] | None = None,
) -> BaselineRecord:
    """Run the baseline at every set of the sidecar and at ``extra_sets``, at each of them at least twice.

    Args:
        executor: None gives a record whose verdict is not_run.
        seed: of all inputs; take a fresh one for every run, and keep it with the result.
        extra_sets: further sizes by name, such as trip counts: ``{"K=32": {"M": 64, "N": 64, "K": 32}}``. One that the
            baseline itself does not handle is left out, and named in the record.
        reduction: the size (or constant) that is the length of the inner products, for the tolerance.
        progress: called with the name of each set before it runs.
    """
    if executor is None:
        return BaselineRecord(program, spec, constants, seed, (), not_run("nothing to run it on"))
    sets = {**spec.sizes, **(extra_sets or {})}
    records: list[SetRecord] = []
    left_out: list[str] = []
    for name in _small_first(sets):
        if progress:
            progress(name)
        is_extra = name not in spec.sizes
        try:
            # Where only some blocks run, they run once: whether the kernel repeats itself, the other sets have shown.
            repeats = executor.part_of(name) == "all" or all(r.is_deterministic for r in records)
            what = (name, sets[name], seed)
            record = _run_set(program, spec, constants, executor, what, reference, reduction, repeats)
        except TilewrightError as error:
            if not is_extra:
                raise
            left_out.append(f"{name}: {error.message}")  # its grid is empty, or the reference has no answer
            continue
        if record.is_unsupported and executor.part_of(name) != "all" and records:
            left_out.append(f"{name}: {record.problem}")  # the other sets ran whole
            continue
        if record.is_unsupported:
            return BaselineRecord(program, spec, constants, seed, (), not_run(record.problem))
        # A race or a missing wait is no limit of the sizes: whoever allows more tiles gets it.
        is_race = any(hazard.kind.startswith(NO_LIMITS) for hazard in record.hazards)
        if record.problem and is_extra and not is_race and not executor.is_dead:
            left_out.append(f"{name}: {record.problem}")
            continue
        records.append(record)
        if record.problem and not record.outputs:
            break  # a launch that failed: the later ones would tell nothing more, and a dead context cannot run them
    return BaselineRecord(program, spec, constants, seed, tuple(records), _judge(records, executor), tuple(left_out))


def set_seed(seed: int, name: str) -> int:
    """The seed of one set: fresh inputs for each of them, all from one recorded number."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little")


def _small_first(sets: Mapping[str, Mapping[str, int]]) -> list[str]:
    def volume(name: str) -> int:
        product = 1
        for value in sets[name].values():
            product *= max(value, 1)
        return product

    return sorted(sets, key=volume)


def _run_set(
    program: Program,
    spec: LaunchSpec,
    constants: Mapping[str, int | float],
    executor: Executor,
    what: tuple[str, Mapping[str, int], int],
    reference: Reference | None,
    reduction: str,
    is_repeatable: bool,
) -> SetRecord:
    name, sizes, base_seed = what
    launch = bind(spec, sizes, constants)
    seed = set_seed(base_seed, name)
    inputs = make_inputs(launch, seed)
    part = executor.part_of(name)
    first, second = run_twice(executor, program, launch, inputs, part)
    error = first.error or second.error
    if error:
        hazards = first.hazards or second.hazards
        limit = first.is_unsupported or second.is_unsupported
        return SetRecord(
            name, sizes, seed, launch, inputs, {}, {}, True, None, {}, None, hazards, error, is_unsupported=limit
        )
    hazards = tuple(dict.fromkeys((*first.hazards, *second.hazards, *modified_inputs(launch, inputs, first))))
    unwritten = _unwritten(launch, first, second)
    problem = _reads_outputs(executor, program, launch, inputs, (first, second), unwritten, part)
    outputs = {buffer.name: first.arrays[buffer.name] for buffer in launch.buffers if buffer.is_written}
    if name == "default" or not is_starved(launch):
        problem = problem or nothing_to_compare(launch, inputs, outputs, unwritten)
    length = sizes.get(reduction, constants.get(reduction))
    expected = reference.compute(launch, inputs) if reference else None
    if expected is not None and first.touched is not None:
        expected = _of_touched(launch, expected, first.touched)
    tolerances = _tolerances(program, launch, outputs, expected, None if length is None else int(length))
    max_abs_error = None
    if expected is not None:
        max_abs_error, miss = against_reference(launch, outputs, expected, tolerances, unwritten)
        problem = problem or miss
    is_same = not _differing(first, second, unwritten, outputs)
    if not is_same and not problem and not hazards:
        problem = too_far_apart(launch, (first, second), tolerances, unwritten)
    return SetRecord(
        name=name,
        sizes=dict(sizes),
        seed=seed,
        launch=launch,
        inputs=inputs,
        outputs=outputs,
        unwritten=unwritten,
        is_deterministic=is_repeatable and is_same,
        reference=expected,
        tolerances=tolerances,
        max_abs_error=max_abs_error,
        hazards=hazards,
        problem=problem or (hazards[0].message if hazards else ""),
        note=first.ran or partly_compared(launch, outputs, unwritten, expected),
        touched=first.touched,
    )


def _of_touched(
    launch: BoundLaunch, expected: Mapping[str, np.ndarray], touched: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The reference where the blocks that ran have written; NaN, which is "not defined", elsewhere.

    Without the arrays that are read first: what is added to one may come from every block, and not all of them ran.
    """
    import numpy as np

    written = {array.name for array in launch.arrays if not array.is_read_first}
    return {
        name: np.where(launch.view(name, touched), values, np.nan)
        for name, values in expected.items()
        if name in written
    }


def _unwritten(launch: BoundLaunch, first: RunResult, second: RunResult) -> dict[str, np.ndarray]:
    """For each buffer that is only written: True where both runs left their poison."""
    import numpy as np

    masks: dict[str, np.ndarray] = {}
    for buffer in launch.buffers:
        if buffer.is_read_first:
            continue
        bits = [raw_bits(run.arrays[buffer.name]) for run in (first, second)]
        fills = [np.full(buffer.dtype.item_bytes, poison, np.uint8).view(bits[0].dtype)[0] for poison in POISONS]
        masks[buffer.name] = (bits[0] == fills[0]) & (bits[1] == fills[1])
    return masks


def _differing(
    first: RunResult, second: RunResult, unwritten: Mapping[str, np.ndarray], names: Mapping[str, object]
) -> list[str]:
    """The buffers in which two runs differ where they were written."""
    return [name for name in names if bitwise(first.arrays[name], second.arrays[name], unwritten.get(name)).count]


def _reads_outputs(
    executor: Executor,
    program: Program,
    launch: BoundLaunch,
    inputs: Mapping[str, np.ndarray],
    runs: tuple[RunResult, RunResult],
    unwritten: Mapping[str, np.ndarray],
    part: Part,
) -> str:
    """Say so where results follow the poison: the kernel reads an output before it writes it."""
    suspects = _differing(*runs, unwritten, unwritten)
    if not suspects:
        return ""
    # The order of threads is the second run's, so that only the poison differs from it.
    third = run_poisoned(executor, program, launch, inputs, POISONS[0], 1, part)
    if third.error:
        return third.error
    for name in suspects:
        if not bitwise(third.arrays[name], runs[0].arrays[name]).count:
            return f"results in '{name}' depend on what it held before: it is read, so its role is inout, not out"
    return ""


def _tolerances(
    program: Program,
    launch: BoundLaunch,
    outputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray] | None,
    reduction: int | None,
) -> dict[str, Tolerance]:
    """By argument from the reference; by buffer from the baseline's own result, for a baseline that does not repeat."""
    import numpy as np

    inputs = [array.dtype for array in launch.arrays if array.is_read_first]
    arithmetic = read_arithmetic(program.ptx, inputs)
    by_name = {array.name: array.dtype for array in launch.arrays}
    tolerances: dict[str, Tolerance] = {}
    for name, values in {**outputs, **(expected or {})}.items():
        with np.errstate(all="ignore"):
            rms = root_mean_square(values.astype(np.float64, copy=False))
        tolerances[name] = derive(by_name[name], inputs, arithmetic, reduction, rms)
    return tolerances


def against_reference(
    launch: BoundLaunch,
    outputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    tolerances: Mapping[str, Tolerance],
    unwritten: Mapping[str, np.ndarray],
) -> tuple[float, str]:
    """The largest error of all outputs, and what is out of tolerance ("" where nothing is)."""
    worst, miss = 0.0, ""
    for name, values in expected.items():
        owner = next(array.owner for array in launch.arrays if array.name == name)
        mask = launch.view(name, unwritten) if owner in unwritten else None
        result = launch.view(name, outputs)
        difference = within(result, values, tolerances[name], mask)
        worst = max(worst, difference.max_abs)
        if difference.count and not miss:
            where = place_of(difference.first, values.shape)
            got, need = result.reshape(-1)[difference.first], values.reshape(-1)[difference.first]
            blank = mask is not None and bool(mask.reshape(-1)[difference.first])
            what = "was not written" if blank else f"is {float(got):.6g}"
            miss = (
                f"{difference.count:,} of {difference.total:,} elements of '{name}' miss the reference; "
                f"{name}{where} {what}, and {float(need):.6g} is needed "
                f"(tolerance {tolerances[name].absolute:.2g} + {tolerances[name].relative:.2g} |x|)"
            )
    return worst, miss


def _judge(records: list[SetRecord], executor: Executor) -> Verification:
    checks = [
        SizeCheck(
            size=record.name,
            verdict="failed" if record.problem else "passed",
            bit_identical=True if record.is_deterministic and record.outputs else None,
            max_abs_error=record.max_abs_error,
            bound=record.bound,
            message=record.problem or record.note,
        )
        for record in records
    ]
    loose = [record for record in records if not record.is_deterministic]
    tolerance = ""
    if loose:
        derivation = next(iter(loose[0].tolerances.values())).derivation
        tolerance = f"the baseline is not deterministic, so a tolerance replaces bit identity: {derivation}"
    return judge(executor.name, checks, [hazard for record in records for hazard in record.hazards], tolerance)
