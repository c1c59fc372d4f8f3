"""How many blocks of a kernel fit on one SM, and what stops the next one.

The rules are those of ``cuda_occupancy.h`` in the CUDA toolkit, for kernels that use the largest shared-memory
carve-out and one barrier. All functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch

Limiter = Literal["shared", "registers", "warps", "blocks"]


@dataclass(frozen=True)
class Occupancy:
    """What fits on one SM.

    Attributes:
        blocks_per_sm: resident blocks; 0 when the kernel cannot be launched at all.
        warps_per_sm: resident warps.
        limiter: what stops one more block. Where several stop it at once: shared memory first, then registers, warps,
            and the number of blocks, because the first ones are what a programmer can change.
        limits: blocks per SM that each resource alone would allow.
        share: resident warps over the most that the SM holds, 0 to 1.
        needs_opt_in: the block asks for more shared bytes than it gets without ``cudaFuncSetAttribute``.
    """

    blocks_per_sm: int
    warps_per_sm: int
    limiter: Limiter
    limits: dict[Limiter, int]
    share: float
    needs_opt_in: bool


def occupancy(arch: Arch, threads: int, registers_per_thread: int, smem_bytes: int) -> Occupancy:
    """Resident blocks and warps per SM.

    Args:
        threads: per block.
        registers_per_thread: as the compiler reports them.
        smem_bytes: per block as launched, static and dynamic, without what the system reserves.
    """
    warps = _ceil_div(threads, arch.warp_size)
    limits: dict[Limiter, int] = {
        "shared": _blocks_by_shared(arch, smem_bytes),
        "registers": _blocks_by_registers(arch, warps, registers_per_thread),
        "warps": arch.max_warps_per_sm // warps if threads <= arch.max_threads_per_block else 0,
        "blocks": arch.max_blocks_per_sm,
    }
    # min() keeps the first of equals: the order above is the order of preference.
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        limiter=limiter,
        limits=limits,
        share=blocks * warps / arch.max_warps_per_sm,
        needs_opt_in=smem_bytes > arch.smem_static_max_bytes,
    )


def smem_cliff(arch: Arch, threads: int, registers_per_thread: int, blocks: int) -> int | None:
    """The most shared bytes per block with which ``blocks`` blocks still fit on an SM: one byte more loses a block.

    None when registers, warps or the number of blocks do not allow that many anyway, or ``blocks`` is below 1.
    """
    if blocks < 1 or occupancy(arch, threads, registers_per_thread, 0).blocks_per_sm < blocks:
        return None
    share = arch.smem_per_sm_bytes // blocks
    share -= share % arch.smem_granularity_bytes
    return min(share - arch.smem_reserved_bytes, arch.smem_optin_max_bytes)


def register_cliff(arch: Arch, threads: int, blocks: int) -> int:
    """The most registers per thread with which ``blocks`` blocks still fit in the register file; 0 when none do."""
    warps = _ceil_div(threads, arch.warp_size)
    fitting = (r for r in range(arch.max_registers_per_thread, 0, -1) if _blocks_by_registers(arch, warps, r) >= blocks)
    return next(fitting, 0)


def _blocks_by_shared(arch: Arch, smem_bytes: int) -> int:
    if smem_bytes > arch.smem_optin_max_bytes:
        return 0
    taken = _round_up(smem_bytes + arch.smem_reserved_bytes, arch.smem_granularity_bytes)
    # Where the system reserves nothing, a block without shared memory is not limited by it.
    return arch.smem_per_sm_bytes // taken if taken else arch.max_blocks_per_sm


def _blocks_by_registers(arch: Arch, warps: int, registers_per_thread: int) -> int:
    if registers_per_thread > arch.max_registers_per_thread:
        return 0
    per_warp = _round_up(max(registers_per_thread, 1) * arch.warp_size, arch.register_granularity)
    # The launch check counts a block's warps as if every partition held the same number of them.
    if per_warp * _round_up(warps, arch.register_partitions) > arch.registers_per_block:
        return 0
    warps_per_partition = arch.registers_per_sm // arch.register_partitions // per_warp
    return warps_per_partition * arch.register_partitions // warps


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _round_up(a: int, b: int) -> int:
    return _ceil_div(a, b) * b
