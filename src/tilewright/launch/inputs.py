"""Arrays for a launch: inputs filled as the sidecar says, outputs poisoned."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tilewright.launch.bind import BoundArray, BoundLaunch
from tilewright.launch.dtypes import DType

if TYPE_CHECKING:
    import numpy as np


def make_inputs(launch: BoundLaunch, seed: int) -> dict[str, np.ndarray]:
    """The storages of all arrays whose first values matter (roles in and inout).

    Each array has a random stream of its own, drawn from the seed and its name: adding an argument changes no other.

    Args:
        seed: any integer; the same one gives the same arrays (under one version of NumPy).

    Returns:
        One-dimensional contiguous arrays by name; ``BoundLaunch.view`` gives them their shapes.
    """
    return {array.name: _first(array, seed, None) for array in launch.buffers if array.is_read_first}


def repeating_inputs(launch: BoundLaunch, seed: int, period: int) -> dict[str, np.ndarray]:
    """Of `make_inputs`, at most ``period`` random values an array, to be repeated.

    For timing, where drawing all of them would take the host seconds.
    """
    return {array.name: _first(array, seed, period) for array in launch.buffers if array.is_read_first}


def poisoned_outputs(launch: BoundLaunch, poison: int) -> dict[str, np.ndarray]:
    """The storages of all arrays that are only written, every byte set to ``poison`` (0 to 255)."""
    import numpy as np

    return {
        array.name: np.full(array.storage_elements * array.dtype.item_bytes, poison, np.uint8).view(array.dtype.numpy())
        for array in launch.buffers
        if not array.is_read_first
    }


def _first(array: BoundArray, seed: int, period: int | None) -> np.ndarray:
    """All values of an array, or the first ``period`` of random ones."""
    import numpy as np

    digest = hashlib.sha256(f"{seed}/{array.name}".encode()).digest()
    generator = np.random.Generator(np.random.SFC64(int.from_bytes(digest[:16], "little")))
    count, dtype = array.storage_elements, array.dtype
    match array.fill.function:
        case "zeros":
            return np.zeros(count, dtype.numpy())
        case "arange":
            return np.arange(count).astype(dtype.numpy())
    return _drawn(generator, array, count if period is None else min(count, period))


def _drawn(generator: np.random.Generator, array: BoundArray, count: int) -> np.ndarray:
    dtype = array.dtype
    a, b = array.fill.values or (0, 0)
    match array.fill.function:
        case "randint":
            return _integers(generator, int(a), int(b), count, dtype)
        case "uniform":
            values = generator.random(count, dtype=_drawn_type(dtype))
            values *= b - a
            values += a
        case _:
            values = generator.standard_normal(count, dtype=_drawn_type(dtype))
            values *= b
            values += a
    return values.astype(dtype.numpy(), copy=False)


def _drawn_type(dtype: DType) -> type[np.float32] | type[np.float64]:
    """float32 draws are twice as fast, and enough for every type but float64."""
    import numpy as np

    return np.float64 if dtype.name == "float64" else np.float32


def _integers(generator: np.random.Generator, low: int, high: int, count: int, dtype: DType) -> np.ndarray:
    """Whole numbers from [low, high), drawn in the narrowest type that holds them: four times as fast for bytes."""
    import numpy as np

    drawn = dtype.numpy() if dtype.kind != "float" else np.min_scalar_type(min(low, -high))
    return generator.integers(low, high, count, dtype=drawn).astype(dtype.numpy(), copy=False)
