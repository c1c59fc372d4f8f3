"""Which rung is timed against which peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.launching import _runs
from tilewright.ladder.peers import peers_of

if TYPE_CHECKING:
    from tilewright.gpu.device import GpuInfo


def groups_of(family: Family) -> tuple[str, ...]:
    """The groups of a family's peers, see ``peers.Peer``; that of the exact ones, "", first."""
    return tuple(dict.fromkeys(("", *(p.group for p in peers_of(family.name)))))


def best_of(family: Family, group: str, sizes: Mapping[str, int], dtype: str, info: GpuInfo) -> Rung | None:
    """The rung that `Ladder.call` picks; of a group that it never picks, the last one that takes the sizes."""
    if not group:
        try:
            return family.best(sizes, dtype, lambda arch: _runs(arch, info))
        except TilewrightError:
            return None
    named = [r.at(sizes, dtype) for r in reversed(family.rungs) if group in r.name and dtype in r.dtypes]
    fits = (r for r in named if not r.misfit(sizes) and (r.min_arch is None or _runs(r.min_arch, info)))
    return next(fits, None)
