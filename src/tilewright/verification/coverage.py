"""Did a run leave anything that could be compared? Without these questions a kernel that does nothing is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.launch.bind import BoundArray, BoundLaunch
from tilewright.verification.compare import PIECE, bitwise

if TYPE_CHECKING:
    import numpy as np


def nothing_to_compare(
    launch: BoundLaunch,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    unwritten: Mapping[str, np.ndarray],
) -> str:
    """Why no comparison of these results could fail; "" where one can.

    Args:
        inputs: storages before the run.
        outputs: storages of the written buffers after it.
        unwritten: by buffer that is only written, the elements that kept both poisons.
    """
    written = [array for array in launch.arrays if array.role != "in" and array.storage_elements]
    for array in written:
        if array.owner in unwritten and launch.view(array.name, unwritten).all():
            hint = "is it an output at all, and do the sizes and the grid fit?"
            return f"no element of '{array.name}' was written: {hint}"
    changed = any(
        array.owner in unwritten or bitwise(outputs[array.owner], inputs[array.owner]).count for array in written
    )
    if written and not changed:
        names = ", ".join(f"'{array.name}'" for array in written)
        return f"no element of {names} was changed: do the sizes and the grid fit?"
    for array in written:
        if array.dtype.kind == "float" and _all_nan(launch.view(array.name, outputs)):
            return f"every element of '{array.name}' is NaN: nothing could be told apart"
    return ""


def is_starved(launch: BoundLaunch) -> bool:
    """Some input has no element (K = 0): then there may be nothing to compute, and nothing to write."""
    return any(array.storage_elements == 0 for array in launch.arrays)


def partly_compared(
    launch: BoundLaunch,
    outputs: Mapping[str, np.ndarray],
    unwritten: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray] | None,
) -> str:
    """What a pass does not cover; "" where all was compared.

    That is: elements that were not written, those that the reference does not define, and outputs that hold one value
    everywhere (after inputs of zeros, say), in which a misplaced element does not show.
    """
    import numpy as np

    notes: list[str] = []
    for array in launch.arrays:
        if array.role != "in" and array.owner in unwritten:
            notes.append(_share(array, launch.view(array.name, unwritten), "were not written"))
        if expected and array.name in expected:
            notes.append(_share(array, np.isnan(expected[array.name]), "are NaN in the reference"))
        if array.role != "in" and not is_starved(launch) and _is_constant(launch.view(array.name, outputs)):
            notes.append(f"every element of '{array.name}' has the same value: a misplaced one would not show")
    return "; ".join(note for note in notes if note)


def _share(array: BoundArray, mask: np.ndarray, what: str) -> str:
    count = int(mask.sum())
    return f"{count:,} of {mask.size:,} elements of '{array.name}' {what} ({count / mask.size:.2%})" if count else ""


def _is_constant(values: np.ndarray) -> bool:
    flat = values.reshape(-1)
    return flat.size > 1 and all(
        bool((flat[start : start + PIECE] == flat[0]).all()) for start in range(0, flat.size, PIECE)
    )


def _all_nan(values: np.ndarray) -> bool:
    import numpy as np

    flat = values.reshape(-1)
    return all(bool(np.isnan(flat[start : start + PIECE]).all()) for start in range(0, flat.size, PIECE))
