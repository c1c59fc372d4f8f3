"""What the decision has to know of a kernel: frozen values, filled from its source and from the baseline's SASS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.arch.card import Card

MathKind = Literal["wmma", "mma", "fma"]


@dataclass(frozen=True)
class CopyFacts:
    """One operand's way from global to shared memory, per tile and block.

    Attributes:
        tile_bytes: bytes of the tile, without padding.
        load_bytes: width of one load in the source: 1 for a byte-wise copy, 16 for ``float4``.
        widened_bytes: width after re-partitioning the copy, when contiguity is proved; None when it stays as it is.
        async_bytes: width of one ``cp.async``; None when it cannot carry this copy.
        guarded: bounds are checked for each load.
        scattered: stored element by element (an operand transposed on its way), ``element_bytes`` at a time.
        rows: of the tile, each one bulk copy; None when bulk copies cannot carry this copy.
        boxed: it is a box of a matrix, so that one copy by a tensor map carries all of it.
    """

    tile_bytes: int
    load_bytes: int
    widened_bytes: int | None = None
    async_bytes: int | None = None
    guarded: bool = True
    scattered: bool = False
    rows: int | None = None
    boxed: bool = False


@dataclass(frozen=True)
class PlanFacts:
    """A tiled kernel, as the decision sees it; None where something is not known, and then it is estimated.

    Threads, registers and shared bytes stand in the `Budget`.

    Attributes:
        BM, BN, BK: tile sizes in elements.
        element_bytes: of the operands in shared memory.
        math_kind: what the compute phase multiplies with.
        copies: one per operand.
        num_tiles: trips of the K-loop at the default sizes.
        ops_per_load: matrix (FMA where there are none) instructions per global load instruction in the steady-state
            loop, from the SASS.
        math_per_tile: such instructions per warp and tile.
        compute_instructions: all instructions per warp in the compute phase of a tile.
        load_instructions: all instructions per warp in the load phase of a tile.
        stall_cycles: sum of the stall counts of the compute phase, for one warp.
        loads_in_flight: loads that a thread issues before it needs the first of them.
        shared_loads: shared-memory loads per warp and tile, by SASS opcode: ``{"LDS.U8": 32, "LDSM.16.M88.2": 4}``.
        pitch_a_bytes, pitch_b_bytes: from one row of the operand in shared memory to the next, padding included.
        blocks: of the launch at the default sizes.
        sms: of the card, when one is known. macs_per_cycle: of its matrix units, per SM, for this kernel's precision.
        precision: of its matrix instructions, as `arch.devices` names peaks; "" where the SASS did not say.
        variant_registers: registers per thread of variants already compiled, by variant key.
        retiled: which side of the tile the variant `retile` halves, where there is one.
    """

    copies: tuple[CopyFacts, ...]
    element_bytes: int
    math_kind: MathKind
    BM: int | None = None
    BN: int | None = None
    BK: int | None = None
    num_tiles: int | None = None
    ops_per_load: float | None = None
    math_per_tile: float | None = None
    compute_instructions: float | None = None
    load_instructions: float | None = None
    stall_cycles: float | None = None
    loads_in_flight: float | None = None
    shared_loads: Mapping[str, float] | None = None
    pitch_a_bytes: int | None = None
    pitch_b_bytes: int | None = None
    blocks: int | None = None
    sms: int | None = None
    macs_per_cycle: float | None = None
    precision: str = ""
    variant_registers: Mapping[str, int] = field(default_factory=dict)
    retiled: Literal["BK", "BM", ""] = ""

    @property
    def flop_per_byte(self) -> float | None:
        """``2*BM*BN*BK / ((BM*BK + BK*BN) * element_bytes)``, from the tile alone; None when a size is not known."""
        if self.BM is None or self.BN is None or self.BK is None:
            return None
        return 2 * self.BM * self.BN * self.BK / ((self.BM * self.BK + self.BK * self.BN) * self.element_bytes)

    @property
    def tile_bytes(self) -> int:
        """Bytes that one block fetches per tile."""
        return sum(copy.tile_bytes for copy in self.copies)


def for_card(facts: PlanFacts, arch: Arch, card: Card) -> PlanFacts:
    """The facts with what the card says of itself; SMs that they hold already stay.

    Where the SASS did not tell, matrix instructions are taken to add up in FP32, as those of most kernels do.
    """
    sms = card.sms if facts.sms is None else facts.sms
    precision = facts.precision or {1: "int8", 2: "fp16", 4: "tf32"}.get(facts.element_bytes, "")
    is_matrix = facts.math_kind != "fma" and bool(precision)
    return replace(facts, sms=sms, macs_per_cycle=card.mac_per_cycle(arch, precision) if is_matrix else None)
