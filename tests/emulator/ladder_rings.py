"""HGEMM's rungs for Hopper with the tiles that a test wants, their broken twins, and those that no run catches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from ladder_twins import twin_of

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import Operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import Mutant, synchronisation_mutants
from tilewright.settings import Settings

FAMILY = load_family("hgemm")
EVERY = int(os.environ.get("TILEWRIGHT_HGEMM_MUTANTS", "40"))  # of the mutants, one in so many is looked at
KINDS = {"full_wait_dropped", "wrong_phase", "arrive_dropped", "wgmma_wait_dropped"}


def as_defines(**numbers: int) -> tuple[tuple[str, int], ...]:
    return tuple((f"TW_{name}", number) for name, number in numbers.items())


@cache
def built(
    name: str, *defines: tuple[str, int], dtype: str = "bfloat16", twin: tuple[str, str] | None = None
) -> CompiledRung:
    """A rung with its own defines and these; or a twin of it, with the one text in the place of the other."""
    rung = FAMILY.rung(name)
    spec = rung_spec(FAMILY, replace(rung, defines={**rung.defines, **dict(defines)}), dtype)
    text = None if twin is None else twin_of(rung.file, *twin)
    return compile_rung(spec, Settings.from_environment(), text=text)


def mutants_of(compiled: CompiledRung, equivalent: set[str]) -> list[Mutant]:
    """All that lack a wait or an arrival, but those that are no faults, which have to be among them."""
    program = compiled.programs[0]
    mutants = synchronisation_mutants(program.ptx, program.kernel, None)
    assert equivalent <= {m.name for m in mutants}
    assert {m.kind for m in mutants} >= KINDS
    return [m for m in mutants if m.name not in equivalent]


def not_caught(compiled: CompiledRung, what: Operation, mutants: Sequence[Mutant]) -> Iterator[str]:
    """Names of those that pass in lock-step and warp after warp."""
    for mutant in mutants:
        broken = (replace(compiled.programs[0], cubin=b"", ptx=mutant.ptx),)
        if all(run_emulated(compiled, what, programs=broken, attempt=attempt).passed for attempt in (0, 1)):
            yield mutant.name
