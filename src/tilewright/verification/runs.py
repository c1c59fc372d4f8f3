"""Runs of one program with its outputs poisoned, and what a run must leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Executor, Hazard, Part, Program, RunResult
from tilewright.launch.inputs import poisoned_outputs
from tilewright.verification.compare import bitwise

if TYPE_CHECKING:
    import numpy as np

# Bytes of 0xFF are a NaN in every floating format, so that an unwritten element cannot pass for a result by accident.
POISONS = (0xFF, 0xA5)


def run_poisoned(
    executor: Executor,
    program: Program,
    launch: BoundLaunch,
    inputs: Mapping[str, np.ndarray],
    poison: int,
    attempt: int,
    part: Part = "all",
) -> RunResult:
    """One run with every byte of the outputs set to ``poison`` before."""
    arrays = {**inputs, **poisoned_outputs(launch, poison)}
    return executor.run(program, launch, arrays, attempt=attempt, part=part)


def run_twice(
    executor: Executor, program: Program, launch: BoundLaunch, inputs: Mapping[str, np.ndarray], part: Part = "all"
) -> tuple[RunResult, RunResult]:
    """Two runs with two poisons, in two orders of threads where the executor can choose one.

    Where only some blocks run, the executor says what they wrote: the second run is the first one with the other poison
    in what they did not.
    """
    first = run_poisoned(executor, program, launch, inputs, POISONS[0], 0, part)
    if first.error:
        return first, first
    if first.touched is None:
        return first, run_poisoned(executor, program, launch, inputs, POISONS[1], 1, part)
    import numpy as np

    arrays = dict(first.arrays)
    for name, poison in poisoned_outputs(launch, POISONS[1]).items():
        arrays[name] = np.where(first.touched[name], arrays[name], poison)
    return first, replace(first, arrays=arrays, hazards=())


def modified_inputs(launch: BoundLaunch, inputs: Mapping[str, np.ndarray], result: RunResult) -> tuple[Hazard, ...]:
    """One hazard for each buffer that the sidecar calls an input and that the run has changed."""
    hazards: list[Hazard] = []
    for buffer in launch.buffers:
        if buffer.is_written:
            continue
        changed = bitwise(result.arrays[buffer.name], inputs[buffer.name])
        if changed.count:
            message = (
                f"{changed.count:,} of {changed.total:,} elements of the input '{buffer.name}' were changed, "
                f"the first at {changed.first:,}; if that is meant, its role is inout."
            )
            hazards.append(Hazard("input_modified", None, message))
    return tuple(hazards)
