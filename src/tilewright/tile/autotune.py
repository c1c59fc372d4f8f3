"""The autotuning plan: the legal space of an op on a card, in the order in which it is worth trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.tile.candidate import Candidate
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Op, Target

SCHEMA = 1


@dataclass(frozen=True)
class Trial:
    """One point of the space, and what the model expects of it."""

    parameters: Mapping[str, int]
    predicted_us: float
    smem_bytes: int
    registers: int


@dataclass(frozen=True)
class TuningPlan:
    """What ``tilewright tune`` runs.

    Attributes:
        op, dims: what is computed, its sizes by name.
        order: ``model``: trials stand with the most promising first, so that a run that is stopped has seen those.
        trials: the legal space and nothing else; what cannot be launched is not in it.
    """

    schema: int
    op: str
    dims: Mapping[str, int]
    dtype: str
    arch: str
    device: str
    target: str
    order: str
    trials: tuple[Trial, ...]


def tuning_plan(op: Op, found: tuple[Candidate, ...], machine: Machine, target: Target) -> TuningPlan:
    """The plan over candidates that stand fastest first."""
    dims = {name: int(value) for name, value in vars(op).items() if isinstance(value, int)}
    return TuningPlan(
        schema=SCHEMA,
        op=op.name,
        dims=dims,
        dtype=op.dtype,
        arch=machine.arch.name,
        device=machine.device.name,
        target=target,
        order="model",
        trials=tuple(Trial(c.parameters, c.time_us, c.smem_bytes, c.registers_compiled or c.registers) for c in found),
    )
