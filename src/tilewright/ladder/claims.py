"""Whether a rung shows what its ``ladder.toml`` claims: counters of the emulator, instructions, resources."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung, compile_rung, dynamic_smem_bytes
from tilewright.ladder.family import Claim, Family, Rung
from tilewright.ladder.running import RungRun, operation, run_emulated
from tilewright.ladder.specs import bound_launches, rung_spec
from tilewright.sass.listing import disassemble
from tilewright.settings import Settings

RESOURCES = ("registers", "smem_bytes", "spill_bytes", "stack_bytes")


@dataclass(frozen=True)
class ClaimResult:
    """A claim, what was found (the number itself, or its ratio), and whether it holds."""

    claim: Claim
    found: float
    holds: bool

    @property
    def text(self) -> str:
        return f"{self.claim.text}: {self.found:.4g}"


class Evidence:
    """What claims are checked against. Each build and each run is made once.

    Args:
        arch: the architecture to build for; None for the least one that a rung takes.
    """

    def __init__(self, settings: Settings, arch: str | None = None) -> None:
        self._settings, self._arch = settings, arch
        self._built: dict[tuple[str, str, str], CompiledRung] = {}
        self._runs: dict[tuple[str, str, str, str], RungRun] = {}
        self._names: dict[tuple[str, str, str], list[tuple[str, frozenset[str]]]] = {}

    def compiled(self, family: Family, rung: Rung, dtype: str) -> CompiledRung:
        key = (family.name, rung.name, dtype)
        if key not in self._built:
            self._built[key] = compile_rung(rung_spec(family, rung, dtype), self._settings, self._arch)
        return self._built[key]

    def run(self, family: Family, rung: Rung, dtype: str, size: str) -> RungRun:
        """A run with counters and checks at a set of sizes."""
        key = (family.name, rung.name, dtype, size)
        if key not in self._runs:
            what = operation(family, dtype, family.sizes[size])
            self._runs[key] = run_emulated(self.compiled(family, rung, dtype), what, counters=True)
        return self._runs[key]

    def counter(self, family: Family, rung: Rung, dtype: str, size: str, name: str) -> float:
        """One counter; 0 for a class of instructions that did not run.

        Raises:
            TilewrightError: ``ladder/no_counter``; ``ladder/did_not_run`` where there is nothing to count.
        """
        run = self.run(family, rung, dtype, size)
        if not run.counters:
            message = f"{family.name}/{rung.name} came to no end at {size}: {run.message}."
            raise TilewrightError("ladder/did_not_run", message)
        if name not in run.counters and not name.startswith("mix_"):
            known = ", ".join(sorted(run.counters))
            raise TilewrightError("ladder/no_counter", f"there is no counter '{name}'.", {}, f"There are: {known}.")
        return run.counters.get(name, 0)

    def instructions(self, family: Family, rung: Rung, dtype: str, pattern: str) -> int:
        """How many instructions of the machine code have the opcode and all the modifiers of ``LDG.E.128``.

        ``reuse`` counts as one: some operand of ``FFMA.reuse`` is kept for the next instruction.
        """
        key = (family.name, rung.name, dtype)
        if key not in self._names:
            found: list[tuple[str, frozenset[str]]] = []
            for artifact in self.compiled(family, rung, dtype).artifacts:
                function = disassemble(artifact.cubin, self._settings).function(artifact.kernel)
                code = function.instructions if function is not None else ()
                for each in (i for i in code if not i.is_off):
                    kept = ["reuse"] if each.reuse else []  # an operand that the next instruction need not read again
                    found.append((each.opcode, frozenset([*each.modifiers, *kept])))
            self._names[key] = found
        opcode, *modifiers = pattern.split(".")
        return sum(op == opcode and mods.issuperset(modifiers) for op, mods in self._names[key])

    def resource(self, family: Family, rung: Rung, dtype: str, name: str, size: str) -> float:
        """Of the kernel that takes most. ``smem_bytes``: the dynamic ones at a set of sizes included."""
        if name not in RESOURCES:
            message = f"there is no resource '{name}'."
            raise TilewrightError("ladder/no_resource", message, {}, f"There are: {', '.join(RESOURCES)}.")
        compiled = self.compiled(family, rung, dtype)
        most = max(getattr(a.resources, name) for a in compiled.artifacts)
        if name == "smem_bytes":
            launches = bound_launches(compiled.spec, family.sizes[size], compiled.constants)
            most += dynamic_smem_bytes(launches)
        return float(most)


def check_claims(family: Family, rung: Rung, evidence: Evidence) -> tuple[ClaimResult, ...]:
    """Every claim of a rung, with what was found."""
    return tuple(_check(family, rung, claim, evidence) for claim in rung.claims)


def _check(family: Family, rung: Rung, claim: Claim, evidence: Evidence) -> ClaimResult:
    dtype = claim.dtype or rung.dtypes[0]
    found = _found(family, rung, claim, dtype, evidence)
    if claim.against is not None:
        other = _found(family, family.rung(claim.against), claim, dtype, evidence)
        found = found / other if other else (1.0 if not found else float("inf"))
    holds = {
        "equals": found == claim.value,
        "at_most": found <= claim.value,
        "at_least": found >= claim.value,
    }[claim.relation.removeprefix("ratio_")]
    return ClaimResult(claim, found, holds)


def _found(family: Family, rung: Rung, claim: Claim, dtype: str, evidence: Evidence) -> float:
    if claim.kind == "counter":
        return evidence.counter(family, rung, dtype, claim.size, claim.name)
    if claim.kind == "sass":
        return evidence.instructions(family, rung, dtype, claim.name)
    return evidence.resource(family, rung, dtype, claim.name, claim.size)
