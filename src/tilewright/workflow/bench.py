"""What every variant is built with and held against: the compiler, the baseline's machine code, its place on an SM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import Occupancy, occupancy
from tilewright.build.artifact import Artifact
from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import Refusal
from tilewright.launch.bind import LaunchChange, bind
from tilewright.launch.expressions import parse
from tilewright.receipt.evidence import Resources
from tilewright.rewrite.cap_registers import bounded
from tilewright.sass.operands import BULK_LOADS
from tilewright.sass.proof import OverlapProof
from tilewright.source.reader import read_source
from tilewright.workflow.opening import Compiler, Opened
from tilewright.workflow.records import resources_record


@dataclass(frozen=True)
class Bench:
    """One kernel on one architecture.

    Attributes:
        baseline: the proof of the kernel as it was, for its math per tile.
        threads: of a block at the default sizes; None where nothing says so.
        constants: the file's, for the sidecar's expressions.
    """

    opened: Opened
    arch: Arch
    baseline: OverlapProof
    threads: int | None
    constants: dict[str, int]

    @property
    def compiler(self) -> Compiler:
        return self.opened.compiler

    def math_for(self, proof: OverlapProof) -> int | None:
        """The baseline's math for the bytes that a proof takes for one tile; None where the baseline's is not known.

        A tile is what arrives at once. So a second load phase is a tile of its own where its loads stand behind math,
        and part of the first where they run ahead with them: twice the math for twice the bytes is the same kernel.
        With bulk copies, one tile may be all that a trip of the baseline's loop computes.
        """
        before = self.baseline
        if before.verdict == "unknown":
            return None
        if any(row.opcode in BULK_LOADS for row in proof.copies):  # what each thread copies is not told there
            trip = before.mma_per_tile * before.tiles_per_trip
            return trip if proof.mma_per_tile == trip else before.mma_per_tile
        share, whole = _bytes_per_tile(proof), _bytes_per_tile(before)
        if proof.mma_per_tile == before.mma_per_tile or not share or not whole:
            return before.mma_per_tile
        scaled = before.mma_per_tile * share / whole
        return before.mma_per_tile if scaled % 1 else int(scaled)

    def dynamic_bytes(self, change: LaunchChange) -> int:
        """Dynamic shared memory that a variant is launched with at the default sizes."""
        if self.compiler.spec is None:
            return change.shared_bytes or 0
        return bind(self.compiler.spec, "default", self.constants, change).shared_bytes

    def resources(self, artifact: Artifact, change: LaunchChange) -> Resources:
        return resources_record(artifact, self.dynamic_bytes(change))

    def fit(self, artifact: Artifact, change: LaunchChange, registers: int | None = None) -> Occupancy | None:
        """What fits on an SM of a build; with ``registers`` a thread instead of its own, where given."""
        threads = self._threads(change)
        if threads is None:
            return None
        own = artifact.resources
        smem_bytes = own.smem_bytes + self.dynamic_bytes(change)
        return occupancy(self.arch, threads, own.registers if registers is None else registers, smem_bytes)

    def lost_to_registers(self, artifact: Artifact, change: LaunchChange) -> tuple[int, int] | None:
        """(blocks per SM, blocks with the baseline's registers) where a build's own registers cost it a block."""
        own = self.fit(artifact, change)
        before = self.fit(artifact, change, self.opened.baseline.resources.registers)
        if own is None or before is None or own.blocks_per_sm >= before.blocks_per_sm:
            return None
        return own.blocks_per_sm, before.blocks_per_sm

    def bounded(self, text: str, blocks: int, change: LaunchChange) -> str | Refusal:
        """A variant's text with at least ``blocks`` blocks per SM asked for."""
        before, function = self.opened.source, self.opened.function
        threads = self._threads(change)
        if threads is None:
            hint = "a sidecar, or __launch_bounds__, says it"
            return Refusal("not_understood", "how many threads a block has is not known", function.line, hint)
        spec = self.compiler.spec
        if not function.launch_bounds and (spec is None or spec.is_sized(*spec.block)):
            what = "sizes decide how many threads a block has, or nothing launches it: no bound can be written"
            return Refusal("not_understood", what, function.line)
        # The variant's own text, but what its names stand for is the file's.
        read = read_source(text.encode(), before.file, before.headers)
        read = replace(read, macros={**before.macros, **read.macros})
        try:
            own = read.kernel(function.qualified)
        except TilewrightError as error:
            return Refusal("not_understood", error.message, function.line)
        return bounded(read, own, threads, blocks, lambda x: self._value(x, change))

    def bound_note(self, change: LaunchChange) -> str:
        """What a bound that is written means for other launches; "" where the kernel has one already."""
        if self.opened.function.launch_bounds:
            return ""
        return f"bounded now: a launch of more than {self._threads(change)} threads a block fails"

    def _value(self, text: str, change: LaunchChange) -> int | None:
        try:
            return parse(text).evaluate_int({**self.constants, **change.constants})
        except TilewrightError:
            return None

    def _threads(self, change: LaunchChange) -> int | None:
        spec = self.compiler.spec
        return self.threads if spec is None else prod(bind(spec, "default", self.constants, change).block)


def _bytes_per_tile(proof: OverlapProof) -> Fraction:
    """What a thread copies for a tile; 0 where nothing tells it."""
    return Fraction(sum(row.width_bytes * row.count for row in proof.copies), max(1, proof.tiles_per_trip))
