"""What every number of stages costs in shared memory and resident blocks, and where the cliff is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import Limiter, occupancy, smem_cliff

ProposalKind = Literal["retile", "fewer_stages", "ldg_single"]


@dataclass(frozen=True)
class BudgetRow:
    """One number of stages.

    Attributes:
        smem_bytes: shared bytes per block as launched, static and dynamic, padding included.
        blocks_per_sm, warps_per_sm: resident at the baseline's register count.
        limiter: what stops one more block: ``shared``, ``registers``, ``warps`` or ``blocks``.
        fits: at least one block can run.
        crosses_cliff: fewer blocks per SM than at one stage, because of shared memory.
        needs_opt_in: more than static arrays may hold: the launch has to raise the limit (``cudaFuncSetAttribute``).
    """

    stages: int
    smem_bytes: int
    blocks_per_sm: int
    warps_per_sm: int
    limiter: Limiter
    fits: bool
    crosses_cliff: bool
    needs_opt_in: bool


@dataclass(frozen=True)
class Cliff:
    """``blocks`` blocks fit on an SM up to ``smem_bytes`` per block; with one byte more, one block fewer fits."""

    blocks: int
    smem_bytes: int


@dataclass(frozen=True)
class Proposal:
    """A way round the cliff, with what it gives (``blocks_per_sm``, ``smem_bytes``) and, in ``cost``, what it takes."""

    kind: ProposalKind
    stages: int
    smem_bytes: int
    blocks_per_sm: int
    cost: str


@dataclass(frozen=True)
class Budget:
    """The table of stages and what it says.

    Attributes:
        threads, registers: per block and per thread, of the baseline.
        smem_single_bytes: shared bytes per block of the baseline.
        staged_bytes: of these, the bytes that every further stage repeats.
        rows: stages 1, 2, … in order.
        cliff: the next byte count at which the baseline loses a block, or None when the kernel does not fit at all.
        cliffs: the whole ladder, from the baseline's blocks per SM down to one block.
        cliff_text: the same as a sentence.
        doubling_keeps_two: two stages leave at least two blocks per SM.
        proposals: ways round the cliff; empty when two stages do not cross it.
    """

    arch: str
    threads: int
    registers: int
    smem_single_bytes: int
    staged_bytes: int
    rows: tuple[BudgetRow, ...]
    cliff: Cliff | None
    cliffs: tuple[Cliff, ...]
    cliff_text: str
    doubling_keeps_two: bool
    proposals: tuple[Proposal, ...]

    def row(self, stages: int) -> BudgetRow | None:
        """The row of so many stages, or None beyond the table."""
        return self.rows[stages - 1] if 1 <= stages <= len(self.rows) else None


def budget(
    arch: Arch,
    *,
    threads: int,
    registers: int,
    smem_single_bytes: int,
    staged_bytes: int,
    max_stages: int = 8,
    grown_bytes: Callable[[int], int] | None = None,
) -> Budget:
    """The budget table for 1 to ``max_stages`` stages.

    Args:
        threads: per block.
        registers: per thread, of the baseline as compiled.
        smem_single_bytes: shared bytes per block of the baseline, padding and unstaged arrays included.
        staged_bytes: bytes of the arrays that a stage holds: S stages take ``smem_single + (S - 1) * staged`` bytes.
        grown_bytes: what S stages take on top of the baseline's bytes, where that is not ``(S - 1) * staged``: rings
            that take the room of what the K-loop does not use.
    """
    grown = grown_bytes or (lambda stages: (stages - 1) * staged_bytes)
    rows = _rows(arch, threads, registers, smem_single_bytes, grown, max(max_stages, 1))
    blocks = rows[0].blocks_per_sm
    ladder = ((n, smem_cliff(arch, threads, registers, n)) for n in range(blocks, 0, -1))
    cliffs = tuple(Cliff(n, smem_bytes) for n, smem_bytes in ladder if smem_bytes is not None)
    cliff = cliffs[0] if cliffs else None
    doubled = rows[1] if len(rows) > 1 else None
    return Budget(
        arch=arch.name,
        threads=threads,
        registers=registers,
        smem_single_bytes=smem_single_bytes,
        staged_bytes=staged_bytes,
        rows=rows,
        cliff=cliff,
        cliffs=cliffs,
        cliff_text=_cliff_text(arch, cliff, rows),
        doubling_keeps_two=doubled is not None and doubled.blocks_per_sm >= 2,
        proposals=_proposals(arch, rows, threads, registers, staged_bytes),
    )


def _rows(
    arch: Arch, threads: int, registers: int, smem_single_bytes: int, grown: Callable[[int], int], max_stages: int
) -> tuple[BudgetRow, ...]:
    rows: list[BudgetRow] = []
    for stages in range(1, max_stages + 1):
        smem_bytes = smem_single_bytes + grown(stages)
        fit = occupancy(arch, threads, registers, smem_bytes)
        single = rows[0].blocks_per_sm if rows else fit.blocks_per_sm
        rows.append(
            BudgetRow(
                stages=stages,
                smem_bytes=smem_bytes,
                blocks_per_sm=fit.blocks_per_sm,
                warps_per_sm=fit.warps_per_sm,
                limiter=fit.limiter,
                fits=fit.blocks_per_sm >= 1,
                # Registers and warps are the same in every row, so fewer blocks can only come from shared memory.
                crosses_cliff=fit.blocks_per_sm < single,
                needs_opt_in=fit.needs_opt_in,
            )
        )
    return tuple(rows)


def _cliff_text(arch: Arch, cliff: Cliff | None, rows: tuple[BudgetRow, ...]) -> str:
    if cliff is None:
        return f"Not one block fits on an SM of {arch.name}: stopped by {rows[0].limiter}."
    over = next((row for row in rows if row.crosses_cliff), None)
    text = (
        f"{_blocks(cliff.blocks)} per SM up to {_kib(cliff.smem_bytes)} of shared memory per block on {arch.name} "
        f"({_kib(arch.smem_per_sm_bytes)} per SM, {_kib(arch.smem_reserved_bytes)} of it reserved per block)"
    )
    if over is None:
        return f"{text}; {len(rows)} stages stay below it."
    return f"{text}; {over.stages} stages cross it ({_kib(over.smem_bytes)}: {_blocks(over.blocks_per_sm)})."


def _proposals(
    arch: Arch, rows: tuple[BudgetRow, ...], threads: int, registers: int, staged_bytes: int
) -> tuple[Proposal, ...]:
    if len(rows) < 2 or not rows[1].crosses_cliff:
        return ()
    single, doubled = rows[0], rows[1]
    # Two stages of half the tile take the bytes of one whole tile.
    retiled = occupancy(arch, threads, registers, single.smem_bytes)
    kept_registers = -(-staged_bytes // (4 * threads))
    in_registers = occupancy(arch, threads, registers + kept_registers, single.smem_bytes)
    found = [
        Proposal(
            "retile",
            2,
            single.smem_bytes,
            retiled.blocks_per_sm,
            "Half of BK: twice as many tiles, barriers and waits for the same work. Half of BM instead: "
            "twice the blocks, and less reuse of the other operand.",
        ),
        Proposal(
            "ldg_single",
            1,
            single.smem_bytes,
            in_registers.blocks_per_sm,
            f"The next tile waits in about {kept_registers} more registers a thread; two barriers per tile stay.",
        ),
    ]
    if doubled.fits:
        lost = single.warps_per_sm - doubled.warps_per_sm
        found.append(
            Proposal(
                "fewer_stages",
                2,
                doubled.smem_bytes,
                doubled.blocks_per_sm,
                f"Two stages and no more: {lost} of {single.warps_per_sm} warps per SM are lost even so.",
            )
        )
    return tuple(found)


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def _kib(size_bytes: int) -> str:
    return f"{size_bytes / 1024:g} KiB"
