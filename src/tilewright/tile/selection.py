"""The whole answer for one op at one shape: candidates, choice, partition, advice and rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.tile import advice as advices
from tilewright.tile.attention import attention_candidates
from tilewright.tile.candidate import Candidate
from tilewright.tile.choice import Choice, choose
from tilewright.tile.gemm import candidate, timed_space
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Convolution, Gemm, Op, RowReduction, Target
from tilewright.tile.parameters import CostParameters
from tilewright.tile.partition import Partition, partition
from tilewright.tile.streaming import elementwise_candidates, row_candidates


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
            f"No tile of {op.name} fits on {machine.arch.name}.",
            {"op": op.name, "arch": machine.arch.name},
            "Take a smaller head dimension or element type, or another card.",
            EXIT_REFUSED,
        )
    return selected(op, found, machine, target)


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
    """The legal space of an op, fastest first by prediction."""
    if isinstance(op, Convolution):
        # The kernel gathers its rows of A on the way, and does not split K.
        return tuple(c for c in candidates(op.as_gemm(), machine, cost, target) if c.parameters["split_k"] == 1)
    if isinstance(op, Gemm):
        timed = timed_space(op, machine, cost)
        rows = tuple(candidate(timed, index) for index in timed.order)
        return rows if target == "cuda" else _triton(rows)
    if isinstance(op, Attention):
        return attention_candidates(op, machine, cost)
    if isinstance(op, RowReduction):
        return row_candidates(op, machine, cost)
    return elementwise_candidates(op, machine, cost)


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
