"""Size sets at which a K-loop's ring starts, fills and drains."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import TiledKernel
from tilewright.kloop.trips import trip_count
from tilewright.launch.bind import bind
from tilewright.launch.spec import LaunchSpec
from tilewright.verification.variant import trip_count_sets

_DOUBLINGS = 8
_TRIPS_WITH_REST = 3


def trip_sets(
    kernel: TiledKernel, spec: LaunchSpec | None, constants: Mapping[str, int | float], stages: tuple[int, ...]
) -> tuple[str | None, dict[str, dict[str, int]]]:
    """The size that the K-loop runs over, and size sets with 0, 1, S-1, S and S+1 tiles for each ring of S stages."""
    found = _reduction(kernel, spec, constants)
    if spec is None or found is None:
        return None, {}
    name, step = found
    out: dict[str, dict[str, int]] = {}
    for s in stages or (2,):
        out |= trip_count_sets(_small(spec), name, step, s)
    return name, dict(sorted(out.items(), key=lambda kv: kv[1][name]))


def ragged_sets(
    kernel: TiledKernel, spec: LaunchSpec | None, constants: Mapping[str, int | float]
) -> dict[str, dict[str, int]]:
    """Size sets whose last tile is used in part, where the K-loop covers it: what half tiles may do otherwise.

    A copy that clamps its index reads the last element again, once for each place of the tile that is left: how often
    depends on the depth of the tile. A loop over whole tiles leaves the rest out: no size of its own.
    """
    found = _reduction(kernel, spec, constants)
    if spec is None or found is None:
        return {}
    name, step = found
    out: dict[str, dict[str, int]] = {}
    for rest in sorted({1, step // 2}):
        sizes = {**_small(spec), name: 2 * step + rest}
        if 0 < rest < step and _trips(kernel, spec, constants, sizes) == _TRIPS_WITH_REST:
            out[f"{name}={sizes[name]}"] = sizes
    return out


def _small(spec: LaunchSpec) -> dict[str, int]:
    return dict(spec.sizes.get("small", spec.sizes["default"]))


def _trips(
    kernel: TiledKernel, spec: LaunchSpec, constants: Mapping[str, int | float], sizes: dict[str, int]
) -> int | None:
    try:
        return trip_count(kernel, bind(spec, sizes, constants).scalars)
    except TilewrightError:
        return None  # no launch at all: a size of the block, say


def _reduction(
    kernel: TiledKernel, spec: LaunchSpec | None, constants: Mapping[str, int | float]
) -> tuple[str, int] | None:
    """The one size that the K-loop runs over, and how much of it a tile takes."""
    if spec is None or not kernel.tile.bk:
        return None
    sizes, depth = _small(spec), kernel.tile.bk
    here = _trips(kernel, spec, constants, sizes)
    if here is None:
        return None
    # The loop may count in other units than the size does: tiles of 16, say.
    depths = [depth << i for i in range(_DOUBLINGS)]
    found = {
        n: d
        for n in sizes
        for d in depths[::-1]
        if all(_trips(kernel, spec, constants, {**sizes, n: sizes[n] + more * d}) == here + more for more in (1, 4))
    }
    return found.popitem() if len(found) == 1 else None
