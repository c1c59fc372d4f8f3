"""The ring of sm_120: right where it goes round, its registers move in machine code, its loops meet on mbarriers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tilewright.arch.arch import load_arch
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.mutate.ptx_mutants import synchronisation_mutants
from tilewright.sass.listing import Function, disassemble
from tilewright.sass.proof import prove
from tilewright.settings import Settings

FAMILY = load_family("hgemm")
RUNG = FAMILY.rung("40_ring_mma")
SIZES = {"M": 150, "N": 136, "K": 328, "ld_a": 328, "ld_b": 144}  # no tile divides them, and the ring goes round
CARDS = {"TW_BM": 128, "TW_BN": 128, "TW_STAGES": 3}  # as `sized` says for a card
MOVES = "USETMAXREG"


@cache
def built(arch: str = "sm_120a", is_cards: bool = False, old: str = "", new: str = "") -> CompiledRung:
    text = RUNG.file.read_text("utf-8")
    assert old in text
    spec = rung_spec(FAMILY, replace(RUNG, defines=CARDS if is_cards else RUNG.defines), "bfloat16")
    return compile_rung(spec, Settings.from_environment(), arch, text=text.replace(old, new) if old else None)


def machine_code(compiled: CompiledRung) -> Function:
    program = compiled.programs[0]
    function = disassemble(program.cubin, Settings.from_environment()).function(program.kernel)
    assert function is not None
    return function


def opcodes(compiled: CompiledRung) -> list[str]:
    return [instruction.opcode for instruction in machine_code(compiled).instructions]


def test_its_loops_are_joined_by_mbarriers_and_two_tiles_are_in_flight() -> None:
    proof = prove(machine_code(built(is_cards=True)))
    assert (proof.verdict, proof.math_kind) == ("overlap", "HMMA")
    assert proof.mean_in_flight > 2
    one = built("sm_120a", False, "constexpr int STAGES = TW_STAGES;", "constexpr int STAGES = 1;")
    assert prove(machine_code(one)).mean_in_flight < 1


@pytest.mark.parametrize("is_cards", [False, True])
def test_it_is_right(is_cards: bool) -> None:
    compiled = built(is_cards=is_cards)
    assert compiled.spill_bytes == 0
    for attempt in (0, 2):
        assert run_emulated(compiled, operation(FAMILY, "bfloat16", SIZES), attempt=attempt).message == ""


@pytest.mark.parametrize(("stages", "fits"), [(3, True), (4, False)])
def test_its_ring_fits_a_card_of_sm_120_and_one_stage_more_does_not(stages: int, fits: bool) -> None:
    sized = RUNG.at(FAMILY.sizes["default"], "bfloat16")
    assert dict(sized.defines) == CARDS
    rung = replace(RUNG, defines={**CARDS, "TW_STAGES": stages})
    made = compile_rung(rung_spec(FAMILY, rung, "bfloat16"), Settings.from_environment(), "sm_120a")
    ring = made.constants["SHARED_BYTES"] + made.constants["STAGES"] * 16  # two mbarriers a stage lie beside it
    assert (ring <= load_arch("sm_120a").smem_optin_max_bytes) is fits


@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a"])
@pytest.mark.parametrize("is_cards", [False, True])
def test_registers_move(arch: str, is_cards: bool) -> None:
    assert opcodes(built(arch, is_cards)).count(MOVES) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("copy_box_here(", "copy_box("),  # it names the cluster's shared memory
        ("__launch_bounds__(THREADS, 1)", "__launch_bounds__(THREADS)"),  # nothing says how many a thread begins with
    ],
)
def test_what_makes_the_compiler_leave_the_moves_out_is_seen(old: str, new: str) -> None:
    assert MOVES not in opcodes(built(old=old, new=new))


def test_a_ring_without_one_of_its_waits_or_arrivals_is_caught() -> None:
    compiled = built()
    program = compiled.programs[0]
    what = operation(FAMILY, "bfloat16", SIZES)
    fresh = "proxy_fence_dropped.0"  # nothing but fresh mbarriers lies before it: fence.mbarrier_init publishes those
    mutants = synchronisation_mutants(program.ptx, program.kernel, None)
    assert {"full_wait_dropped", "empty_wait_dropped", "wrong_phase", "arrive_dropped"} <= {m.kind for m in mutants}
    for mutant in [m for m in mutants if m.name != fresh]:
        broken = (replace(program, cubin=b"", ptx=mutant.ptx),)
        assert any(not run_emulated(compiled, what, programs=broken, attempt=attempt).passed for attempt in (0, 1)), (
            mutant.name
        )
