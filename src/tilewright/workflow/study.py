"""The half of the job that needs no launch: read, build, rewrite, prove, plan. Cached as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.build.artifact import Artifact
from tilewright.launch.bind import LaunchChange
from tilewright.plan.budget import Budget
from tilewright.plan.compiled import Built
from tilewright.plan.facts import PlanFacts
from tilewright.receipt.evidence import Proof, Resources
from tilewright.receipt.record import (
    BudgetRow,
    Decision,
    Kernel,
    Loop,
    Precondition,
    Proposal,
    Refusal,
    Tile,
)


@dataclass(frozen=True)
class StudiedControl:
    """A twin that differs in one thing: ``widened`` (of the baseline) or ``waited`` (of a variant)."""

    name: str
    artifact: Artifact
    proof: Proof
    change: LaunchChange = field(default_factory=LaunchChange)


@dataclass(frozen=True)
class StudiedVariant:
    """One variant as built, or why it was not.

    Attributes:
        change: what its launch does differently.
        early: the same with its loads in front of the barrier, where both orders are right: only a clock can choose.
        side: of `retile`, which side of the tile is halved: ``BK`` or ``BM``.
        host_code: the function that makes what the kernel takes behind its own parameters, and launches it; or "".
    """

    name: str
    stages: int
    refusal: Refusal | None = None
    source: str = ""
    diff: str = ""
    artifact: Artifact | None = None
    change: LaunchChange = field(default_factory=LaunchChange)
    proof: Proof = field(default_factory=Proof)
    resources: Resources = field(default_factory=Resources)
    notes: tuple[str, ...] = ()
    waited: StudiedControl | None = None
    side: Literal["BK", "BM", ""] = ""
    host_code: str = ""
    early: StudiedVariant | None = None

    @property
    def halves_depth(self) -> bool:
        """Whether it was made, and adds up half as many products a tile."""
        return self.refusal is None and self.side == "BK"


@dataclass(frozen=True)
class Planned:
    """What the decision is made from, kept so that it can be made again for another card.

    Attributes:
        builds: by label, as `plan.compiled` sees them. made: labels of the variants that there are.
    """

    facts: PlanFacts
    plan: Budget
    builds: dict[str, Built]
    made: frozenset[str]


@dataclass(frozen=True)
class Study:
    """Everything that is known without running the kernel.

    Attributes:
        decision: for the card that is assumed of the architecture; `deciding` has it for another. planned: what from.
        toolchain: what compiled it; disassembler: what took it apart.
        constants: the file's, for the sidecar's expressions.
        widened: the baseline with 16-byte loads alone, where a copy loop can be widened.
        extra_sets: size sets for the K-loop's trip counts; reduction: the size that the K-loop runs over.
        ragged_sets: those whose last tile is used in part, for half tiles. A GPU does not tell whether the kernel
            itself strays out of its buffers there, so they are the emulator's.
    """

    toolchain: str
    disassembler: str
    kernel: Kernel
    constants: dict[str, int]
    baseline: Artifact
    baseline_proof: Proof
    baseline_resources: Resources
    refusal: Refusal | None = None
    tile: Tile | None = None
    loop: Loop | None = None
    preconditions: tuple[Precondition, ...] = ()
    budget: tuple[BudgetRow, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    decision: Decision | None = None
    planned: Planned | None = None
    variants: tuple[StudiedVariant, ...] = ()
    widened: StudiedControl | None = None
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra_sets: dict[str, dict[str, int]] | None = None
    ragged_sets: dict[str, dict[str, int]] = field(default_factory=dict)
    reduction: str | None = None
