"""The GEMM time model: it moves the way the machine does, and its parameters are read with their sources."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import devices_called
from tilewright.errors import TilewrightError
from tilewright.skeleton.gemm import GemmTile
from tilewright.tile.attention import attention_candidates
from tilewright.tile.columns import columns
from tilewright.tile.gemm import candidate, terms_us, timed_space
from tilewright.tile.gemm_time import gemm_time
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Gemm
from tilewright.tile.parameters import load_parameters, parameter_names, parse_parameters
from tilewright.tile.traffic import traffic

COST = load_parameters()
BIG = GemmTile(128, 256, 32, 2, 4, 4, 1, 1)


def machine(card: str = "h200") -> Machine:
    (device,) = devices_called(card)
    return Machine(load_arch(device.arch), device)


def seconds(op: Gemm, *tiles: GemmTile) -> list[float]:
    return list(gemm_time(op, columns(tiles, op.dtype, machine().arch), machine(), COST).seconds)


def test_a_large_product_takes_no_less_than_its_multiply_adds_at_the_rate_of_the_matrix_unit() -> None:
    op = Gemm(8192, 8192, 8192)
    rate = machine().mac_per_cycle("float16") * COST.mma_share * machine().device.sms * machine().clock_hz
    least = op.m * op.n * op.k / rate
    found = timed_space(op, machine(), COST)
    assert least < float(found.time.seconds.min()) < 2 * least


@pytest.mark.parametrize(
    ("card", "fp16", "tf32", "int8"),
    [
        (
            "rtx 3090",
            256,
            128,
            1024,
        ),  # GA102 whitepaper, Appendix A: 71 TFLOPS with FP32 sums, 142 with FP16
        ("rtx 4090", 256, 128, 1024),  # Ada whitepaper, Appendix A: 165.2 and 330.3
        ("a10", 512, 256, 1024),
        ("a100-sxm4-80gb", 1024, 512, 2048),
        ("h200", 1280, 640, 2560),  # mma.sync; wgmma reaches 2048
    ],
)
def test_the_matrix_rate_is_the_cards_own_where_that_is_less(card: str, fp16: int, tf32: int, int8: int) -> None:
    rates = [machine(card).mac_per_cycle(dtype) for dtype in ("float16", "float32", "int8")]
    assert rates == pytest.approx([fp16, tf32, int8], rel=0.01)


def test_no_product_takes_less_than_its_launch_and_its_bytes() -> None:
    op = Gemm(8192, 8192, 64)
    found = timed_space(op, machine(), COST)
    dram = op.unique_bytes / machine().device.dram_bytes_per_s
    assert float(found.time.seconds.min()) > dram + COST.launch_us * 1e-6


def test_one_block_more_than_a_wave_costs_a_wave() -> None:
    sms, fits = machine().device.sms, 1
    whole, more = seconds(Gemm(128 * sms * fits, 256, 4096), BIG)[0], seconds(Gemm(128 * (sms + 1), 256, 4096), BIG)[0]
    assert more / whole > 1.5


def test_more_stages_never_hurt_while_the_same_number_of_blocks_fits() -> None:
    tiles = [replace(BIG, stages=stages) for stages in (2, 3, 4)]
    times = seconds(Gemm(4096, 4096, 4096), *tiles)
    assert times == sorted(times, reverse=True)


def test_splitting_k_helps_where_the_card_is_idle_and_only_there() -> None:
    deep = seconds(Gemm(128, 256, 65536), BIG, replace(BIG, split_k=32))
    assert deep[1] < 0.3 * deep[0]
    full = seconds(Gemm(8192, 8192, 1024), BIG, replace(BIG, split_k=2))
    assert full[1] > full[0]


def test_small_warp_tiles_read_more_shared_memory() -> None:
    space = columns([replace(BIG, warps_m=2, warps_n=2), BIG], "float16", machine().arch)
    pipes = gemm_time(Gemm(4096, 4096, 4096), space, machine(), COST).pipes
    assert pipes.shared[1] > pipes.shared[0]
    assert pipes.tensor[1] == pipes.tensor[0]


def test_walking_in_groups_fetches_less_where_l2_does_not_hold_the_inputs() -> None:
    op = Gemm(32768, 32768, 4096)
    space = columns([BIG, replace(BIG, group_m=8)], "float16", machine().arch)
    rows, groups = traffic(op, space, np.full(2, 132.0), 30e6).dram_bytes
    assert groups < 0.6 * rows
    assert groups >= op.unique_bytes
    kept = traffic(op, space, np.full(2, 132.0), 1e12).dram_bytes
    assert kept == pytest.approx(op.unique_bytes)


def test_a_slower_card_is_slower() -> None:
    op, names = Gemm(4096, 4096, 4096), ("h200",)
    fast = machine(names[0])
    slow = Machine(fast.arch, replace(fast.device, sms=66, dram_bytes_per_s=2.4e12))
    assert slow.clock_hz == pytest.approx(fast.clock_hz)
    assert timed_space(op, slow, COST).time.seconds.min() > 1.8 * timed_space(op, fast, COST).time.seconds.min()


def test_the_terms_of_a_candidate_name_what_limits_it() -> None:
    op = Gemm(8192, 8192, 8192)
    timed = timed_space(op, machine(), COST)
    best = timed.order[0]
    assert candidate(timed, best).bound_by == max(terms_us(timed, best), key=lambda n: terms_us(timed, best)[n])
    assert set(terms_us(timed, best)) == {"tensor", "shared", "issue", "l2", "waits", "ends", "dram", "reduce"}
    streamed = timed_space(Gemm(8192, 8192, 64), machine(), COST)
    assert candidate(streamed, streamed.order[0]).bound_by in ("dram", "ends")


def test_compiled_registers_take_the_place_of_the_estimate() -> None:
    op = Gemm(4096, 4096, 4096)
    tile = GemmTile(64, 64, 32, 2, 2, 3, 1, 1)
    few, many = (timed_space(op, machine(), COST, [tile], [registers]) for registers in (64, 240))
    assert candidate(few, 0, 0, compiled=True).blocks_per_sm > candidate(many, 0, 0, compiled=True).blocks_per_sm
    assert candidate(few, 0, 0, compiled=True).registers_compiled == 64
    assert candidate(few, 0).registers_compiled is None


def test_every_parameter_has_a_source_and_a_kind() -> None:
    text = files("tilewright.tile").joinpath("data", "cost.toml").read_text("utf-8")
    assert set(parse_parameters(text).sources) == set(parameter_names())
    for broken in (text.replace("mma_share", "mma_chare", 1), text.replace('source = "', 'sauce = "', 1)):
        with pytest.raises(TilewrightError, match="bad_data"):
            parse_parameters(broken)


def test_exponentials_are_the_architectures_own() -> None:
    assert [load_arch(name).exp_per_cycle for name in ("sm_80", "sm_90a", "sm_100a", "sm_103a")] == [16, 16, 16, 32]
    op = Attention(1, 8, 2048, 64)
    here = machine()
    doubled = replace(here, arch=replace(here.arch, exp_per_cycle=2 * here.arch.exp_per_cycle))
    once, twice = (attention_candidates(op, m, COST)[0].terms_us["exp"] for m in (here, doubled))
    assert once == pytest.approx(2 * twice)
