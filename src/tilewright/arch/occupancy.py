"""How many blocks of a kernel fit on one SM, what stops the next one, and what the resident ones leave unused.

The rules are those of ``cuda_occupancy.h`` in the CUDA toolkit; where they come to their edges is in ``arch.cliffs``.
All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.errors import TilewrightError

Limiter = Literal["shared", "registers", "warps", "blocks", "barriers"]


@dataclass(frozen=True)
class Occupancy:
    """What fits on one SM.

    Attributes:
        blocks_per_sm: resident blocks; 0 when the kernel cannot be launched at all.
        warps_per_sm: resident warps.
        limiter: what stops one more block. Where several stop it at once: shared memory first, then registers, warps,
            and the number of blocks, because the first ones are what a programmer can change.
        limits: blocks per SM that each resource alone would allow; without those that limit nothing (no shared memory
            where the system reserves none, an empty kernel's registers, barriers before Hopper).
        share: resident warps over the most that the SM holds, 0 to 1.
        needs_opt_in: the block asks for more shared bytes than it gets without ``cudaFuncSetAttribute``.
        carveout_bytes: the size that the SM's shared memory is set to.
        registers_per_block: as the SM hands them out, rounded up per warp.
        smem_per_block_bytes: the same of shared memory, with what the system reserves.
        idle_lanes_per_block: lanes of the last warp that no thread uses.
        free_warps, free_registers, free_smem_bytes: of the SM, beside the resident blocks.
    """

    blocks_per_sm: int
    warps_per_sm: int
    limiter: Limiter
    limits: dict[Limiter, int]
    share: float
    needs_opt_in: bool
    carveout_bytes: int
    registers_per_block: int
    smem_per_block_bytes: int
    idle_lanes_per_block: int
    free_warps: int
    free_registers: int
    free_smem_bytes: int


def occupancy(
    arch: Arch,
    threads: int,
    registers_per_thread: int,
    smem_bytes: int,
    *,
    carveout_bytes: int | None = None,
    barriers: int = 1,
    opted_in: bool = True,
) -> Occupancy:
    """Resident blocks and warps per SM.

    Args:
        threads: per block.
        registers_per_thread: as the compiler reports them.
        smem_bytes: per block as launched, static and dynamic, without what the system reserves.
        carveout_bytes: the shared memory that the SM is asked to have (`preferred_carveout`), as a wish: it is rounded
            up to a step, and up to what one block needs. None for the largest.
        barriers: hardware barriers of a block (``__syncthreads`` is one).
        opted_in: the launch raised its limit of shared bytes where it needs to; else such a launch fails: 0 blocks.

    Raises:
        TilewrightError: ``arch/bad_launch``, for a block without threads or a negative size.
    """
    if threads < 1 or min(registers_per_thread, smem_bytes, barriers) < 0:
        facts = {"threads": threads, "registers": registers_per_thread, "smem_bytes": smem_bytes, "barriers": barriers}
        raise TilewrightError(
            "arch/bad_launch",
            f"A block of {threads} threads, {registers_per_thread} registers and {smem_bytes} shared bytes is none.",
            facts,
            "A block has at least one thread, and no size is negative.",
        )
    warps = ceil_div(threads, arch.warp_size)
    carveout = _carveout(arch, smem_bytes, carveout_bytes)
    each: dict[Limiter, int | None] = {
        "shared": _blocks_by_shared(arch, smem_bytes, carveout, opted_in),
        "registers": blocks_by_registers(arch, warps, registers_per_thread) if registers_per_thread else None,
        "warps": arch.max_warps_per_sm // warps if threads <= arch.max_threads_per_block else 0,
        "blocks": arch.max_blocks_per_sm,
        "barriers": arch.barriers_per_sm // barriers if barriers and arch.barriers_per_sm else None,
    }
    limits = {name: blocks for name, blocks in each.items() if blocks is not None}
    # min() keeps the first of equals: the order above is the order of preference.
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    registers = _registers_per_warp(arch, registers_per_thread) * warps
    smem = _smem_per_block(arch, smem_bytes)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        limiter=limiter,
        limits=limits,
        share=blocks * warps / arch.max_warps_per_sm,
        needs_opt_in=smem_bytes > arch.smem_static_max_bytes,
        carveout_bytes=carveout,
        registers_per_block=registers,
        smem_per_block_bytes=smem,
        idle_lanes_per_block=warps * arch.warp_size - threads,
        free_warps=arch.max_warps_per_sm - blocks * warps,
        free_registers=arch.registers_per_sm - blocks * registers,
        free_smem_bytes=carveout - blocks * smem,
    )


def preferred_carveout(arch: Arch, percent: int) -> int:
    """Bytes of shared memory that ``cudaFuncAttributePreferredSharedMemoryCarveout`` asks for: the next step up.

    Args:
        percent: 0 to 100 of the most that an SM has.
    """
    wanted = percent * arch.smem_per_sm_bytes // 100
    return next((step for step in arch.smem_carveouts_bytes if step >= wanted), arch.smem_per_sm_bytes)


def split_registers(groups: Iterable[tuple[int, int]]) -> int:
    """Registers of a block whose warp groups have agreed on shares with ``setmaxnreg``.

    Args:
        groups: (threads, registers a thread) of each.

    Raises:
        TilewrightError: ``arch/bad_launch``, where ``setmaxnreg`` takes no such number (PTX ISA, setmaxnreg: 24 to 256,
            a multiple of 8).
    """
    total = 0
    for threads, registers in groups:
        if not 24 <= registers <= 256 or registers % 8:
            raise TilewrightError(
                "arch/bad_launch",
                f"setmaxnreg takes no {registers} registers.",
                {"registers": registers},
                "It takes a multiple of 8 from 24 to 256.",
            )
        total += threads * registers
    return total


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
    warps = ceil_div(threads, arch.warp_size)
    fitting = (r for r in range(arch.max_registers_per_thread, 0, -1) if blocks_by_registers(arch, warps, r) >= blocks)
    return next(fitting, 0)


def blocks_by_registers(arch: Arch, warps: int, registers_per_thread: int) -> int:
    """Blocks of so many warps that the register file holds (of 1 register or more); 0 where one is over a limit."""
    if registers_per_thread > arch.max_registers_per_thread:
        return 0
    per_warp = _registers_per_warp(arch, registers_per_thread)
    # The launch check counts a block's warps as if every partition held the same number of them.
    if per_warp * round_up(warps, arch.register_partitions) > arch.registers_per_block:
        return 0
    warps_per_partition = arch.registers_per_sm // arch.register_partitions // per_warp
    return warps_per_partition * arch.register_partitions // warps


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


def _registers_per_warp(arch: Arch, registers_per_thread: int) -> int:
    return round_up(registers_per_thread * arch.warp_size, arch.register_granularity)


def _smem_per_block(arch: Arch, smem_bytes: int) -> int:
    return round_up(smem_bytes + arch.smem_reserved_bytes, arch.smem_granularity_bytes)


def _carveout(arch: Arch, smem_bytes: int, wanted_bytes: int | None) -> int:
    """The step that the SM is set to: the wish, or what one block needs where that is more."""
    if wanted_bytes is None:
        return arch.smem_per_sm_bytes
    needed = max(wanted_bytes, _smem_per_block(arch, smem_bytes))
    return next((step for step in arch.smem_carveouts_bytes if step >= needed), arch.smem_per_sm_bytes)


def _blocks_by_shared(arch: Arch, smem_bytes: int, carveout_bytes: int, opted_in: bool) -> int | None:
    if smem_bytes > (arch.smem_optin_max_bytes if opted_in else arch.smem_static_max_bytes):
        return 0
    taken = _smem_per_block(arch, smem_bytes)
    return carveout_bytes // taken if taken else None
