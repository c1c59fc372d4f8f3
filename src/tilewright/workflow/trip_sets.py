"""Size sets at which a K-loop's ring starts, fills and drains."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.spec import LaunchSpec
from tilewright.tiled.kernel import TiledKernel
from tilewright.tiled.trips import trip_count
from tilewright.verification.variant import trip_count_sets

_DOUBLINGS = 8


def trip_sets(
    kernel: TiledKernel, spec: LaunchSpec | None, constants: Mapping[str, int | float], stages: tuple[int, ...]
) -> tuple[str | None, dict[str, dict[str, int]]]:
    """The size that the K-loop runs over, and size sets with 0, 1, S-1, S and S+1 tiles for each ring of S stages."""
    if spec is None or not kernel.tile.bk:
        return None, {}
    sizes = spec.sizes.get("small", spec.sizes["default"])
    depth = kernel.tile.bk

    def trips(changed: dict[str, int]) -> int | None:
        try:
            return trip_count(kernel, bind(spec, changed, constants).scalars)
        except TilewrightError:
            return None  # no launch at all: a size of the block, say

    here = trips(dict(sizes))
    if here is None:
        return None, {}
    # The loop may count in other units than the size does: tiles of 16, say.
    depths = [depth << i for i in range(_DOUBLINGS)]
    found = {
        n: d
        for n in sizes
        for d in depths[::-1]
        if all(trips({**sizes, n: sizes[n] + more * d}) == here + more for more in (1, 4))
    }
    if len(found) != 1:
        return None, {}
    name, step = found.popitem()
    out: dict[str, dict[str, int]] = {}
    for s in stages or (2,):
        out |= trip_count_sets(sizes, name, step, s)
    return name, dict(sorted(out.items(), key=lambda kv: kv[1][name]))
