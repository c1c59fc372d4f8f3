"""The roofline's worked values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.arch import work
from tilewright.arch.arch import load_arch
from tilewright.arch.devices import Device, find_device, known_devices
from tilewright.arch.roofline import (
    attainable,
    bytes_per_s,
    gemm_bytes,
    gemm_flops,
    ridge_point,
    ridges,
    roof,
    roofline_share,
)
from tilewright.errors import TilewrightError


def test_intensity_of_a_square_fp32_product_is_k_over_6() -> None:
    for k in (6, 512, 4096):
        assert gemm_flops(k, k, k) / gemm_bytes(k, k, k, 4, 4) == pytest.approx(k / 6)
    assert gemm_flops(4096, 4096, 4096) / gemm_bytes(4096, 4096, 4096, 4, 4) == pytest.approx(682.67, abs=0.005)
    # Forgetting the output would give K/4.
    assert gemm_flops(6, 6, 6) / gemm_bytes(6, 6, 6, 4, 0) == pytest.approx(6 / 4)


def test_intensity_of_a_matrix_vector_product_tends_to_a_half() -> None:
    assert gemm_flops(10**6, 1, 10**6) / gemm_bytes(10**6, 1, 10**6, 4, 4) == pytest.approx(0.5, rel=1e-5)


# The last two peaks of GA104 count sparsity (test_devices tells more): arithmetic of published figures, no card's.
@pytest.mark.parametrize(
    ("peak", "bandwidth", "ridge"),
    [
        (989e12, 3.35e12, 295),
        (67e12, 3.35e12, 20),
        (66.9e12, 1344e9, 49.8),
        (21.7e12, 608e9, 35.7),
        (174e12, 608e9, 286.2),
        (696e12, 608e9, 1144.7),
    ],
)
def test_ridge_points(peak: float, bandwidth: float, ridge: float) -> None:
    assert ridge_point(peak, bandwidth) == pytest.approx(ridge, rel=1e-3)


def test_the_roof_is_memory_below_the_ridge_and_the_peak_above() -> None:
    assert attainable(100.0, 10.0, ops=50.0, dram_bytes=10.0) == 50.0
    assert attainable(100.0, 10.0, ops=500.0, dram_bytes=10.0) == 100.0


def test_share_of_the_roofline() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    ops, moved = gemm_flops(4096, 4096, 4096), gemm_bytes(4096, 4096, 4096, 1, 4)
    # 52.3 TOPS of 1979.
    share = roofline_share(device, "int8", ops, moved, ops / 52.3e12)
    assert share == pytest.approx(52.3 / 1979)
    assert roofline_share(device, "fp4", ops, moved, 1.0) is None


def card(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


def test_ridges_of_the_table_are_dense() -> None:
    h100 = card("NVIDIA H100 80GB HBM3")
    found = ridges(h100, load_arch("sm_90a"))
    assert found["fp16"]["dram"] == pytest.approx(295, rel=2e-3)
    assert found["fp32"]["dram"] == pytest.approx(20, abs=0.01)
    ga104 = ridges(card("NVIDIA GeForce RTX 3070 Ti"), load_arch("sm_86"))
    assert ga104["fp32"]["dram"] == pytest.approx(35.7, abs=0.1)
    # Half of the 286.2 and a quarter of the 1144.7 that count sparsity.
    assert ga104["fp16_acc16"]["dram"] == pytest.approx(286.2 / 2, rel=1e-3)
    assert ga104["int8"]["dram"] == pytest.approx(1144.7 / 4, rel=1e-3)


def test_memory_levels_follow_sms_and_clock() -> None:
    rates = bytes_per_s(card("NVIDIA A100-SXM4-80GB"), load_arch("sm_80"))
    assert rates["dram"] == 2039e9
    # 128 bytes of shared memory per SM and clock: 19.5 TB/s; of L2, 5120 bytes per clock over all: 7.2 TB/s.
    assert rates["shared"] == pytest.approx(108 * 128 * 1.41e9)
    assert rates["l2"] == pytest.approx(5120 * 1.41e9, rel=0.01)
    for device in known_devices():
        levels = bytes_per_s(device, load_arch(device.arch))
        assert levels["l2"] < levels["shared"]


def test_a_roof_names_the_side_that_holds() -> None:
    device, arch = card("NVIDIA H200"), load_arch("sm_90a")
    product = work.gemm(4096, 4096, 4096, 2, 2)
    high = roof(device, arch, "fp16", product.ops, {"dram": product.dram_bytes})
    assert high is not None
    assert (high.bound, high.attainable_ops_per_s) == ("compute", device.peaks["fp16"])
    vector = work.gemv(4096, 4096, 2)
    low = roof(device, arch, "fp16", vector.ops, {"dram": vector.dram_bytes, "l2": vector.dram_bytes})
    assert low is not None
    assert low.bound == "dram"
    assert low.attainable_ops_per_s == pytest.approx(vector.intensity * 4.8e12)
    assert low.estimated == ("l2",)
    # The same product through L2 once per 32-wide tile: L2 is the limit, and its rate is an estimate.
    tiled = roof(device, arch, "fp16", product.ops, {"dram": product.dram_bytes, "l2": product.ops / 32})
    assert tiled is not None
    assert tiled.bound == "l2"
    assert tiled.attainable_ops_per_s == pytest.approx(32 * 32 * 132 * 1.98e9)
    assert roof(device, arch, "fp4", 1.0, {"dram": 1.0}) is None
    free = roof(device, arch, "fp32", 1.0, {})
    assert free is not None
    assert (free.bound, free.by_level) == ("compute", {})


@pytest.mark.parametrize(
    ("count", "intensity"),
    [
        (work.gemm(4096, 4096, 4096), 682.67),
        (work.gemm(6, 6, 6, batch=7), 1.0),
        (work.softmax(1024, 4096), 0.625),
        (work.elementwise(1 << 20, 2), 1 / 12),
        (work.elementwise(1 << 20, 1), 1 / 8),
        (work.gemv(1 << 20, 1 << 20), 0.5),
        (work.dot(1 << 24), 0.25),
    ],
)
def test_intensities(count: work.OpCount, intensity: float) -> None:
    assert count.intensity == pytest.approx(intensity, rel=1e-5)


def test_the_limits_are_approached_from_below() -> None:
    """GEMV and dot reach their figures only in the limit: the vectors and the result are bytes, too."""
    assert 0.49 < work.gemv(128, 128).intensity < work.gemv(4096, 4096).intensity < 0.5
    assert 0.24 < work.dot(64).intensity < work.dot(1 << 20).intensity < 0.25


def test_a_product_counts_its_output_and_its_types() -> None:
    count = work.gemm(64, 32, 16, 1, 4, batch=3)
    assert (count.ops, count.dram_bytes) == (3 * 2 * 64 * 32 * 16, 3 * ((64 * 16 + 16 * 32) + 4 * 64 * 32))
    assert work.gemm(64, 32, 16, 2).dram_bytes == gemm_bytes(64, 32, 16, 2, 2)
    assert work.gemm(64, 32, 16).ops == gemm_flops(64, 32, 16)


def test_row_operations() -> None:
    # Weights are read once for all rows.
    assert work.rmsnorm(1000, 64, 2).dram_bytes == 2 * (2 * 1000 * 64 + 64)
    assert work.layernorm(1000, 64, 2).dram_bytes == 2 * (2 * 1000 * 64 + 2 * 64)
    assert work.rmsnorm(1000, 64).ops == 4 * 1000 * 64
    assert work.layernorm(1000, 64).ops == 7 * 1000 * 64


def test_attention() -> None:
    full = work.attention(2, 8, 512, 512, 64)
    assert full.ops == 4 * 2 * 8 * 512 * 512 * 64
    assert full.dram_bytes == 2 * 4 * 2 * 8 * 512 * 64
    # Counted out: query i of 512 sees i + 1 keys.
    causal = work.attention(2, 8, 512, 512, 64, causal=True)
    assert causal.ops == 4 * 2 * 8 * 64 * sum(i + 1 for i in range(512))
    assert causal.dram_bytes == full.dram_bytes
    # The last 16 of 512 queries, and more queries than keys.
    assert work.attention(1, 1, 16, 512, 1, causal=True).ops == 4 * sum(512 - 15 + i for i in range(16))
    assert work.attention(1, 1, 20, 4, 1, causal=True).ops == 4 * (1 + 2 + 3 + 4)
    grouped = work.attention(1, 32, 128, 128, 64, kv_heads=8)
    assert grouped.dram_bytes == 2 * 64 * 128 * (2 * 32 + 2 * 8)


def test_convolution_is_its_matrix_product() -> None:
    count = work.convolution(4, 16, 56, 56, 32, (3, 3), padding=1)
    assert count.ops == work.gemm(4 * 56 * 56, 32, 16 * 9).ops
    assert count.dram_bytes == 4 * (4 * 16 * 56 * 56 + 32 * 16 * 9 + 4 * 32 * 56 * 56)
    strided = work.convolution(1, 3, 224, 224, 64, (7, 7), stride=2, padding=3)
    assert strided.ops == 2 * 64 * 112 * 112 * 3 * 49
    assert work.convolution(1, 8, 9, 9, 8, (3, 3), dilation=2, groups=8).ops == 2 * 8 * 5 * 5 * 9


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: work.gemm(0, 1, 1),
        lambda: work.attention(1, 1, 1, 1, 0),
        lambda: work.convolution(1, 1, 2, 2, 1, (3, 3)),
        lambda: work.convolution(1, 3, 8, 8, 4, (3, 3), groups=2),
    ],
)
def test_what_is_no_shape_is_refused(wrong: Callable[[], work.OpCount]) -> None:
    with pytest.raises(TilewrightError) as caught:
        wrong()
    assert caught.value.code == "arch/bad_shape"
