"""What `tilewright prove` and `tilewright inspect` return, as JSON records of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.receipt.evidence import Proof, Resources
from tilewright.receipt.record import SCHEMA, Loop, Refusal, Tile, Tool


@dataclass(frozen=True)
class ProvenKernel:
    """One kernel of a cubin and what its SASS shows."""

    name: str
    proof: Proof
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True, kw_only=True)
class ProveReport:
    """`tilewright prove FILE`: ``arch`` is that of the machine code."""

    schema: int = SCHEMA
    tool: Tool
    file: str
    arch: str
    arch_reason: str = ""
    kernels: tuple[ProvenKernel, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Copy:
    """One copy of the load phase, global memory to shared.

    Attributes:
        source, destination: array names as the source has them.
        line: where the global load stands.
        element: element type.
        bytes_per_copy: bytes that one thread moves at a time.
        contiguous_bytes: bytes proved contiguous on both sides, so that a copy may be that wide; None if not proved.
        note: guard, zero fill, transposition, or why it cannot be widened.
    """

    source: str
    destination: str
    line: int
    element: str
    bytes_per_copy: int | None = None
    contiguous_bytes: int | None = None
    note: str = ""


@dataclass(frozen=True)
class InspectedKernel:
    """One ``__global__`` function: what was understood, or ``refusal`` says why it was not."""

    name: str
    line: int | None
    refusal: Refusal | None = None
    tile: Tile | None = None
    loop: Loop | None = None
    copies: tuple[Copy, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InspectReport:
    """`tilewright inspect FILE.cu`."""

    schema: int = SCHEMA
    tool: Tool
    file: str
    kernels: tuple[InspectedKernel, ...] = ()
    notes: tuple[str, ...] = ()
