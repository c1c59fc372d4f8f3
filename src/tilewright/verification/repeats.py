"""How far apart two runs of one kernel on the same inputs may be: as far as roundings in another order take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import RunResult
from tilewright.verification.compare import place_of, within
from tilewright.verification.tolerance import Tolerance

if TYPE_CHECKING:
    import numpy as np


def too_far_apart(
    launch: BoundLaunch,
    runs: tuple[RunResult, RunResult],
    tolerances: Mapping[str, Tolerance],
    unwritten: Mapping[str, np.ndarray],
) -> str:
    """What differs between two runs by more than twice the tolerance; "" where nothing does.

    Sums of floats in another order (atomics, split-K) stay within it. A race does not, as a rule.
    """
    import numpy as np

    for array in launch.buffers:
        if not array.is_written or not array.storage_elements:
            continue
        name = array.name
        first, second = (run.arrays[name] for run in runs)
        skip = unwritten.get(name)
        need = first.astype(np.float64)
        if skip is not None:
            need[skip] = np.nan
        far = within(second, need, tolerances[name].twice(), skip)
        if far.count:
            is_plain = array.storage_elements == int(np.prod(array.shape))
            at = place_of(far.first, array.shape) if is_plain else f"[element {far.first:,}]"
            return (
                f"{far.count:,} of {far.total:,} elements of '{name}' change from run to run, by more than "
                f"roundings do; {name}{at} is {float(first[far.first]):.9g} and then {float(second[far.first]):.9g}: "
                "they depend on the order of threads or blocks, or on local memory that nothing wrote"
            )
    return ""
