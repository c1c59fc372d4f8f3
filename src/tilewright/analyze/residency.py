"""What fits on an SM, what stops the next block, and where the edges are."""

from __future__ import annotations

from tilewright.analyze.record import Cliff, Residency, SharedCliff
from tilewright.arch.arch import Arch
from tilewright.arch.cliffs import Change, Launch, cliffs
from tilewright.arch.devices import Device
from tilewright.arch.occupancy import Occupancy, occupancy, smem_cliff


def residency(
    arch: Arch, device: Device | None, threads: int, registers: int, smem_bytes: int, blocks: int | None
) -> tuple[Residency, Occupancy]:
    """Of a block as it is launched."""
    fit = occupancy(arch, threads, registers, smem_bytes)
    waves = tail = None
    if blocks is not None and device is not None and fit.blocks_per_sm:
        places = device.sms * fit.blocks_per_sm
        waves = blocks / places
        tail = (blocks % places or places) / places
    limits = {str(name): count for name, count in fit.limits.items()}
    edges = _cliffs(arch, threads, registers, smem_bytes) if fit.blocks_per_sm else ()
    return Residency(fit.blocks_per_sm, fit.warps_per_sm, fit.share, fit.limiter, limits, edges, waves, tail), fit


def shared_cliff(arch: Arch, threads: int, registers: int, smem_bytes: int, fit: Occupancy) -> SharedCliff:
    """The ladder of shared bytes from the present number of blocks per SM down to one, and the step above."""
    counts = range(fit.blocks_per_sm + 1, 0, -1)
    ladder = [(n, most) for n in counts if (most := smem_cliff(arch, threads, registers, n)) is not None]
    reserved = f"{arch.smem_per_sm_bytes // 1024} KiB per SM, {arch.smem_reserved_bytes} bytes reserved per block"
    here = next((most for n, most in ladder if n == fit.blocks_per_sm), None)
    if here is None:
        text = f"not one block fits on an SM of {arch.name} ({reserved})"
    else:
        text = f"{smem_bytes:,} bytes a block; a block per SM is lost beyond {here:,} ({reserved})"
    return SharedCliff(smem_bytes, tuple(ladder), text)


def _cliffs(arch: Arch, threads: int, registers: int, smem_bytes: int) -> tuple[Cliff, ...]:
    """The smallest change of each resource that loses a block, and that gains one."""
    found = cliffs(arch, Launch(threads, registers, smem_bytes))
    losing = [_cliff(change, "lose", "or more") for change in found.loses.values()]
    return (*losing, *(_cliff(change, "gain", "or fewer") for change in found.gains.values()))


def _cliff(change: Change, verb: str, side: str) -> Cliff:
    unit = {"registers": "registers a thread", "shared": "shared bytes", "threads": "threads"}[change.resource]
    told = f"{change.blocks_per_sm} per SM, {change.warps_per_sm} warps"
    text = f"{change.value:,} {unit} {side} ({change.delta:+,}) {verb} a block: {told}"
    return Cliff(change.resource, change.value, change.blocks_per_sm, text)
