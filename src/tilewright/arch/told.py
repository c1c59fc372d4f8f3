"""Where a card is present its own answers win over the tables; what it says comes in as numbers. All pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.arch.arch import Arch
from tilewright.errors import TilewrightError

# The limits that a driver tells (cuDeviceGetAttribute), by the table's names.
TOLD = frozenset(
    (
        *("warp_size", "max_threads_per_block", "max_threads_per_sm", "max_blocks_per_sm"),
        *("registers_per_block", "registers_per_sm"),
        *("smem_per_sm_bytes", "smem_static_max_bytes", "smem_optin_max_bytes", "smem_reserved_bytes"),
    )
)
SOURCE = "Told by the driver of the card that is present"


@dataclass(frozen=True)
class Difference:
    """A limit of which the card says something else than the table."""

    name: str
    table: int
    card: int

    @property
    def text(self) -> str:
        return f"{self.name}: the card says {self.card:,}, the table {self.table:,}"


def corrected(arch: Arch, told: Mapping[str, int]) -> tuple[Arch, tuple[Difference, ...]]:
    """The architecture with what a card says of itself, and where that differs from the table.

    Args:
        told: limits by their names in `Arch`; any of ``TOLD``.

    Raises:
        TilewrightError: ``arch/bad_data``, for a limit that no driver tells.
    """
    unknown = sorted(told.keys() - TOLD)
    if unknown:
        raise TilewrightError("arch/bad_data", f"A driver does not tell {', '.join(unknown)}.", {"unknown": unknown})
    found = tuple(
        Difference(name, int(getattr(arch, name)), value)
        for name, value in told.items()
        if getattr(arch, name) != value
    )
    if not found:
        return arch, ()
    changes: dict[str, object] = {difference.name: difference.card for difference in found}
    merged = replace(arch, **changes)  # type: ignore[arg-type]
    most = merged.smem_per_sm_bytes
    merged = replace(
        merged,
        max_warps_per_sm=merged.max_threads_per_sm // merged.warp_size,
        smem_carveouts_bytes=(*(step for step in arch.smem_carveouts_bytes if step < most), most),
        sources={**arch.sources, **dict.fromkeys(changes, SOURCE)},
        kinds={**arch.kinds, **dict.fromkeys(changes, "measured")},
    )
    return merged, found
