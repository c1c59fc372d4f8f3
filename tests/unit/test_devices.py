"""The table of cards: the right card or none, peaks that are dense, and that every number has a source."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilewright.arch.arch import known_archs, load_arch
from tilewright.arch.devices import Device, devices_called, find_device, known_devices

GIB = 1 << 30
DEVICES = known_devices()
IDS = [device.name for device in DEVICES]


def card(name: str) -> Device:
    found = find_device(name)
    assert found is not None, name
    return found


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 40 GB PCIe"),
        ("A100-SXM4-40GB", "NVIDIA A100 40 GB SXM4"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40 GB SXM4"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80 GB PCIe"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80 GB SXM4"),
        ("NVIDIA A10", "NVIDIA A10"),
        ("NVIDIA GeForce RTX 3070 Ti", "NVIDIA GeForce RTX 3070 Ti"),
        ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("nvidia geforce rtx  4090 ", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA RTX PRO 5000 Blackwell", "NVIDIA RTX PRO 5000 Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
    ],
)
def test_the_name_that_the_driver_reports(reported: str, name: str) -> None:
    assert card(reported).name == name


@pytest.mark.parametrize(
    "reported",
    [
        "",
        "NVIDIA",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA GeForce RTX 3070",
        "NVIDIA GeForce RTX 3070 Ti Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA A10G",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A100",
        "NVIDIA L40",
        "NVIDIA L4 Something",
        "NVIDIA H100",
        "NVIDIA H100 NVL",
        "NVIDIA H100 80GB HBM2e",
        "NVIDIA H200 NVL",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA GH200 480GB",
        "NVIDIA GB200",
        "NVIDIA B300 SXM6 AC",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU",
        "NVIDIA T400",
        "NVIDIA GeForce GTX 750",
    ],
)
def test_another_card_has_no_table(reported: str) -> None:
    assert find_device(reported) is None


def test_a_card_that_counts_otherwise_is_another_one() -> None:
    assert find_device("NVIDIA H200", 132, 143771 << 20) is not None
    assert find_device("NVIDIA H200", 60) is None
    assert find_device("NVIDIA H200", 132, 40 * GIB) is None
    # The PRO 5000 with 72 GB is called the same.
    assert find_device("NVIDIA RTX PRO 5000 Blackwell", 110, 48 * GIB - (1 << 29)) is not None
    assert find_device("NVIDIA RTX PRO 5000 Blackwell", 110, 73415 << 20) is None
    # What drivers report of a T4 and of an A100.
    assert find_device("Tesla T4", 40, 15_843_721_216) is not None
    assert find_device("NVIDIA A100-SXM4-40GB", 108, 42_405_855_232) is not None


def test_no_name_means_two_cards() -> None:
    names = [name for device in DEVICES for name in device.names]
    assert len(names) == len(set(names))
    assert len(IDS) == len(set(IDS))
    for device in DEVICES:
        for name in device.names:
            assert card(f"NVIDIA {name.upper()}") == device


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_every_number_has_a_source_and_a_kind(device: Device) -> None:
    numbers = {"sms", "l2_bytes", "dram_bytes_per_s", "boost_clock_hz", "dram_bytes", *device.peaks}
    if device.base_clock_hz is not None:
        numbers.add("base_clock_hz")
    assert device.sources.keys() == device.kinds.keys() == numbers
    for key, kind in device.kinds.items():
        source = device.sources[key]
        if kind == "documented":
            assert re.search(r"https?://\S+\.\S+", source), key
            assert "halved" not in source, key
        elif kind == "derived":
            assert re.search(r"\bx\b|halved|128 to an SM|As FP|above", source), (key, source)
        else:
            assert kind == "measured"
            assert source.startswith(("Reported", "From a device query")), (key, source)


# Dense multiply-adds per SM and clock of the matrix units, by architecture, as NVIDIA's whitepapers give them for a
# card without GeForce's half rate: FP16.
FP16_RATES = {"sm_75": 512, "sm_80": 1024, "sm_86": 512, "sm_89": 512, "sm_90a": 2048, "sm_100a": 4096, "sm_120a": 512}
TIMES_FP16 = {"tf32": 0.5, "fp16": 1.0, "bf16": 1.0, "fp8": 2.0, "int8": 2.0, "fp4": 4.0}


def doubtful(device: Device) -> list[str]:
    """Precisions whose peak is not SMs x rate x clock, dense.

    Within 1.5 %; data-centre cards lower their clock for the matrix units (1.83 GHz of an H100's 1.98): within 9 %.
    """
    arch, cycles = load_arch(device.arch), 2 * device.sms * device.boost_clock_hz
    expected = {"fp32": float(arch.fma_lanes_per_cycle)}
    for precision, times in TIMES_FP16.items():
        halved = "GeForce" in device.name and precision in ("tf32", "fp16", "bf16", "fp8")
        expected[precision] = FP16_RATES[device.arch] * times / (2 if halved else 1)
    for precision in ("fp16", "fp8"):
        expected[f"{precision}_acc16"] = 2 * expected[precision]
    lowered = device.arch in ("sm_90a", "sm_100a")
    rates = {precision: peak / cycles for precision, peak in device.peaks.items() if precision in expected}
    least = {precision: 0.91 if lowered and precision != "fp32" else 0.985 for precision in rates}
    return [p for p, rate in rates.items() if not least[p] * expected[p] < rate < 1.01 * expected[p]]


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_peaks_are_sms_times_rate_times_clock_and_dense(device: Device) -> None:
    assert device.arch in known_archs()
    assert not doubtful(device)


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_a_sparse_peak_or_a_wrong_card_would_be_noticed(device: Device) -> None:
    for precision in device.peaks.keys() & (TIMES_FP16.keys() | {"fp32"}):
        assert doubtful(replace(device, peaks={**device.peaks, precision: 2 * device.peaks[precision]})) == [precision]
    assert "fp32" in doubtful(replace(device, sms=device.sms - 4))
    assert "fp32" in doubtful(replace(device, boost_clock_hz=1.1 * device.boost_clock_hz))


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_precisions_are_those_that_the_card_has(device: Device) -> None:
    capability = load_arch(device.arch).compute_capability
    assert {"fp32", "fp16", "int8"} <= device.peaks.keys()
    assert ({"tf32", "bf16"} <= device.peaks.keys()) is (capability >= (8, 0))
    assert ("fp8" in device.peaks) is (capability >= (8, 9))
    assert ("fp4" in device.peaks) is (capability >= (10, 0))


def test_the_same_name_in_two_forms_differs_where_it_should() -> None:
    assert card("NVIDIA A100-SXM4-80GB").dram_bytes_per_s == 2039e9
    assert card("NVIDIA A100 80GB PCIe").dram_bytes_per_s == 1935e9
    assert card("NVIDIA A100-PCIE-40GB").dram_bytes_per_s == card("NVIDIA A100-SXM4-40GB").dram_bytes_per_s == 1555e9
    assert (card("NVIDIA H100 PCIe").sms, card("NVIDIA H100 80GB HBM3").sms) == (114, 132)
    assert (card("NVIDIA H100 80GB HBM3").dram_bytes_per_s, card("NVIDIA H200").dram_bytes_per_s) == (3.35e12, 4.8e12)


def test_the_h200() -> None:
    device = card("NVIDIA H200")
    assert (device.sms, device.arch, device.dram_bytes_per_s) == (132, "sm_90a", 4.8e12)
    # Dense: the datasheet prints 1979 TFLOPS for FP16, with sparsity.
    assert device.peaks["fp16"] == pytest.approx(989.5e12)


def test_what_is_quoted_of_ga104() -> None:
    """21.7 TFLOPS FP32, 174 FP16, 696 INT8: the first is right, the others count sparsity, and the last is INT4's.

    Dense, the RTX 3070 Ti has 87 TFLOPS of FP16 with FP16 sums (half of that with FP32 sums) and 174 TOPS of INT8; with
    sparsity twice as much, 174 and 348; INT4 is twice INT8, so 696 is INT4 with sparsity.
    """
    device = card("NVIDIA GeForce RTX 3070 Ti")
    assert device.peaks["fp32"] == pytest.approx(21.7e12, rel=3e-3)
    assert 2 * device.peaks["fp16_acc16"] == pytest.approx(174e12, rel=1e-3)
    assert device.peaks["int8"] == pytest.approx(174e12, rel=1e-3)
    assert 2 * 2 * device.peaks["int8"] == pytest.approx(696e12, rel=1e-3)
    assert device.dram_bytes_per_s == 608e9


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("4090", ["NVIDIA GeForce RTX 4090"]),
        ("rtx 3070 ti", ["NVIDIA GeForce RTX 3070 Ti"]),
        ("a100 sxm4 80", ["NVIDIA A100 80 GB SXM4"]),
        ("A100 80gb pcie", ["NVIDIA A100 80 GB PCIe"]),
        ("h100", ["NVIDIA H100 SXM5", "NVIDIA H100 PCIe"]),
        # Other cards, whose names stand inside those of the table, or are one word shorter or longer.
        *((other, []) for other in ("h20", "l40", "b20", "3070", "4090 d", "5090 d", "h100 nvl", "a10g", "gh200", "")),
    ],
)
def test_a_card_is_called_by_whole_words(asked: str, names: list[str]) -> None:
    assert [device.name for device in devices_called(asked)] == names
