"""The whole answer for one op at one shape: candidates, choice, partition, advice and rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.skeleton.gemm import GemmTile
from tilewright.tile import advice as advices
from tilewright.tile.attention import attention_candidates, why_no_attention_tile
from tilewright.tile.candidate import Candidate
from tilewright.tile.choice import Choice, choose
from tilewright.tile.gemm import candidate, timed_space
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Convolution, Elementwise, Gemm, Op, RowReduction, Target
from tilewright.tile.parameters import CostParameters
from tilewright.tile.partition import Partition, partition
from tilewright.tile.space import legal_space, tiles
from tilewright.tile.streaming import elementwise_candidates, row_candidates

# Element types of the skeletons of attention and of convolutions.
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Selection:
    """What is to be built, and why.

    Attributes:
        op: at this shape.
        candidates: the whole legal space, fastest first by prediction.
        advice: why not to write this kernel at all; empty where nothing speaks against it.
        rules: the rules behind the table, with this card's figures.
        calibrated: the times come from a model that was fitted to measurements of this kind of op.
    """

    op: Op
    candidates: tuple[Candidate, ...]
    choice: Choice
    partition: Partition
    advice: tuple[str, ...]
    rules: tuple[str, ...]
    calibrated: bool


def select(op: Op, machine: Machine, cost: CostParameters, target: Target = "cuda") -> Selection:
    """Candidates, choice and partition of an op on a card.

    Raises:
        TilewrightError: ``tile/nothing_fits`` (exit 4) where no candidate is legal, ``tile/no_matrix_dtype``.
    """
    found = candidates(op, machine, cost, target)
    if not found:
        raise TilewrightError(
            "tile/nothing_fits",
            f"No tile of {op.name} is legal on {machine.arch.name}: {_why_none(op, machine)}",
            {"op": op.name, "arch": machine.arch.name},
            "Take another shape, element type or card.",
            EXIT_REFUSED,
        )
    return selected(op, found, machine, target)


def _why_none(op: Op, machine: Machine) -> str:
    """What stands in the way of the smallest tile."""
    if isinstance(op, Attention):
        return why_no_attention_tile(op, machine)
    if isinstance(op, Elementwise | RowReduction):
        return f"one load of each operand takes more than {machine.arch.max_registers_per_thread} registers a thread."
    found = [row.why for row in tiles(op.dtype, machine.arch).rejected]
    return next((why.reason for why in found if why.code == "skeleton"), found[0].reason)


def selected(op: Op, found: tuple[Candidate, ...], machine: Machine, target: Target) -> Selection:
    """The answer for candidates that are known, for example after some were compiled."""
    choice = choose(found)
    return Selection(
        op=op,
        candidates=found,
        choice=choice,
        partition=partition(op, choice.candidate, machine),
        advice=advices.advice(op, machine),
        rules=advices.rules(op, choice.candidate, machine, target),
        calibrated=isinstance(op, Gemm | Convolution) and op.dtype in ("float16", "bfloat16"),
    )


def candidates(op: Op, machine: Machine, cost: CostParameters, target: Target = "cuda") -> tuple[Candidate, ...]:
    """The legal space of an op, fastest first by prediction.

    Raises:
        TilewrightError: ``tile/no_matrix_dtype`` (exit 4), where no kernel of the op takes its element type.
    """
    if isinstance(op, Attention | Convolution) and op.dtype not in HALVES:
        raise TilewrightError(
            "tile/no_matrix_dtype",
            f"There is no {op.name} of {op.dtype} here.",
            {"dtype": op.dtype, "known": list(HALVES)},
            f"Supported are {' and '.join(HALVES)}.",
            EXIT_REFUSED,
        )
    if isinstance(op, Gemm | Convolution):
        product = op.as_gemm() if isinstance(op, Convolution) else op
        timed = timed_space(product, machine, cost, tiles_of(op, machine))
        rows = tuple(candidate(timed, index) for index in timed.order)
        return rows if target == "cuda" else _triton(rows)
    if isinstance(op, Attention):
        return attention_candidates(op, machine, cost)
    if isinstance(op, RowReduction):
        return row_candidates(op, machine, cost)
    return elementwise_candidates(op, machine, cost)


def tiles_of(op: Gemm | Convolution, machine: Machine) -> tuple[GemmTile, ...]:
    """What may be built for a product. A convolution gathers its rows of A on the way, and does not split K."""
    if isinstance(op, Gemm):
        return legal_space(op, machine.arch, machine.device)
    return tuple(t for t in legal_space(op.as_gemm(), machine.arch, machine.device) if t.split_k == 1)


def _triton(rows: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Triton lays out the warps itself: of each tile and number of warps the best grid stays, under Triton's names.

    The skeleton there does not split K.
    """
    seen: set[tuple[int, ...]] = set()
    kept: list[Candidate] = []
    for row in rows:
        tile = row.parameters
        if tile["split_k"] > 1:
            continue
        names = {
            "BLOCK_M": tile["bm"],
            "BLOCK_N": tile["bn"],
            "BLOCK_K": tile["bk"],
            "GROUP_M": tile["group_m"],
            "num_warps": tile["warps_m"] * tile["warps_n"],
            "num_stages": tile["stages"],
        }
        key = tuple(names.values())
        if key not in seen:
            seen.add(key)
            text = f"{tile['bm']}x{tile['bn']}x{tile['bk']} w{names['num_warps']} s{tile['stages']}"
            text += f" g{tile['group_m']}" if tile["group_m"] > 1 else ""
            kept.append(replace(row, label=text, parameters={**tile, **names}))
    return tuple(kept)
