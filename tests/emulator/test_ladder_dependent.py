"""Rungs that are launched beside the grid before them: in machine code too, nothing of memory comes before the wait."""

from __future__ import annotations

import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_families, load_family
from tilewright.ladder.specs import rung_spec
from tilewright.ptx.dependent import waits_first
from tilewright.sass.listing import disassemble
from tilewright.settings import Settings

CALL = "wait_for_previous_grid();"
WAITING = [(f, r) for f in load_families() for r in f.rungs if CALL in r.file.read_text("utf-8")]
# What reads or writes global memory, or has somebody do it. Not what only asks for lines in L2 (UBLKPF, UTMAPF): all
# that the grid before writes goes through it.
MEMORY = frozenset(
    {"LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP",
     "UBLKRED"}
)  # fmt: skip


def built(family: Family, rung: Rung, text: str | None = None) -> CompiledRung:
    arch = rung.min_arch if rung.min_arch and rung.min_arch.endswith("a") else "sm_90"
    return compile_rung(rung_spec(family, rung, rung.dtypes[-1]), Settings.from_environment(), arch, text=text)


def before_the_wait(cubin: bytes, kernel: str) -> list[str]:
    """Opcodes ahead of the kernel's wait; all of them where it has none."""
    listing = disassemble(cubin, Settings.from_environment())
    function = listing.function(kernel)
    assert function is not None
    names = [instruction.opcode for instruction in function.instructions]
    return names[: names.index("ACQBULK")] if "ACQBULK" in names else names


@pytest.mark.parametrize(("family", "rung"), WAITING, ids=lambda each: each.name)
def test_nothing_of_memory_comes_before_the_wait(family: Family, rung: Rung) -> None:
    for program in built(family, rung).programs:
        assert waits_first(program.ptx, program.kernel)
        assert not MEMORY.intersection(before_the_wait(program.cubin, program.kernel))


def test_a_load_ahead_of_the_wait_is_seen_in_both() -> None:
    family = load_family("add")
    rung = family.rung("dependent")
    text = rung.file.read_text("utf-8")
    ahead = 'unsigned ahead; asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(ahead) : "l"(a));'
    late = text.replace(CALL, f"{ahead}\n    {CALL}").replace("if (packed &&", "if (ahead != 3 && packed &&")
    (program,) = built(family, rung, late).programs
    assert not waits_first(program.ptx, program.kernel)
    assert "LDG" in before_the_wait(program.cubin, program.kernel)
