"""The parts of the bottleneck analysis, each by itself: nothing is compiled."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from plan_samples import igemm, igemm_budget

from tilewright.analyze.demand import (
    Demand,
    Traffic,
    _pipe_cycles,
    demand_of,
    global_passes,
    mac_rate,
    matrix_macs,
)
from tilewright.analyze.facts import Facts
from tilewright.analyze.floors import Setting, floors, gain, without_global_wait
from tilewright.analyze.hot_loop import HotLoop, short_name
from tilewright.analyze.ncu import read_ncu
from tilewright.analyze.record import Count, Strategy
from tilewright.analyze.residency import residency, shared_cliff
from tilewright.analyze.roof import roofline
from tilewright.analyze.sections import evidence_text, gain_text
from tilewright.analyze.serial import serial
from tilewright.analyze.setmaxnreg import dropped
from tilewright.analyze.strategies.judge import TITLES
from tilewright.analyze.strategies.ranking import CONFLICTS, LARGE_CHANGE, _rank
from tilewright.analyze.tiled_gains import tiled_gains
from tilewright.arch.arch import load_arch
from tilewright.arch.devices import find_device
from tilewright.errors import TilewrightError
from tilewright.plan.decide import Decision, Prediction, decide
from tilewright.sass.listing import Instruction

HOPPER = load_arch("sm_90a")
H200 = find_device("NVIDIA H200")
assert H200 is not None


def code(
    opcode: str, operands: str = "", *modifiers: str, stall: int = 1, sets: int | None = None, waits: int = 0
) -> Instruction:
    name = ".".join((opcode, *modifiers))
    return Instruction(0, opcode, modifiers, "", operands, f"{name} {operands}", stall, False, sets, None, waits, 0)


# -- one warp alone -----------------------------------------------------------------------------------


def test_a_load_is_waited_for_where_its_scoreboard_is() -> None:
    load = code("LDG", "R2, [R4]", "E", sets=0)
    math_ = [code("FFMA", "R8, R9, R10, R8", stall=4) for _ in range(10)]
    use = code("FADD", "R3, R2, R3", waits=1)
    at_once = serial([load, use, *math_], HOPPER)
    behind = serial([load, *math_, use], HOPPER)
    assert at_once.global_wait == HOPPER.l2_latency_cycles - 1
    assert at_once.global_wait - behind.global_wait == 40  # what the math hides
    assert at_once.issue == behind.issue == 42
    assert at_once.cycles == at_once.issue + at_once.global_wait


def test_loads_under_way_together_are_waited_for_once() -> None:
    loads = [code("LDG", f"R{n}, [R40]", "E", sets=n) for n in range(4)]
    uses = [code("FADD", f"R20, R{n}, R20", waits=1 << n) for n in range(4)]
    together = serial([*loads, *uses], HOPPER)
    apart = serial([each for pair in zip(loads, uses, strict=True) for each in pair], HOPPER)
    assert together.loads_in_flight == 4
    assert apart.loads_in_flight == 1
    assert apart.global_wait > 3.5 * together.global_wait


@pytest.mark.parametrize(("left", "waits"), [(0, True), (1, False)])
def test_a_group_that_may_stay_in_flight_is_not_waited_for(left: int, waits: bool) -> None:
    """``DEPBAR.LE SB0, 1`` behind two groups leaves the younger one: its twin with 0 waits for it."""
    math_ = [code("HMMA", "R8, R4, R6, R8", "16816", "F32", stall=8) for _ in range(40)]
    trip = [
        code("LDGSTS", "[R4], [R6.64]", "E", "128"),
        code("LDGDEPBAR", sets=0),
        code("DEPBAR", f"SB0, 0x{left:x}", "LE"),
        *math_,
    ]
    assert (serial(trip, HOPPER).global_wait > 0) is waits


# -- floors -------------------------------------------------------------------------------------------

DEMAND = Demand(
    issue=1000, lsu=500, l2_bytes=32000, pipes={"tensor": 800}, alone=4000, global_wait=2500, near_wait=500, trips=10,
    is_whole=True,
)  # fmt: skip
SETTING = Setting(HOPPER, H200, blocks=132 * 8, blocks_per_sm=1, dram_bytes=1e6)


def test_more_blocks_per_sm_help_only_as_long_as_waits_are_the_floor() -> None:
    before = floors(DEMAND, SETTING)
    assert before.highest == "latency"
    gains = [gain(before, DEMAND, replace(SETTING, blocks_per_sm=n)) for n in (1, 2, 4, 8)]
    assert gains == sorted(gains)
    assert gains[0] == pytest.approx(1.0)
    assert 1.8 < gains[1] <= 2.0
    assert gains[3] < 4.01  # the schedulers are the next floor
    few = replace(SETTING, blocks=100)
    assert gain(floors(DEMAND, few), DEMAND, replace(few, blocks_per_sm=2)) == pytest.approx(1.0)


def test_a_block_that_waits_less_is_faster_only_where_it_is_the_wait() -> None:
    full = replace(SETTING, blocks_per_sm=8)
    alone, crowded = (gain(floors(DEMAND, s), without_global_wait(DEMAND), s) for s in (SETTING, full))
    assert alone > 2
    assert crowded < 1.05


def test_nothing_to_do_is_no_gain() -> None:
    idle = replace(DEMAND, issue=0, lsu=0, l2_bytes=0, pipes={}, alone=0, global_wait=0, near_wait=0, trips=0)
    setting = replace(SETTING, dram_bytes=0.0)
    assert gain(floors(idle, setting), idle, setting) == 1.0


@pytest.mark.parametrize(
    ("opcode", "pipe", "slower", "faster"),
    [("MUFU", "mufu", "sm_100a", "sm_103a"), ("LOP3", "alu", "sm_89", "sm_120a"), ("FFMA", "fma", "sm_80", "sm_86")],
)
def test_pipes_have_the_rates_of_their_architecture(opcode: str, pipe: str, slower: str, faster: str) -> None:
    loop = HotLoop((code(opcode, "R0, R1, R2, R0"),), "loop", None, True, 0, ())
    slow, fast = (demand_of(loop, load_arch(name), None, 4, 10, None).pipes[pipe] for name in (slower, faster))
    assert slow == 2 * fast > 0


def test_dram_counts_only_where_the_launch_is_known_as_a_whole() -> None:
    assert "dram" in floors(DEMAND, SETTING).cycles
    assert "dram" not in floors(replace(DEMAND, is_whole=False), SETTING).cycles
    assert "dram" not in floors(DEMAND, replace(SETTING, device=None)).cycles
    seconds = 1e12 / H200.dram_bytes_per_s
    huge = floors(DEMAND, replace(SETTING, dram_bytes=1e12))
    assert huge.cycles["dram"] == pytest.approx(seconds * H200.boost_clock_hz)


def test_sectors_that_lie_apart_take_a_pass_each() -> None:
    coalesced = Traffic(10, 40, 40, 0, 0, 0, 0)
    strided = Traffic(10, 320, 40, 0, 0, 0, 0)
    assert global_passes(coalesced) == 10
    assert global_passes(strided) == 10 + 280


@pytest.mark.parametrize(
    ("instruction", "macs"),
    [
        (code("HMMA", "", "16816", "F32"), 16 * 8 * 16),
        (code("IMMA", "", "16832", "S8", "S8"), 16 * 8 * 32),
        (code("HGMMA", "", "64x128x16", "F32"), 64 * 128 * 16 / 4),
        (code("DMMA", "", "884"), 8 * 8 * 4),
    ],
)
def test_multiply_adds_of_matrix_instructions(instruction: Instruction, macs: float) -> None:
    assert matrix_macs([instruction]) == {instruction.opcode: macs}


def test_warp_group_instructions_reach_the_dense_peak() -> None:
    group = mac_rate("HGMMA", [], HOPPER, H200)
    assert 2 * group * H200.sms * H200.boost_clock_hz == pytest.approx(H200.peaks["fp16"])
    assert mac_rate("HMMA", [], HOPPER, H200) == HOPPER.fp16_mac_per_cycle < group
    tf32 = [code("HMMA", "", "1688", "F32", "TF32")]
    assert mac_rate("HMMA", tf32, HOPPER, H200) == HOPPER.fp16_mac_per_cycle / 2


def test_geforce_has_half_the_matrix_rate_with_fp32_sums() -> None:
    ampere, card = load_arch("sm_86"), find_device("GeForce RTX 3090")
    rates = [mac_rate("HMMA", [code("HMMA", "", "16816", sums)], ampere, card) for sums in ("F32", "F16")]
    assert rates == pytest.approx([256, 512], rel=0.01)
    assert mac_rate("HMMA", [], ampere, find_device("A10")) == pytest.approx(512, rel=0.01)
    assert mac_rate("IMMA", [], ampere, card) == pytest.approx(1024, rel=0.01)


@pytest.mark.parametrize(
    ("arch", "opcode", "fma", "multiply"),
    [
        ("sm_90a", "FFMA", 16, None),
        ("sm_90a", "IDP", 16, 32),
        ("sm_90a", "IMAD", 16, 32),
        ("sm_86", "IDP", 16, 32),
        ("sm_80", "FFMA", 32, None),
        ("sm_80", "IMAD", 32, 32),
    ],
)
def test_integer_products_have_half_of_the_multiply_add_pipe(
    arch: str, opcode: str, fma: float, multiply: float | None
) -> None:
    """64 of a warp: 64 x 32 results, of 128 (sm_80: 64) a cycle, and 64 where they are products of integers."""
    pipes = _pipe_cycles([code(opcode)] * 64, load_arch(arch), None)
    assert (pipes["fma"], pipes.get("multiply")) == (fma, multiply)


# -- occupancy and roofline -----------------------------------------------------------------------------


def test_the_cliff_of_sm_86_is_49_kib() -> None:
    ampere = load_arch("sm_86")
    found, fit = residency(ampere, None, 128, 64, 28 << 10, None)
    cliff = shared_cliff(ampere, 128, 64, 28 << 10, fit)
    assert found.blocks_per_sm == 3
    assert dict(cliff.ladder)[2] == 49 << 10
    reserved = "100 KiB per SM, 1024 bytes reserved per block"
    assert cliff.text == f"28,672 bytes a block; a block per SM is lost beyond 33,024 ({reserved})"
    assert [blocks for blocks, _ in cliff.ladder] == [4, 3, 2, 1]
    lost, fit = residency(ampere, None, 128, 64, 56 << 10, None)
    assert lost.blocks_per_sm == 1
    assert lost.limiter == "shared"
    assert "lost beyond 101,376 " in shared_cliff(ampere, 128, 64, 56 << 10, fit).text
    _, none = residency(ampere, None, 128, 64, 101_377, None)
    assert shared_cliff(ampere, 128, 64, 101_377, none).text == f"not one block fits on an SM of sm_86 ({reserved})"


def test_waves_are_blocks_over_all_places() -> None:
    found, _ = residency(HOPPER, H200, 256, 64, 1024, 132 * 4 * 2 + 132)
    assert found.blocks_per_sm == 4
    assert (found.waves, found.tail_share) == (2.25, 0.25)
    assert residency(HOPPER, H200, 256, 64, 1024, 132 * 4 * 2)[0].tail_share == 1.0


def test_cliffs_say_what_loses_and_what_gains_a_block() -> None:
    found, _ = residency(HOPPER, H200, 256, 130, 1024, 132)
    texts = [cliff.text for cliff in found.cliffs]
    assert any(text.startswith("128 registers a thread or fewer (-2) gain") for text in texts)
    assert found.waves == 1.0
    assert found.tail_share == 1.0


def test_intensity_ridge_and_share() -> None:
    n = 4096
    ops, size = 2.0 * n**3, 3 * 4.0 * n * n
    roof = roofline(Count(ops, ""), Count(size, ""), {"fp32": ops}, {}, HOPPER, H200, 2 * ops / H200.peaks["fp32"])
    row = roof.rows[0]
    assert row.intensity == pytest.approx(682.67, abs=0.01)
    assert row.ridge == pytest.approx(H200.peaks["fp32"] / H200.dram_bytes_per_s)
    assert row.share == pytest.approx(0.5)
    assert not row.is_memory_bound
    assert roofline(Count(None, "?"), Count(size, ""), {}, {}, HOPPER, H200, None).reason.startswith("no roofline")
    assert "the card" in roofline(Count(ops, ""), Count(size, ""), {}, {}, HOPPER, None, None).reason


# -- setmaxnreg -----------------------------------------------------------------------------------------

_PTX = """.visible .entry other() {{ ret; }}
.visible .entry f(.param .u64 p)
.maxntid 384, 1, 1
{least}
{{
    setmaxnreg.dec.sync.aligned.u32 40;
    {copy}
    ret;
}}
"""
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], 16, [c];"


def _ptx(least: str = ".minnctapersm 1", copy: str = "") -> str:
    return _PTX.format(least=least, copy=copy)


@pytest.mark.parametrize(
    ("ptx", "log", "opcodes", "said"),
    [
        (_ptx(""), "", {"EXIT"}, "C7508"),
        (_ptx(), "ptxas info : (C7508) Potential Performance Loss: 'setmaxnreg' ignored", {"EXIT"}, "C7508"),
        (_ptx(copy=_BULK), "", {"EXIT"}, "C7506"),
        (_ptx(copy=_BULK), "(C7506) 'setmaxnreg' ignored", {"EXIT"}, "C7506"),
        (_ptx(), "", {"EXIT"}, "the compiler's log"),
        (_ptx(""), "", {"EXIT", "USETMAXREG"}, ""),  # it is there
        ("", "", {"EXIT"}, ""),  # nothing can be told
    ],
)
def test_setmaxnreg_that_was_dropped(ptx: str, log: str, opcodes: set[str], said: str) -> None:
    found = dropped(ptx, "f", log, frozenset(opcodes))
    assert (said in found) if said else (found == "")
    assert dropped(ptx, "other", log, frozenset(opcodes)) == ""


# -- ncu --------------------------------------------------------------------------------------------------

RAW = """==PROF== Connected to process 1
"ID","Kernel Name","Block Size","sm__throughput.avg.pct_of_peak_sustained_elapsed","gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","dram__bytes_read.sum"
"","","","%","%","usecond","Mbyte"
"0","warm(float *)","(32, 1, 1)","1.0","2.0","3.0","4.0"
"1","f(const half *, int)","(256, 1, 1)","31.5","84.2","1,250.0","12.5"
"""  # noqa: E501
DETAILS = """"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","f(int)","GPU Speed Of Light Throughput","Memory Throughput","%","84.2"
"0","7","f(int)","GPU Speed Of Light Throughput","Compute (SM) Throughput","%","31.5"
"0","7","f(int)","Memory Workload Analysis","Memory Throughput","Gbyte/second","900.0"
"""


def test_ncu_metrics_are_read_by_name_from_both_pages() -> None:
    raw = read_ncu(RAW, "f", "x.csv")
    assert raw == {
        "sm_percent": 31.5, "memory_percent": 84.2, "duration_ns": 1_250_000.0, "dram_bytes_read": 12_500_000.0,
    }  # fmt: skip
    assert read_ncu(RAW, "_Z1fPK6__halfi", "x.csv") == raw
    assert read_ncu(DETAILS, "f", "x.csv") == {"sm_percent": 31.5, "memory_percent": 84.2}


@pytest.mark.parametrize(
    ("units", "time_ns", "read_bytes"),
    [
        (("ns", "byte"), 1250.0, 12.5), (("nsecond", "Kbyte"), 1250.0, 12.5e3), (("us", "Mbyte"), 1.25e6, 12.5e6),
        (("ms", "Gbyte"), 1.25e9, 12.5e9), (("msecond", "Tbyte"), 1.25e9, 12.5e12), (("s", "Zbyte"), 1.25e12, None),
        (("second", "%"), 1.25e12, None), (("fortnight", "byte"), None, 12.5),
    ],
)  # fmt: skip
def test_ncu_figures_come_in_their_units_or_not_at_all(
    units: tuple[str, str], time_ns: float | None, read_bytes: float | None
) -> None:
    found = read_ncu(RAW.replace('"usecond","Mbyte"', '"{}","{}"'.format(*units)), "f", "x.csv")
    assert found.get("duration_ns") == time_ns
    assert found.get("dram_bytes_read") == read_bytes


def test_what_ncu_has_no_number_for_is_left_out() -> None:
    assert "sm_percent" not in read_ncu(RAW.replace("31.5", "nan"), "f", "x.csv")
    assert "sm_percent" not in read_ncu(RAW.replace("31.5", "n/a"), "f", "x.csv")


@pytest.mark.parametrize(("text", "said"), [("a,b\n1,2\n", "no header"), (RAW, "no launch of g")])
def test_what_is_no_export_of_the_kernel_is_refused(text: str, said: str) -> None:
    with pytest.raises(TilewrightError, match=said) as caught:
        read_ncu(text, "g", "x.csv")
    assert caught.value.code == "analyze/bad_ncu"


# -- names, ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        (code("HMMA", "", "16816", "F32"), "HMMA.16816"),
        (code("IMMA", "", "16816", "S8", "S8"), "IMMA.16816"),
        (code("HGMMA", "", "64x64x16", "F32"), "HGMMA.64x64x16"),
        (code("LDG", "", "E", "128", "CONSTANT"), "LDG.128"),
        (code("LDG", "", "E", "U8"), "LDG.U8"),
        (code("LDGSTS", "", "E", "BYPASS", "128"), "LDGSTS.128"),
        (code("MUFU", "", "EX2"), "MUFU.EX2"),
        (code("IADD3"), "IADD3"),
    ],
)
def test_names_in_the_mix(instruction: Instruction, name: str) -> None:
    assert short_name(instruction) == name


def _strategy(speedup: float, effort: str) -> Strategy:
    return Strategy("widen", "", speedup, speedup, speedup, effort, ())  # type: ignore[arg-type]


def test_a_small_change_comes_first_where_it_brings_most_of_it() -> None:
    small, large = _strategy(1.5, "small"), _strategy(1.5 ** (0.95 / LARGE_CHANGE), "large")
    larger = _strategy(1.5 ** (1.05 / LARGE_CHANGE), "large")
    assert _rank(larger) > _rank(small) > _rank(large)
    assert large.speedup > small.speedup
    assert math.isclose(_rank(_strategy(1.0, "large")), 0.0)


def test_conflicts_name_known_strategies() -> None:
    assert {key for pair in CONFLICTS for key in pair} <= TITLES.keys()
    assert not any("cp.async" in why for pair, why in CONFLICTS.items() if "widen" in pair)  # sm_75 has none
    assert gain_text(_strategy(1.5, "small")) == "1.50x (1.50-1.50)"
    assert "[SASS]" in evidence_text(replace(_evidence(), source="SASS"))


def _evidence():  # type: ignore[no-untyped-def]
    from tilewright.analyze.facts import evidence

    return evidence("loads", 1234, "SASS")


# -- what the plan expects ----------------------------------------------------------------------------


def test_only_what_was_ranked_counts_as_built() -> None:
    facts, plan = igemm(), igemm_budget(HOPPER)

    def gains(decision: Decision | None) -> tuple[bool, str, tuple[str, ...]]:
        asked = SimpleNamespace(tiled=facts, budget=plan, arch=HOPPER, device=H200, decision=decision)
        found = tiled_gains(cast(Facts, asked))
        assert found is not None
        return found.is_built, found.best, found.compared

    before = decide(facts, plan, HOPPER)
    expected = (False, before.best, ("cp_async2", "cp_async3", "cp_async4", "ldg", "ldg_single"))
    assert gains(None) == expected
    assert gains(before) == expected  # builds were asked for, and none of them could be read
    predicted = {**before.predicted, "ldg": Prediction(1.5, 1.2, 1.8), "widen": Prediction(1.1, 1.0, 1.2)}
    through = replace(before, predicted=predicted, best="ldg", ranking=("ldg/early", "widen", "ldg", "baseline"))
    assert gains(through) == (True, "ldg", ("ldg",))
    assert gains(replace(through, best=None, ranking=("widen", "baseline"))) == (True, "", ())
