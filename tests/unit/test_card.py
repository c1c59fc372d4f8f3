"""Which card a prediction is for, and what its matrix units do: right values for every architecture."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files

import pytest
from plan_samples import igemm, igemm_budget, sgemm

from tilewright.arch.arch import known_archs, load_arch
from tilewright.arch.card import Card, assumed_card, card_here, card_of
from tilewright.arch.devices import find_device
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.plan.compiled import BASELINE, Built, launch_cycles, load_model, on_card
from tilewright.plan.decide import decide, decide_built
from tilewright.plan.facts import PlanFacts, for_card
from tilewright.receipt import record
from tilewright.sass.listing import Instruction
from tilewright.sass.proof import OverlapProof
from tilewright.sass.schedule import Schedule, Slot, _precision
from tilewright.workflow.deciding import decided, decision_for
from tilewright.workflow.study import Planned, Study

GIB = 1 << 30
SM_90, SM_86 = load_arch("sm_90a"), load_arch("sm_86")
MODEL = load_model()


def card(name: str) -> Card:
    device = find_device(name)
    assert device is not None
    return card_of(device, "named")


# -- which card ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "name", "sms"),
    [
        ("sm_75", "NVIDIA T4", 40),
        ("sm_80", "NVIDIA A100 40 GB PCIe", 108),
        ("sm_86", "NVIDIA GeForce RTX 3090", 82),
        ("sm_87", "NVIDIA Jetson AGX Orin 64 GB", 16),
        ("sm_89", "NVIDIA GeForce RTX 4090", 128),
        ("sm_90a", "NVIDIA H100 SXM5", 132),
        ("sm_100a", "NVIDIA B200", 148),
        ("sm_103a", "NVIDIA B300", 148),
        ("sm_110a", "NVIDIA Thor", 20),
        ("sm_120a", "NVIDIA GeForce RTX 5090", 170),
        ("sm_121a", "NVIDIA GB10", 48),
    ],
)
def test_the_assumed_card_of_an_architecture(arch: str, name: str, sms: int) -> None:
    found = assumed_card(arch)
    assert (found.name, found.sms, found.is_assumed) == (name, sms, True)
    assert found.told == f"No card is known here. Predicted for {name}, {sms} SMs (assumed, as a card of {arch})."


def test_no_architecture_has_one_sm_and_none_is_without_a_card() -> None:
    assert all(assumed_card(arch).sms >= 16 for arch in known_archs())
    with pytest.raises(TilewrightError, match="no architecture"):
        assumed_card("sm_42")
    text = files("tilewright.arch").joinpath("data", "devices.toml").read_text("utf-8")
    for row in tomllib.loads(text)["assumed"]:
        assert row["sms"]["source"]
        assert row["sms"]["kind"] in ("documented", "measured", "derived")
        assert not any(device["arch"] == row["arch"] for device in tomllib.loads(text)["device"])


def test_the_gpu_here_comes_before_what_is_assumed() -> None:
    pcie = card_here("sm_90a", "NVIDIA H100 PCIe", "sm_90", 114, 80 * GIB)
    assert (pcie.name, pcie.sms, pcie.is_assumed) == ("NVIDIA H100 PCIe", 114, False)
    slice_ = card_here("sm_90a", "NVIDIA H100 PCIe MIG 1g.10gb", "sm_90", 14, 10 * GIB)
    assert (slice_.sms, slice_.is_assumed, slice_.peaks) == (14, False, {})
    assert card_here("sm_86", "NVIDIA H100 PCIe", "sm_90", 114, 80 * GIB) == assumed_card("sm_86")


def test_a_geforce_without_a_table_has_the_rates_of_its_kind() -> None:
    found = card_here("sm_86", "NVIDIA GeForce RTX 3060", "sm_86", 28, 12 * GIB)
    assert (found.sms, found.like) == (28, "NVIDIA GeForce RTX 3090")
    assert found.mac_per_cycle(SM_86, "fp16") == pytest.approx(256, rel=0.01)
    assert "with the matrix rates of the NVIDIA GeForce RTX 3090" in found.told
    ada = card_here("sm_89", "NVIDIA GeForce RTX 4060", "sm_89", 24, 8 * GIB)
    assert ada.like == "NVIDIA GeForce RTX 4090"  # of its own architecture, not the first GeForce of the tables
    other = card_here("sm_86", "NVIDIA RTX A2000", "sm_86", 26, 12 * GIB)
    assert (other.like, other.mac_per_cycle(SM_86, "fp16")) == ("", 512)


# -- how fast its matrix units are ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arch", "fp16", "fp16_acc16", "bf16", "tf32", "int8"),
    [
        ("NVIDIA GeForce RTX 3070 Ti", "sm_86", 256, 512, 256, 128, 1024),
        ("NVIDIA GeForce RTX 3090", "sm_86", 256, 512, 256, 128, 1024),
        ("NVIDIA A10", "sm_86", 512, 512, 512, 256, 1024),
        ("NVIDIA GeForce RTX 4090", "sm_89", 256, 512, 256, 128, 1024),
        ("NVIDIA L40S", "sm_89", 512, 512, 512, 256, 1024),
        ("NVIDIA GeForce RTX 5090", "sm_120a", 256, 512, 256, 128, 1024),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sm_120a", 512, 512, 512, 256, 1024),
        ("NVIDIA H200", "sm_90a", 1280, 1280, 1280, 640, 2560),
    ],
)
def test_multiply_adds_per_cycle(
    name: str, arch: str, fp16: float, fp16_acc16: float, bf16: float, tf32: float, int8: float
) -> None:
    found, limits = card(name), load_arch(arch)
    rates = [found.mac_per_cycle(limits, p) for p in ("fp16", "fp16_acc16", "bf16", "tf32", "int8")]
    assert rates == pytest.approx([fp16, fp16_acc16, bf16, tf32, int8], rel=0.01)


def test_fp8_adds_up_in_fp16_at_twice_the_rate_on_geforce() -> None:
    ada = load_arch("sm_89")
    rates = [card("NVIDIA GeForce RTX 4090").mac_per_cycle(ada, p) for p in ("fp8", "fp8_acc16")]
    assert rates == pytest.approx([512, 1024], rel=0.01)
    assert card("NVIDIA L40S").mac_per_cycle(ada, "fp8") == pytest.approx(1024, rel=0.01)


@pytest.mark.parametrize(
    ("opcode", "modifiers", "precision"),
    [
        ("HMMA", ("16816", "F32"), "fp16"),
        ("HMMA", ("16816", "F16"), "fp16_acc16"),
        ("HMMA", ("16816", "F32", "BF16"), "bf16"),
        ("HMMA", ("1688", "F32", "TF32"), "tf32"),
        ("IMMA", ("16816", "S8", "S8"), "int8"),
        ("QMMA", ("16832", "F32", "E4M3", "E4M3"), "fp8"),
        ("QMMA", ("16832", "F16", "E4M3", "E4M3"), "fp8_acc16"),
        ("DMMA", ("884",), ""),
    ],
)
def test_the_precision_of_a_matrix_instruction(opcode: str, modifiers: tuple[str, ...], precision: str) -> None:
    name = ".".join((opcode, *modifiers))
    assert _precision(Instruction(0, opcode, modifiers, "", "", name, 1, False, None, None, 0, 0)) == precision


# -- what follows for launches and decisions -----------------------------------------------------------


def matrix_kernel(precision: str, blocks: int = 82 * 4) -> Built:
    trip = (Slot("matrix", 1, weight=1, macs=2048, precision=precision),) * 64
    return Built(Schedule(trip, (), 64, 50, 50, "HMMA"), 64, 16384, 256, blocks, 64_000.0)


def cycles(built: Built, arch: str, on: Card) -> float:
    found = launch_cycles(BASELINE, built, load_arch(arch), MODEL, on)
    assert found is not None
    return found


def test_rounds_are_those_of_the_cards_sms() -> None:
    pcie, sxm = card("NVIDIA H100 PCIe"), card("NVIDIA H100 80GB HBM3")
    on_sxm, on_pcie = (cycles(matrix_kernel("fp16", 264), "sm_90a", each) for each in (sxm, pcie))
    assert on_sxm == cycles(matrix_kernel("fp16", 2 * 132), "sm_90a", sxm)
    assert on_pcie == cycles(matrix_kernel("fp16", 3 * 114), "sm_90a", pcie)  # 264 blocks are 3 on some SM
    assert on_pcie > 1.2 * on_sxm


@pytest.mark.parametrize(("arch", "sms"), [("sm_87", 16), ("sm_103a", 148), ("sm_110a", 20), ("sm_121a", 48)])
def test_a_block_for_each_sm_takes_no_longer_than_one_block(arch: str, sms: int) -> None:
    def took(blocks: int) -> float:
        found = launch_cycles(BASELINE, matrix_kernel("fp16", blocks), load_arch(arch), MODEL)
        assert found is not None
        return found

    assert took(1) == took(sms) < took(sms + 1)


def test_fp32_sums_take_twice_as_long_on_geforce_and_nothing_else_does() -> None:
    geforce, a10 = replace(card("NVIDIA GeForce RTX 3090"), sms=82), replace(card("NVIDIA A10"), sms=82)
    for precision, times in (("fp16", 2), ("bf16", 2), ("tf32", 2), ("fp16_acc16", 1), ("int8", 1), ("", 1)):
        built = matrix_kernel(precision)
        assert cycles(built, "sm_86", geforce) / cycles(built, "sm_86", a10) == pytest.approx(times, rel=0.03)


def test_int8_out_of_proportion_and_the_reference_card() -> None:
    ultra = on_card(matrix_kernel("int8").schedule, load_arch("sm_103a"), assumed_card("sm_103a"))
    assert ultra.trip[0].macs == 2048 * 8  # 256 a cycle, where twice FP16 would be 2048
    for precision in ("fp16", "fp16_acc16", "bf16", "tf32", "int8", "fp8"):
        schedule = matrix_kernel(precision).schedule
        assert on_card(schedule, SM_90, card("NVIDIA H200")) == schedule


def hgemm() -> PlanFacts:
    return replace(igemm(load_bytes=16), element_bytes=2, math_kind="mma", blocks=82 * 4)


def test_the_first_prediction_takes_the_cards_rate_and_sms() -> None:
    geforce, a10 = card("NVIDIA GeForce RTX 3090"), card("NVIDIA A10")
    assert for_card(hgemm(), SM_86, geforce).macs_per_cycle == pytest.approx(256, rel=0.01)
    assert for_card(hgemm(), SM_86, a10).macs_per_cycle == 512
    acc16 = replace(hgemm(), precision="fp16_acc16")
    assert for_card(acc16, SM_86, geforce).macs_per_cycle == 512
    assert for_card(igemm(), SM_86, geforce).macs_per_cycle == 1024
    assert for_card(sgemm(), SM_86, geforce).macs_per_cycle is None
    assert for_card(hgemm(), SM_86, a10).sms == 72
    assert for_card(replace(hgemm(), sms=3), SM_86, a10).sms == 3
    plan = igemm_budget(SM_86)
    bound = replace(hgemm(), BM=128, BN=128, compute_instructions=60, shared_loads=None)
    told = [decide(bound, plan, SM_86, each) for each in (geforce, a10)]
    assert told[0].predicted["cp_async2"].speedup < told[1].predicted["cp_async2"].speedup  # more math, less to hide


def test_a_decision_says_which_card_it_is_for() -> None:
    builds = {BASELINE: matrix_kernel("fp16_acc16"), "ldg": matrix_kernel("fp16_acc16")}
    assumed = decide_built(hgemm(), igemm_budget(SM_86), SM_86, builds)
    assert assumed.card == assumed_card("sm_86")
    assert assumed.reasons[-1] == assumed_card("sm_86").told
    here = decide_built(hgemm(), igemm_budget(SM_86), SM_86, builds, card=card("NVIDIA A10"))
    assert here.reasons[-1] == "Predicted for NVIDIA A10, 72 SMs (named)."


def gpu(name: str, arch: str, sms: int, memory_bytes: int) -> GpuInfo:
    return GpuInfo(
        0, name, arch, "580", (13, 0), sms, 50 << 20, memory_bytes, None, 232448, 233472, 1024, 65536, 2048, 32
    )


def test_a_study_is_decided_anew_for_the_gpu_that_is_here() -> None:
    builds = {BASELINE: matrix_kernel("fp16", 264), "ldg": matrix_kernel("fp16", 264)}
    planned = Planned(hgemm(), igemm_budget(SM_90), builds, frozenset({"ldg"}))
    before = decided(planned, SM_90, assumed_card("sm_90a"))
    assert (before.card, before.sms) == ("NVIDIA H100 SXM5", 132)
    assert before.card_reason == "assumed, as a card of sm_90a"
    studied = Study(
        "",
        "",
        record.Kernel("a.cu", "a"),
        {},
        None,
        OverlapProof,
        None,
        decision=before,
        planned=planned,  # type: ignore[arg-type]
    )
    pcie = gpu("NVIDIA H100 PCIe", "sm_90", 114, 80 * GIB)
    found = decision_for(studied, "sm_90a", pcie)
    assert found is not None
    assert (found.card, found.sms, found.card_reason) == ("NVIDIA H100 PCIe", 114, "the GPU here")
    assert decision_for(studied, "sm_90a", None) == before
    assert decision_for(studied, "sm_90a", gpu("NVIDIA A10", "sm_86", 72, 24 * GIB)) == before
    assert decision_for(replace(studied, decision=None, planned=None), "sm_90a", pcie) is None
